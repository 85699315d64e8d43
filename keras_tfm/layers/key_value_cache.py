"""Keys and values of the tokens read so far: all of them, or those of a window.

Letters: B batch, T new tokens, M cache length, K key-value heads, H size of a head.
"""

from keras import ops

from keras_tfm.layers.one_row import by_rows


def check_built(layer):
    """Refuse a cache of a layer that has no weights yet."""
    if not layer.built:
        raise ValueError(f"{layer.name!r} must be built before it has a cache.")


def empty_cache(shape, dtype):
    """A cache of nothing.

    Args:
        shape: (B, K, M, H); B may be an int tensor.
        dtype: string.

    Returns: dict with "key" and "value", zeros (B, K, M, H).
    """
    empty = ops.zeros(shape, dtype)
    empty = ops.reshape(empty, (-1, *shape[1:]))  # so that graphs know the sizes
    return {"key": empty, "value": empty}


def extend_cache(cache, key, value, cache_index, padding_mask=None, window=None):
    """Put new keys and values into a cache, and give attention what it needs.

    A cache of exactly `window` positions rolls: it holds the newest ones, in order,
    and never fills up. Any other cache holds position p at place p.

    Args:
        cache: dict from `empty_cache`.
        key: float (B, K, T, H).
        value: float (B, K, T, H).
        cache_index: int or int32 scalar tensor, how many positions came before. A
            write past M moves to the last free places, so what is known of the
            lengths is checked.
        padding_mask: bool (B, positions) or None, True for real tokens.
        window: int or None, a query sees keys fewer than `window` positions back.

    Returns: pair of the new cache, like `cache`, and a dict of attention's `key` and
        `value` (B, K, S, H), `padding_mask` bool (B or 1, S) or None, and
        `query_offset`, the place of the first new token among the keys.

    Raises:
        ValueError: if the tokens are known to go past M.
    """
    if window is not None and cache["key"].shape[2] == window:
        return _roll(cache, key, value, cache_index, padding_mask, window)
    length, max_length = key.shape[2], cache["key"].shape[2]
    start = cache_index if isinstance(cache_index, int) else 0
    if None not in (length, max_length) and start + length > max_length:
        raise ValueError(
            f"`inputs` has {length} tokens from {start} on, the cache holds "
            f"{max_length}."
        )

    def put(x, new):
        return ops.slice_update(x, (*[0] * (len(x.shape) - 2), cache_index, 0), new)

    cache = {
        "key": by_rows(put, cache["key"], key),
        "value": by_rows(put, cache["value"], value),
    }
    masks = {"padding_mask": padding_mask, "query_offset": cache_index}
    return cache, {**cache, **masks}


def _roll(cache, key, value, cache_index, padding_mask, window):
    """The newest positions stand in order before the new ones."""
    both = {
        "key": ops.concatenate([cache["key"], key], axis=2),  # (B, K, window + T, H)
        "value": ops.concatenate([cache["value"], value], axis=2),
    }
    places = ops.arange(ops.shape(both["key"])[2], dtype="int32") + cache_index
    # `places` are positions + window: below it, nothing has been written yet.
    real = ops.expand_dims(ops.greater_equal(places, window), 0)  # (1, window + T)
    if padding_mask is not None:
        positions = ops.maximum(places - window, 0)
        real = ops.logical_and(real, ops.take(padding_mask, positions, axis=1))
    shape = (-1, key.shape[1], window, key.shape[3])  # or graphs forget the window
    cache = {name: ops.reshape(x[:, :, -window:], shape) for name, x in both.items()}
    return cache, {**both, "padding_mask": real, "query_offset": window}
