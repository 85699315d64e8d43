"""A band of every d-th key: d bands without gaps, one for each remainder.

Letters: B batch, T length, S length of the keys, d dilation, N query heads, K key-value
heads, H size of a head.
"""

from keras import ops

from keras_tfm.layers.banded_attention import attend_band, real_keys
from keras_tfm.layers.dot_product_attention import attend
from keras_tfm.layers.length_blocks import count_blocks
from keras_tfm.layers.masks import as_rank_4, combine_masks, dilated_mask


def attend_dilated(
    query, key, value, band, dilation=1, padding_mask=None, past=0, **options
):
    """Attention to every `dilation`-th of the keys around each query.

    Args:
        query: float (B, N, T, H).
        key: float (B, K, S, H).
        value: float (B, K, S, H).
        band: `Band` in steps of `dilation`.
        dilation: int.
        padding_mask: bool (B, S), or None.
        past: int, keys before the first query, a multiple of `dilation`.
        **options: of `attend_band`.

    Returns: float (B, T, N, H).
    """
    if dilation == 1:
        given = {"padding_mask": padding_mask, "past": past}
        return attend_band(query, key, value, band, **given, **options)
    length, real = ops.shape(query)[2], real_keys(padding_mask, key)
    query, key, value, real = (
        _take_apart(x, dilation) for x in (query, key, value, real)
    )
    heads = attend_band(
        query,
        key,
        value,
        band,
        padding_mask=real[:, 0, :, 0],
        past=past // dilation,
        **options,
    )
    return _put_together(heads, dilation)[:, :length]


def attend_dilated_densely(
    query,
    key,
    value,
    span,
    dilation=1,
    query_offset=0,
    attention_mask=None,
    **options,
):
    """The same from all pairs.

    Args:
        query: float (B, N, T, H).
        key: float (B, K, S, H).
        value: float (B, K, S, H).
        span: int, a query sees keys fewer than `span` positions away.
        dilation: int.
        query_offset: int or int32 scalar tensor.
        attention_mask: bool or None.
        **options: of `attend`.

    Returns: what `attend` gives.
    """
    if dilation > 1:
        lengths = ops.shape(query)[2], ops.shape(key)[2]
        steps = dilated_mask(*lengths, dilation, query_offset)
        attention_mask = combine_masks(as_rank_4(attention_mask), steps)
    given = {"attention_mask": attention_mask, "query_offset": query_offset}
    return attend(query, key, value, window=span, **given, **options)


def _take_apart(x, dilation):
    """(B, N, T, H) -> (B d, N, T / d, H), with zeros at the end where T is shorter."""
    batch, heads, length, width = ops.shape(x)
    count = count_blocks(length, dilation)
    x = ops.pad(x, ((0, 0), (0, 0), (0, count * dilation - length), (0, 0)))
    x = ops.reshape(x, (batch * heads, count, dilation, width))
    x = ops.transpose(x, (0, 2, 1, 3))
    x = ops.reshape(x, (batch, heads, dilation, count * width))
    x = ops.transpose(x, (0, 2, 1, 3))
    return ops.reshape(x, (batch * dilation, heads, count, width))


def _put_together(x, dilation):
    """(B d, T / d, N, H) -> (B, T, N, H)."""
    batch, count, heads, width = ops.shape(x)
    x = ops.reshape(x, (batch // dilation, dilation, count, heads * width))
    x = ops.transpose(x, (0, 2, 1, 3))
    return ops.reshape(x, (batch // dilation, count * dilation, heads, width))
