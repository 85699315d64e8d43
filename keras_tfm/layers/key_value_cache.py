"""Keys and values of the tokens read so far, kept in place for `max_length` tokens.

Letters: B batch, T new tokens, M cache length, K key-value heads, H size of a head.
"""

from keras import ops


def check_built(layer):
    """Refuse a cache of a layer that has no weights yet."""
    if not layer.built:
        raise ValueError(f"{layer.name!r} must be built before it has a cache.")


def empty_cache(shape, dtype):
    """A cache of nothing.

    Args:
        shape: (B, M, K, H); B may be an int tensor.
        dtype: string.

    Returns: dict with "key" and "value", zeros (B, M, K, H).
    """
    empty = ops.zeros(shape, dtype)
    return {"key": empty, "value": empty}


def extend_cache(cache, key, value, cache_index):
    """The cache with new keys and values from `cache_index` on.

    Args:
        cache: dict from `empty_cache`.
        key: float (B, T, K, H).
        value: float (B, T, K, H).
        cache_index: int or int32 scalar tensor. A write past M moves to the last
            free places, so what is known of the lengths is checked.

    Returns: dict like `cache`.

    Raises:
        ValueError: if the tokens are known to go past M.
    """
    length, max_length = key.shape[1], cache["key"].shape[1]
    start = cache_index if isinstance(cache_index, int) else 0
    if None not in (length, max_length) and start + length > max_length:
        raise ValueError(
            f"`inputs` has {length} tokens from {start} on, the cache holds "
            f"{max_length}."
        )
    start = (0, cache_index, 0, 0)
    return {
        "key": ops.slice_update(cache["key"], start, key),
        "value": ops.slice_update(cache["value"], start, value),
    }
