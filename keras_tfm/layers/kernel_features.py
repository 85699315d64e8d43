"""Feature maps of linear attention: a kernel of two vectors as a product of features.

A map gives features and the logarithm of a factor that they share, so that features
never overflow nor vanish, however long the vectors are.

Letters: B batch, N heads, T length, H size of a head, M features.
"""

import math

import keras
import numpy as np
from keras import ops

KERNELS = ("favor", "elu")
LOW = -1e30  # below all: the largest of nothing
EPSILON = 1e-6  # added to the features of queries: no sum of weights is zero


def default_num_features(key_dim):
    """H log H, as many as keep the error small."""
    return max(1, int(key_dim * math.log(key_dim)))


def draw_features(num_features, key_dim, seed):
    """Random directions, orthogonal in groups of H, as long as normal vectors.

    Args:
        num_features: int M.
        key_dim: int H.
        seed: int.

    Returns: array float32 (M, H).
    """
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(0, num_features, key_dim):
        directions, upper = np.linalg.qr(rng.normal(size=(key_dim, key_dim)))
        rows.append((directions * np.sign(np.diagonal(upper))).T)
    lengths = np.linalg.norm(rng.normal(size=(num_features, key_dim)), axis=1)
    rows = np.concatenate(rows)[:num_features]
    return (lengths.reshape(-1, 1) * rows).astype("float32")


def favor_features(x, projection):
    """Positive features of exp(q k / sqrt(H)), the softmax's kernel.

    Args:
        x: float (B, N, T, H), queries or keys.
        projection: float (M, H), from `draw_features`.

    Returns: features in [0, 1], at least float32, (B, N, T, M), and log factors
        (B, N, T, 1).

    References: Choromanski et al. 2020, lemma 1, arXiv:2009.14794.
    """
    x = _wide(x) * x.shape[-1] ** -0.25
    products = ops.matmul(x, ops.transpose(ops.cast(projection, x.dtype)))
    top = ops.stop_gradient(ops.max(products, axis=-1, keepdims=True, initial=LOW))
    factors = top - 0.5 * ops.sum(ops.square(x), axis=-1, keepdims=True)
    return ops.exp(products - top), factors


def elu_features(x):
    """elu(x) + 1.

    Args:
        x: float (B, N, T, H), queries or keys.

    Returns: features, at least float32, (B, N, T, H), and log factors (B, N, T, 1),
        which are zero unless all of x is negative.

    References: Katharopoulos et al. 2020, arXiv:2006.16236.
    """
    x = _wide(x)
    top = ops.minimum(ops.max(x, axis=-1, keepdims=True, initial=LOW), 0)
    top = ops.stop_gradient(top)
    return ops.relu(x) + ops.exp(ops.minimum(x, 0) - top), top


def _wide(x):
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
