"""Angular hashing: vectors that point the same way fall into one bucket.

Letters: B batch, N heads, T length, H size of a head.
"""

import math

import keras
import numpy as np
from keras import ops


def check_buckets(num_buckets):
    """Numbers of buckets as a tuple of factors, refused unless even, or one bucket.

    Args:
        num_buckets: int, or several whose product is the number of buckets.
    """
    factors = (num_buckets,) if isinstance(num_buckets, int) else tuple(num_buckets)
    if factors != (1,) and (not factors or any(f < 2 or f % 2 for f in factors)):
        raise ValueError(
            f"`num_buckets` must be 1, an even int or several, got {num_buckets}."
        )
    return factors


def draw_rotations(num_heads, key_dim, num_rounds, factors, seed):
    """Random directions, half as many as buckets: each has an opposite.

    Args:
        num_heads: int N.
        key_dim: int H.
        num_rounds: int.
        factors: tuple of ints.
        seed: int.

    Returns: array float32 (N, H, num_rounds times half the sum of the factors).
    """
    count = num_rounds * sum(factors) // 2
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_heads, key_dim, count)).astype("float32")


def buckets_of(x, rotations, num_rounds, factors):
    """The bucket of each vector in each round.

    Args:
        x: float (B, N, T, H).
        rotations: float (N, H, columns), or None for one bucket.
        num_rounds: int.
        factors: tuple of ints; with several, the bucket is made of several hashes.

    Returns: int32 (B, N, T, num_rounds), below the product of the factors.

    References: Andoni et al. 2015, arXiv:1509.02897.
    """
    batch, heads, length, _ = ops.shape(x)
    shape = batch, heads, length, num_rounds
    if rotations is None:
        return ops.zeros(shape, "int32")
    wide = keras.backend.result_type(x.dtype, "float32")
    x = ops.cast(ops.stop_gradient(x), wide)
    products = ops.matmul(x, ops.expand_dims(ops.cast(rotations, wide), 0))
    buckets, start, below = 0, 0, 1
    for factor in factors:
        half = factor // 2
        part = products[..., start : start + num_rounds * half]
        part = ops.reshape(part, (batch, heads, length * num_rounds, half))
        part = ops.concatenate([part, -part], axis=-1)
        found = ops.cast(ops.top_k(part, 1)[1], "int32")
        buckets = buckets + below * ops.reshape(found, shape)
        start, below = start + num_rounds * half, below * factor
    return buckets


def bucket_count(factors):
    """All buckets together."""
    return math.prod(factors)
