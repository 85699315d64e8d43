"""Rows turned so that they begin with their first real token.

What is said of the first tokens then holds for rows that are padded on the left too.

Letters: B batch, T length, D width.
"""

from keras import ops

from keras_tfm.layers.masks import as_rank_2


def first_real(padding_mask):
    """How much padding each row has on the left, int32 (B,).

    Args:
        padding_mask: bool (B, T), True for real tokens.
    """
    seen = ops.cumsum(ops.cast(as_rank_2(padding_mask), "int32"), axis=1)
    return ops.sum(ops.cast(ops.equal(seen, 0), "int32"), axis=1)


def turn(x, start):
    """Each row from position `start` on, its beginning behind its end.

    Args:
        x: (B, T, D), or (B, T).
        start: int32 (B,), perhaps negative.

    Returns: like `x`.
    """
    batch, length = ops.shape(x)[:2]
    width = ops.shape(x)[2:]
    places = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    places = ops.mod(places + ops.expand_dims(start, 1), length)  # (B, T)
    rows = ops.expand_dims(ops.arange(batch, dtype="int32"), 1) * length
    places = ops.reshape(places + rows, (-1,))
    flat = ops.reshape(x, (batch * length, *width))
    return ops.reshape(ops.take(flat, places, axis=0), (batch, length, *width))


def leading_mask(count, length, padding_mask=None):
    """True for the first `count` positions from the first real token on.

    Args:
        count: int.
        length: int or int tensor T.
        padding_mask: bool (B, T), or None.

    Returns: bool (B or 1, T).
    """
    places = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
    if padding_mask is not None:
        places = places - ops.expand_dims(first_real(padding_mask), 1)
    after = ops.greater_equal(places, 0)
    return ops.logical_and(after, ops.less(places, count))
