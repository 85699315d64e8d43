"""Attention by sums over features: time and memory grow with T, the state does not.

Query i looks at key j with weight features(i) . features(j) exp(factor(j)). So all
that a query needs of the keys is one matrix (M, H + 1): features times values, with a
last column of ones for the sum of the weights. Exponents are taken relative to the
largest factor that the query may see, which cancels: nothing overflows, and neither
the future nor padding is felt.

Letters: B batch, N heads, R = B N, T query length, S key length, M features, H size of
a head, C length of a chunk, n number of chunks.
"""

from keras import ops

from keras_tfm.layers.length_blocks import cut_length
from keras_tfm.layers.masks import as_rank_2, causal_mask

CHUNK = 128
LOW = -1e30


def empty_sums(batch_size, num_heads, num_features, key_dim, dtype="float32"):
    """The state before any key was seen.

    Args:
        batch_size: int or int tensor B.
        num_heads: int N.
        num_features: int M.
        key_dim: int H.
        dtype: string.

    Returns: dict of "sums" (B, N, M, H + 1) and "factor" (B, N, 1, 1), the largest
        log factor so far.
    """
    sums = (num_heads, num_features, key_dim + 1)
    zeros = ops.reshape(ops.zeros((batch_size, *sums), dtype), (-1, *sums))
    one = (num_heads, 1, 1)
    low = ops.reshape(ops.full((batch_size, *one), LOW, dtype), (-1, *one))
    return {"sums": zeros, "factor": low}


def mix_by_features(query, key, factors, value, padding_mask=None):
    """Attention of every query to every key.

    Args:
        query: float (B, N, T, M), features.
        key: float (B, N, S, M), features.
        factors: float (B, N, S, 1), log factors of the keys.
        value: float (B, N, S, H).
        padding_mask: bool (B, S) or None, True for real keys.

    Returns: float (B, N, T, H).
    """
    factors, value = _only_real(factors, value, padding_mask)
    top = _top(factors)
    sums = ops.matmul(_transposed(key), value * ops.exp(factors - top))
    return _divided(ops.matmul(query, sums))


def mix_by_features_causally(query, key, factors, value, padding_mask=None, state=None):
    """Attention of every query to its own key, those before and those of `state`.

    Args:
        query: float (B, N, T, M), features.
        key: float (B, N, T, M), features.
        factors: float (B, N, T, 1), log factors of the keys.
        value: float (B, N, T, H).
        padding_mask: bool (B, T) or None, True for real keys.
        state: dict from `empty_sums` or from the last call, or None.

    Returns: pair of float (B, N, T, H) and the state after the last key.
    """
    batch, heads, length, _ = ops.shape(query)
    factors, value = _only_real(factors, value, padding_mask)
    size, count, room = cut_length(length, CHUNK)
    query, key, value = (_chunks(x, size, count, room) for x in (query, key, value))
    factors = _chunks(factors, size, count, room, LOW)
    top = _top(factors)  # (R, n, 1, 1)
    if state is None:
        state = empty_sums(
            batch, heads, key.shape[-1], value.shape[-1] - 1, value.dtype
        )
    sums = ops.matmul(_transposed(key), value * ops.exp(factors - top))
    sums, top = _running(state, sums, top)

    before, best = sums[:, :-1], top[:, :-1]  # of chunks before: (R, n, M, H + 1)
    seen = causal_mask(size)
    across = _transposed(factors)  # (R, n, 1, C)
    newest = _top(ops.where(seen, across, LOW), axis=-1)
    newest = ops.maximum(newest, best)  # (R, n, C, 1), largest factor a query sees
    weights = ops.exp(ops.where(seen, across - newest, LOW))
    weights = ops.matmul(query, _transposed(key)) * weights  # (R, n, C, C)
    mixed = ops.matmul(query * ops.exp(best - newest), before)
    mixed = _divided(mixed + ops.matmul(weights, value))  # (R, n, C, H)
    mixed = ops.reshape(mixed, (batch, heads, count * size, mixed.shape[-1]))
    state = {
        "sums": ops.reshape(sums[:, -1:], ops.shape(state["sums"])),
        "factor": ops.reshape(top[:, -1:], ops.shape(state["factor"])),
    }
    return mixed[:, :, :length], state


def weights_by_features(query, key, factors, padding_mask=None, causal=False):
    """The weights that the two functions above never hold, to look at.

    Args:
        query: float (B, N, T, M), features.
        key: float (B, N, S, M), features.
        factors: float (B, N, S, 1), log factors of the keys.
        padding_mask: bool (B, S) or None, True for real keys.
        causal: bool.

    Returns: float (B, N, T, S), rows summing to one.
    """
    keep = None
    if padding_mask is not None:
        keep = ops.expand_dims(as_rank_2(padding_mask), (1, 2))
    if causal:
        past = ops.expand_dims(
            causal_mask(ops.shape(query)[2], ops.shape(key)[2]), (0, 1)
        )
        keep = past if keep is None else ops.logical_and(keep, past)
    across = _transposed(factors)
    across = across if keep is None else ops.where(keep, across, LOW)
    weights = ops.exp(across - _top(across, axis=-1))
    weights = ops.matmul(query, _transposed(key)) * weights
    weights = weights if keep is None else ops.where(keep, weights, 0.0)
    total = ops.sum(weights, axis=-1, keepdims=True)
    return weights / ops.where(total > 0, total, 1.0)


def _only_real(factors, value, padding_mask):
    """Factors and values with ones beside them, of padding LOW and zero."""
    value = ops.cast(value, factors.dtype)
    value = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)
    if padding_mask is None:
        return factors, value
    keep = ops.expand_dims(as_rank_2(padding_mask), (1, 3))  # (B, 1, S, 1)
    return ops.where(keep, factors, LOW), ops.where(keep, value, 0.0)


def _running(state, sums, top):
    """Sums over the state and all chunks up to each, and their largest factors.

    Returns: (R, n + 1, M, H + 1) and (R, n + 1, 1, 1); the first is the state's.
    """
    wide = sums.shape[2], sums.shape[3]
    first = ops.reshape(state["sums"], (-1, 1, *wide))
    sums = ops.concatenate([first, sums], axis=1)
    top = ops.concatenate([ops.reshape(state["factor"], (-1, 1, 1, 1)), top], axis=1)
    count = ops.shape(top)[1]
    across = ops.reshape(top, (-1, 1, count))
    seen = causal_mask(count)
    across = ops.where(seen, across, LOW)
    best = ops.max(across, axis=-1, keepdims=True, initial=LOW)  # (R, n + 1, 1)
    shares = ops.where(seen, ops.exp(across - best), 0.0)
    sums = ops.matmul(shares, ops.reshape(sums, (-1, count, wide[0] * wide[1])))
    return ops.reshape(sums, (-1, count, *wide)), ops.expand_dims(best, 3)


def _divided(mixed):
    """Mixed values divided by the sum of the weights; zero without any key."""
    total = mixed[..., -1:]
    return mixed[..., :-1] / ops.where(total > 0, total, 1.0)


def _top(factors, axis=2):
    """The largest factor, which cancels and so has no gradient."""
    return ops.stop_gradient(ops.max(factors, axis=axis, keepdims=True, initial=LOW))


def _transposed(x):
    return ops.transpose(x, (0, 1, 3, 2))


def _chunks(x, size, count, room, fill=0.0):
    """(B, N, T, width) -> (R, n, C, width)."""
    x = ops.pad(x, ((0, 0), (0, 0), (0, room), (0, 0)), constant_values=fill)
    return ops.reshape(x, (-1, count, size, x.shape[-1]))
