"""Rows rearranged so that padding, wherever it was, comes last.

A recurrence or a convolution over such rows never meets padding before a real token.

Letters: B batch, T length, D width.
"""

from keras import ops

from keras_tfm.layers.row_order import invert_order, permute_rows


def moves_of(padding_mask):
    """How each token moves.

    Args:
        padding_mask: bool (B, T), True for real tokens.

    Returns: pair of moves, for `to_front` and `from_front`, which keep the order among
        real tokens and among the others, and int32 (B,), how many are real.
    """
    batch, length = ops.shape(padding_mask)
    real = ops.cast(padding_mask, "int32")
    counts = ops.sum(real, axis=1)  # (B,)
    among_real = ops.cumsum(real, axis=1) - 1
    among_others = ops.cumsum(1 - real, axis=1) - 1 + ops.expand_dims(counts, 1)
    places = ops.where(padding_mask, among_real, among_others)
    first = ops.expand_dims(ops.arange(batch, dtype="int32") * length, 1)
    back = ops.reshape(places + first, (-1,))  # (B T,), among the tokens of all rows
    return (invert_order(back), back), counts


def to_front(x, moves):
    """(B, T, D) with each token at its place."""
    order, back = moves
    return ops.reshape(permute_rows(_flat(x), order, back), ops.shape(x))


def from_front(x, moves):
    """What `to_front` did, undone."""
    order, back = moves
    return ops.reshape(permute_rows(_flat(x), back, order), ops.shape(x))


def keep_first(x, counts):
    """(B, T, W) with zeros from token `counts[b]` of row b on; counts (B,) or None."""
    if counts is None:
        return x
    places = ops.arange(ops.shape(x)[1], dtype="int32")
    real = ops.less(ops.expand_dims(places, 0), ops.expand_dims(counts, 1))  # (B, T)
    return ops.where(ops.expand_dims(real, 2), x, ops.zeros((), x.dtype))


def _flat(x):
    return ops.reshape(x, (-1, x.shape[2]))
