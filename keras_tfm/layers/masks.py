"""Boolean masks. True always means: keep, may attend.

Letters: B batch, T query length, S key-value length, N heads.
"""

import keras
from keras import ops


def causal_mask(query_length, key_length=None, query_offset=0):
    """True where a query may see a key: at its own position or before it.

    Args:
        query_length: int or int tensor, T.
        key_length: int or int tensor, S; T unless given.
        query_offset: int or int tensor, position of the first query.

    Returns: bool (T, S).

    Example:
        >>> keras.ops.convert_to_numpy(keras_tfm.layers.causal_mask(2, 3, 1)).tolist()
        [[True, True, False], [True, True, True]]
    """
    distance = _distance(query_length, key_length, query_offset)
    return ops.greater_equal(distance, 0)


def sliding_window_mask(
    query_length, key_length=None, window=1, query_offset=0, causal=True
):
    """True where a key is fewer than `window` positions away from the query.

    The query's own position counts, so `window=1` sees itself only.

    Args:
        query_length: int or int tensor, T.
        key_length: int or int tensor, S; T unless given.
        window: int, how many keys a causal query sees, its own included.
        query_offset: int or int tensor, position of the first query.
        causal: bool; if False the window reaches as far to the right.

    Returns: bool (T, S).

    References: Beltagy et al. 2020, arXiv:2004.05150.
    """
    if window < 1:
        raise ValueError(f"`window` must be at least 1, got {window}.")
    distance = _distance(query_length, key_length, query_offset)
    near = ops.less(ops.abs(distance), window)
    return ops.logical_and(near, ops.greater_equal(distance, 0)) if causal else near


def dilated_mask(query_length, key_length, dilation, query_offset=0):
    """True where a key is a multiple of `dilation` positions away, bool (T, S).

    Args:
        query_length: int or int tensor, T.
        key_length: int or int tensor, S.
        dilation: int.
        query_offset: int or int tensor, position of the first query.
    """
    distance = _distance(query_length, key_length, query_offset)
    return ops.equal(ops.mod(distance, dilation), 0)


def _distance(query_length, key_length, query_offset):
    """Query position minus key position, int32 (T, S)."""
    key_length = query_length if key_length is None else key_length
    queries = ops.expand_dims(ops.arange(query_length, dtype="int32"), 1)
    keys = ops.expand_dims(ops.arange(key_length, dtype="int32"), 0)
    return queries + query_offset - keys


def padding_mask(token_ids, pad_id=0):
    """True where a token is real.

    Args:
        token_ids: int (B, T).
        pad_id: int, the id of padding.

    Returns: bool (B, T).
    """
    return ops.not_equal(token_ids, pad_id)


def combine_masks(*masks):
    """Logical AND of the masks that are not None; None if all are.

    Args:
        *masks: bool tensors that broadcast together, or None.

    Returns: a bool tensor or None.
    """
    combined = None
    for mask in masks:
        if mask is not None:
            mask = as_bool(mask, "mask")
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def as_bool(mask, name):
    """`mask` as booleans; 0 and 1 of any type are taken, other numbers refused.

    A float mask may be meant additively (0 and -inf), so its values are looked
    at; where they are not known yet it is refused.
    """
    mask = ops.convert_to_tensor(mask)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype == "bool":
        return mask
    if "float" in dtype:
        _check_zero_one(mask, name)
    return ops.cast(mask, "bool")


def _check_zero_one(mask, name):
    hint = (
        f'`{name}` must be boolean: cast it with `ops.cast({name}, "bool")`, or pass '
        "values to be added to the scores as `attention_bias`; got"
    )
    try:
        values = ops.convert_to_numpy(mask)
    except Exception:
        raise ValueError(f"{hint} {mask.dtype} whose values are unknown.") from None
    if not ((values == 0) | (values == 1)).all():
        raise ValueError(f"{hint} {mask.dtype} with values other than 0 and 1.")


def attention_keep(
    queries_and_keys,
    padding_mask=None,
    attention_mask=None,
    use_causal_mask=False,
    window=None,
    query_offset=0,
):
    """All masks of one attention in a single tensor.

    Args:
        queries_and_keys: pair (T, S) of ints or int tensors.
        padding_mask: bool (B, S), real keys.
        attention_mask: bool (T, S), (B, T, S), (B, 1, T, S) or (B, N, T, S).
        use_causal_mask: bool.
        window: int or None, see `sliding_window_mask`.
        query_offset: int or int tensor, position of the first query.

    Returns: bool, broadcasts to (B, N, T, S); None if nothing is masked.
    """
    keep = None
    if padding_mask is not None:
        keep = ops.expand_dims(as_rank_2(padding_mask), (1, 2))  # (B, 1, 1, S)
    keep = combine_masks(keep, as_rank_4(attention_mask))
    if window is not None:
        near = sliding_window_mask(
            *queries_and_keys, window, query_offset, causal=use_causal_mask
        )
        return combine_masks(keep, ops.expand_dims(near, (0, 1)))
    if use_causal_mask:
        past = causal_mask(*queries_and_keys, query_offset)
        return combine_masks(keep, ops.expand_dims(past, (0, 1)))
    return keep


def as_rank_2(mask):
    """A `padding_mask` as bool, refused if it has another shape."""
    mask = as_bool(mask, "padding_mask")
    if len(mask.shape) != 2:
        raise ValueError(
            f"`padding_mask` must have shape (B, S), got {tuple(mask.shape)}."
        )
    return mask


def as_rank_4(mask):
    """An `attention_mask` with all four axes, None for None."""
    if mask is None:
        return None
    mask = as_bool(mask, "attention_mask")
    rank = len(mask.shape)
    if rank == 2:
        return ops.expand_dims(mask, (0, 1))
    if rank == 3:
        return ops.expand_dims(mask, 1)
    if rank == 4:
        return mask
    raise ValueError(
        "`attention_mask` must have shape (T, S), (B, T, S), (B, 1, T, S) or "
        f"(B, N, T, S), got {tuple(mask.shape)}."
    )
