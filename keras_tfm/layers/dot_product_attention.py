"""The function under all attention: softmax(q k / sqrt(H) + bias) v.

Letters: B batch, T query length, S key-value length, N heads, K key-value heads,
G = N / K query heads that share a key-value head, H size of a head.
"""

import math

import keras
from keras import ops

from keras_tfm.layers.blockwise_attention import attend_blockwise
from keras_tfm.layers.heads import fold_groups
from keras_tfm.layers.masks import attention_keep
from keras_tfm.layers.one_row import by_rows

LONG = 1024  # from here on blocks are no slower


def scaled_dot_product_attention(
    query,
    key,
    value,
    padding_mask=None,
    attention_mask=None,
    attention_bias=None,
    use_causal_mask=False,
    window=None,
    query_offset=0,
    logit_soft_cap=None,
    scale=None,
    dropout=None,
    return_attention_scores=False,
    implementation="auto",
):
    """Mix values by how well their keys match each query.

    Scores and softmax are float32 at least. A query that may attend to nothing
    gets zeros, with zero gradient.

    Args:
        query: float (B, T, N, H).
        key: float (B, S, K, H); K divides N, each key-value head serves N / K
            query heads.
        value: float (B, S, K, H), its H may differ.
        padding_mask: bool (B, S), True for real keys.
        attention_mask: bool (T, S), (B, T, S), (B, 1, T, S) or (B, N, T, S),
            True where a query may attend.
        attention_bias: float, broadcasts to (B, N, T, S), added to the scores.
        use_causal_mask: bool, a query sees its own position and those before.
        window: int or None, a query sees keys fewer than `window` positions away.
        query_offset: int or int32 scalar tensor, position of the first query among
            the keys.
        logit_soft_cap: float or None, cap * tanh(scores / cap).
        scale: float or None, factor on the scores; H ** -0.5 unless given.
        dropout: callable or None, applied to the attention weights; blocks need a
            `keras.layers.Dropout`.
        return_attention_scores: bool, also return the weights, which is always dense.
        implementation: "dense", "blockwise" (memory that grows with T + S, not with
            T times S; first gradients only), or "auto": blocks for known lengths of
            1024 and more.

    Returns: float (B, T, N, H); with `return_attention_scores` a pair, the second
        float (B, N, T, S), rows summing to one.

    Raises:
        ValueError: if K does not divide N, a mask has another rank, an unknown
            `implementation`, or a `dropout` that blocks cannot apply.

    Example:
        >>> x = keras.random.normal((2, 5, 3, 4))
        >>> out = keras_tfm.layers.scaled_dot_product_attention(x, x, x)
        >>> tuple(out.shape)
        (2, 5, 3, 4)

    References:
        Vaswani et al. 2017, sec. 3.2.1, arXiv:1706.03762; grouped heads: Ainslie et
        al. 2023, arXiv:2305.13245; soft cap: Gemma 2, arXiv:2408.00118.
    """
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query, key, value))
    return attend(
        query,
        key,
        value,
        padding_mask=padding_mask,
        attention_mask=attention_mask,
        attention_bias=attention_bias,
        use_causal_mask=use_causal_mask,
        window=window,
        query_offset=query_offset,
        logit_soft_cap=logit_soft_cap,
        scale=scale,
        dropout=dropout,
        return_attention_scores=return_attention_scores,
        implementation=implementation,
    )


