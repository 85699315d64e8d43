"""Rows rearranged so that padding, wherever it was, comes last.

A recurrence or a convolution over such rows never meets padding before a real token.

Letters: B batch, T length, D width.
"""

from keras import ops


def places_of(padding_mask):
    """Where each token goes.

    Args:
        padding_mask: bool (B, T), True for real tokens.

    Returns: pair of int32 (B, T), a permutation of each row that keeps the order
        among real tokens and among the others, and int32 (B,), how many are real.
    """
    real = ops.cast(padding_mask, "int32")
    counts = ops.sum(real, axis=1)  # (B,)
    among_real = ops.cumsum(real, axis=1) - 1
    among_others = ops.cumsum(1 - real, axis=1) - 1 + ops.expand_dims(counts, 1)
    return ops.where(padding_mask, among_real, among_others), counts


def to_front(x, places):
    """(B, T, D) with each token at its place."""
    flat = ops.reshape(x, (-1, x.shape[2]))
    order = ops.expand_dims(_flat(places), 1)  # (B T, 1)
    moved = ops.scatter(order, flat, ops.shape(flat))
    return ops.reshape(moved, ops.shape(x))


def from_front(x, places):
    """What `to_front` did, undone."""
    flat = ops.reshape(x, (-1, x.shape[2]))
    return ops.reshape(ops.take(flat, _flat(places), axis=0), ops.shape(x))


def keep_first(x, counts):
    """(B, T, W) with zeros from token `counts[b]` of row b on; counts (B,) or None."""
    if counts is None:
        return x
    places = ops.arange(ops.shape(x)[1], dtype="int32")
    real = ops.less(ops.expand_dims(places, 0), ops.expand_dims(counts, 1))  # (B, T)
    return ops.where(ops.expand_dims(real, 2), x, ops.zeros((), x.dtype))


def _flat(places):
    """Places among the tokens of all rows, int32 (B T,)."""
    batch, length = ops.shape(places)
    first = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)
    return ops.reshape(places + first, (-1,))
