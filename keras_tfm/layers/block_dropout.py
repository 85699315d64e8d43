"""Dropout of attention weights that can be drawn twice: by seed and place.

Letters: B batch, N heads, t and s lengths of a block of queries and of keys.
"""

import numpy as np
from keras import ops


def drop_block(x, rate, seed, place, row_count):
    """Some entries of a block zero, always the same ones, the others larger.

    Args:
        x: float (B, N, t, s).
        rate: float in [0, 1); 0 leaves `x` as it is.
        seed: int tensor of two numbers.
        place: pair of int32 scalars, the block's first query and first key.
        row_count: int or int32 scalar, queries of all blocks.

    Returns: like `x`.
    """
    if not rate:
        return x
    batch, heads, length, key_length = ops.shape(x)
    rows = ops.arange(batch * heads, dtype="int32")
    rows = ops.reshape(rows, (batch, heads, 1, 1)) * row_count
    rows = rows + place[0] + ops.reshape(ops.arange(length), (length, 1))
    columns = place[1] + ops.arange(key_length, dtype="int32")
    seed = ops.cast(seed, "uint32")
    noise = _scramble(ops.cast(rows, "uint32") + seed[0])
    noise = _scramble(noise + ops.cast(columns, "uint32") + seed[1])
    high = ops.right_shift(noise, 8)  # dialect: in training only
    uniform = ops.cast(high, "float32") * 2.0**-24
    kept = ops.cast(uniform >= rate, x.dtype)
    return x * kept / (1.0 - rate)


def _scramble(x):
    """A hash of uint32 numbers: each bit of the input changes half of the output."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        shifted = ops.right_shift(x, shift)  # dialect: in training only
        x = ops.bitwise_xor(x, shifted)  # dialect: in training only
        x = x * np.uint32(factor)
    shifted = ops.right_shift(x, 16)  # dialect: in training only
    return ops.bitwise_xor(x, shifted)  # dialect: in training only