def attend(
    query,
    key,
    value,
    padding_mask=None,
    attention_mask=None,
    attention_bias=None,
    use_causal_mask=False,
    window=None,
    query_offset=0,
    logit_soft_cap=None,
    scale=None,
    dropout=None,
    return_attention_scores=False,
    implementation="auto",
):
    """`scaled_dot_product_attention` of tensors with the heads before the length.

    Args:
        query: float (B, N, T, H).
        key: float (B, K, S, H).
        value: float (B, K, S, H).
        padding_mask: see `scaled_dot_product_attention`, as all that follow.
        attention_mask: bool or None.
        attention_bias: float or None.
        use_causal_mask: bool.
        window: int or None.
        query_offset: int or int32 scalar tensor.
        logit_soft_cap: float or None.
        scale: float or None.
        dropout: callable or None.
        return_attention_scores: bool.
        implementation: "auto", "dense" or "blockwise".

    Returns: float (B, T, N, H), or a pair with the weights (B, N, T, S).
    """
    num_heads, num_key_value_heads = query.shape[1], key.shape[1]
    if num_heads % num_key_value_heads:
        raise ValueError(
            f"The number of query heads, {num_heads}, must be a multiple of that of "
            f"key-value heads, {num_key_value_heads}."
        )
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    masks = {
        "padding_mask": padding_mask,
        "attention_mask": attention_mask,
        "use_causal_mask": use_causal_mask,
        "window": window,
        "query_offset": query_offset,
    }
    if _in_blocks(implementation, query, key, dropout) and not return_attention_scores:
        drawn = {}
        if dropout is not None and dropout.rate > 0:
            seed = dropout.seed_generator.next()
            drawn = {"dropout_rate": dropout.rate, "dropout_seed": seed}
        outputs = attend_blockwise(
            query,
            key,
            value,
            attention_bias=attention_bias,
            logit_soft_cap=logit_soft_cap,
            scale=scale,
            **masks,
            **drawn,
        )
        return ops.transpose(outputs, (0, 2, 1, 3))

    scores = _match(query * ops.cast(scale, query.dtype), key)  # (B, N, T, S)
    if logit_soft_cap is not None:
        scores = logit_soft_cap * ops.tanh(scores / logit_soft_cap)
    if attention_bias is not None:
        scores = scores + ops.cast(attention_bias, scores.dtype)
    keep = attention_keep((ops.shape(query)[2], ops.shape(key)[2]), **masks)
    if keep is not None:
        scores = ops.where(keep, scores, -1e30)
    # Keras warns of a softmax over one key, which is one.
    single = scores.shape[-1] == 1
    weights = ops.ones_like(scores) if single else ops.softmax(scores, axis=-1)
    if keep is not None:
        weights = ops.where(keep, weights, 0.0)  # a row without a key stays zero
    weights = ops.cast(weights, value.dtype)
    dropped = weights if dropout is None else dropout(weights)

    outputs = _mix(dropped, value)  # (B, T, N, H)
    return (outputs, weights) if return_attention_scores else outputs


def _in_blocks(implementation, query, key, dropout):
    """Whether to go block by block."""
    if implementation not in ("auto", "dense", "blockwise"):
        raise ValueError(
            '`implementation` must be "auto", "dense" or "blockwise", got '
            f"{implementation!r}."
        )
    drawable = dropout is None or isinstance(dropout, keras.layers.Dropout)
    if implementation == "blockwise" and not drawable:
        raise ValueError(
            "`dropout` must be a keras.layers.Dropout for a blockwise attention, got "
            f"{dropout}."
        )
    if implementation != "auto":
        return implementation == "blockwise"
    lengths = query.shape[2], key.shape[2]
    symbolic = isinstance(query, keras.KerasTensor)
    return drawable and not symbolic and None not in lengths and min(lengths) >= LONG


def _match(query, key):
    """q k for every pair, float32 (B, N, T, S), without repeating key heads."""
    batch, num_heads, length, _ = ops.shape(query)
    query = fold_groups(query, key.shape[1])
    scores = by_rows(_products, query, key)  # (B, K, G T, S)
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    if num_heads == key.shape[1]:
        return scores
    return ops.reshape(scores, (batch, num_heads, length, ops.shape(key)[2]))


def _products(query, key):
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def _mix(weights, value):
    """Values weighted for every query, (B, T, N, H)."""
    batch, num_heads, length, _ = ops.shape(weights)
    weights = fold_groups(weights, value.shape[1])
    outputs = by_rows(ops.matmul, weights, value)  # (B, K, G T, H)
    if num_heads != value.shape[1]:
        outputs = ops.reshape(outputs, (batch, num_heads, length, value.shape[3]))
    return ops.transpose(outputs, (0, 2, 1, 3))
