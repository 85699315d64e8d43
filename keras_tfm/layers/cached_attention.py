"""What attention with keys and values reads when it decodes.

Letters: B batch, T new tokens, S key-value length, M cache length, D width, N query
heads, K key-value heads, H size of a head.
"""

from keras_tfm.layers.attention_projections import (
    cached_positions,
    project_keys_values,
    project_queries,
)
from keras_tfm.layers.key_value_cache import check_built, empty_cache, extend_cache


def make_cache(layer, batch_size, max_length, context=None, window=None):
    """Empty keys and values for M positions, or those of `context`.

    Args:
        layer: an attention layer with projections.
        batch_size: int or int tensor B.
        max_length: int M.
        context: float (B, S, width) or None.
        window: int or None, no more positions than this are kept.

    Returns: dict of two tensors (B, K, M, H), or (B, K, S, H) of the context.
    """
    check_built(layer)
    if context is not None:
        key, value = project_keys_values(layer, context, None)
        return {"context_key": key, "context_value": value}
    heads, key_dim = layer.key_shape
    length = min(max_length, window or max_length)
    return empty_cache((batch_size, heads, length, key_dim), layer.compute_dtype)


def read_cache(
    layer,
    inputs,
    cache,
    cache_index,
    padding_mask=None,
    context_padding_mask=None,
    positions=None,
    window=None,
):
    """Queries of new tokens, the keys and values that they may see, and the new cache.

    Args:
        layer: an attention layer with projections.
        inputs: float (B, T, D), the tokens at cache_index, cache_index + 1 ...
        cache: from `make_cache` or the last call.
        cache_index: int32 scalar tensor, how many positions are filled.
        padding_mask: bool (B, M), True for real tokens; self-attention only.
        context_padding_mask: bool (B, S); cross-attention only.
        positions: int (T,) or (B, T), for `rotary`; cache_index, ... unless given.
        window: int or None, that of `make_cache`.

    Returns: (query, key, value), a dict with `padding_mask`, `query_offset` and
        `use_causal_mask` for `attend`, and the cache with the new tokens.
    """
    check_built(layer)
    positions = cached_positions(layer, inputs, cache_index, positions)
    query = project_queries(layer, inputs, positions)
    if "context_key" in cache:
        options = {"padding_mask": context_padding_mask, "query_offset": cache_index}
        return (query, cache["context_key"], cache["context_value"]), options, cache
    pair = project_keys_values(layer, inputs, positions)
    cache, options = extend_cache(cache, *pair, cache_index, padding_mask, window)
    pair = options.pop("key"), options.pop("value")
    return (query, *pair), {"use_causal_mask": True, **options}, cache
