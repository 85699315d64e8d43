"""The formulas in NumPy, float64, loop by loop: what the layers are compared with.

Letters: B batch, T query length, S key-value length, N heads, K key-value heads, H
size of a head, D width.
"""

import math

import numpy as np

from tests.laws import to_numpy


def softmax(x):
    weights = np.exp(x - np.max(x))
    return weights / np.sum(weights)


def attention(query, key, value, keep=None, bias=None, scale=None, cap=None):
    """Attention query by query.

    Args:
        query: (B, T, N, H).
        key: (B, S, K, H).
        value: (B, S, K, H).
        keep: bool, broadcasts to (B, N, T, S), or None.
        bias: broadcasts to (B, N, T, S), or None.
        scale: float, or None for H ** -0.5.
        cap: float or None.

    Returns: outputs (B, T, N, H) and weights (B, N, T, S).
    """
    batch, length, num_heads, key_dim = query.shape
    shape = (batch, num_heads, length, key.shape[1])
    keep = np.broadcast_to(True if keep is None else keep, shape)
    bias = np.broadcast_to(0.0 if bias is None else bias, shape)
    scale = key_dim**-0.5 if scale is None else scale
    outputs = np.zeros((batch, length, num_heads, value.shape[-1]))
    weights = np.zeros(shape)
    for b, n, t in np.ndindex(batch, num_heads, length):
        seen = np.flatnonzero(keep[b, n, t])
        if not len(seen):
            continue
        head = n // (num_heads // key.shape[2])  # neighbours share a key head
        scores = key[b, seen, head].astype("float64") @ query[b, t, n] * scale
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        weights[b, n, t, seen] = softmax(scores + bias[b, n, t, seen])
        outputs[b, t, n] = weights[b, n, t, seen] @ value[b, seen, head]
    return outputs, weights


def dense(layer, x):
    """A `Dense` layer's product, from its weights."""
    kernel, *bias = to_numpy(layer.weights)
    return x @ kernel.astype("float64") + (bias[0] if bias else 0.0)


def layer_norm(x, gamma=1.0, beta=0.0, epsilon=1e-5):
    x = np.asarray(x, "float64")
    centered = x - x.mean(-1, keepdims=True)
    return gamma * centered / np.sqrt(x.var(-1, keepdims=True) + epsilon) + beta


def rms_norm(x, scale=1.0, epsilon=1e-5):
    x = np.asarray(x, "float64")
    return scale * x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)


def norm(layer, x):
    """A Keras norm layer's result, from its weights."""
    formula = layer_norm if len(layer.weights) == 2 else rms_norm
    return formula(x, *to_numpy(layer.weights), epsilon=layer.epsilon)


def gelu(x):
    """Exact: x times the normal distribution function."""
    return x * 0.5 * (1 + np.vectorize(math.erf)(np.asarray(x, "float64") / 2**0.5))


def gelu_tanh(x):
    x = np.asarray(x, "float64")
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def causal(length, key_length=None, offset=0):
    """Bool (T, S): keys at a query's own position and before it."""
    key_length = length if key_length is None else key_length
    return np.arange(key_length) <= np.arange(length).reshape(-1, 1) + offset


def multi_head_attention(layer, x, context=None, keep=None, bias=None):
    """A `MultiHeadAttention` without rotary, from its weights.

    Returns: outputs (B, T, D) and weights (B, N, T, S).
    """
    context = x if context is None else context
    key_heads = layer.num_key_value_heads or layer.num_heads

    def heads(projection, x, count):
        return dense(projection, x).reshape(*x.shape[:2], count, -1)

    query = heads(layer.query, x, layer.num_heads)
    key = heads(layer.key, context, key_heads)
    value = heads(layer.value, context, key_heads)
    if layer.query_norm is not None:
        query, key = norm(layer.query_norm, query), norm(layer.key_norm, key)
    outputs, weights = attention(
        query, key, value, keep, bias, cap=layer.logit_soft_cap
    )
    outputs = outputs.reshape(*x.shape[:2], -1)
    return dense(layer.output_projection, outputs), weights
