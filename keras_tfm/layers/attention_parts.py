"""What an attention layer has beside its projections: its arguments and small parts.

Letters: B batch, T length, D width of `inputs`, N query heads, H size of a head.
"""

import keras

from keras_tfm.layers.attention_projections import projections_of
from keras_tfm.layers.heads import check_heads
from keras_tfm.layers.parts import NORMS, make_dropout, make_norm
from keras_tfm.layers.policies import owner_dtype


def take_arguments(
    layer,
    num_heads,
    key_dim,
    use_bias,
    attention_dropout,
    kernel_initializer,
    num_key_value_heads=None,
):
    """Check and keep what every attention layer is told of its heads.

    Args:
        layer: an attention layer, in its constructor.
        num_heads: int N.
        key_dim: int H, or None.
        use_bias: bool.
        attention_dropout: float in [0, 1).
        kernel_initializer: of the projections.
        num_key_value_heads: int that divides N, or None.
    """
    check_heads(num_heads, num_key_value_heads)
    layer.num_heads, layer.key_dim = num_heads, key_dim
    layer.use_bias, layer.attention_dropout = use_bias, attention_dropout
    layer.kernel_initializer = keras.initializers.get(kernel_initializer)
    layer.supports_masking = True


def arguments_of(layer, parts=None):
    """The config of what `take_arguments` kept, and `dtype`.

    Args:
        layer: an attention layer.
        parts: list of its layers that may be quantized; the four projections unless
            given.
    """
    initializer = keras.initializers.serialize(layer.kernel_initializer)
    return {
        "dtype": owner_dtype(layer, projections_of(layer) if parts is None else parts),
        "num_heads": layer.num_heads,
        "key_dim": layer.key_dim,
        "use_bias": layer.use_bias,
        "attention_dropout": layer.attention_dropout,
        "kernel_initializer": initializer,
    }


def check_qk_norm(qk_norm):
    """Refuse an unknown norm of queries and keys."""
    if qk_norm not in (None, *NORMS):
        raise ValueError(f'`qk_norm` must be "rms" or "layer", got {qk_norm!r}.')


def check_window(window):
    """Refuse a window that does not hold a query's own position."""
    if window < 1:
        raise ValueError(f"`window` must be at least 1, got {window}.")


def make_head_parts(layer, inputs_shape, context_shape=None):
    """Give a layer with projections what acts on its heads: norms, rotary, dropout.

    Args:
        layer: with `key_shape`, and perhaps `qk_norm`, `rotary` and `relative_bias`.
        inputs_shape: (B, T, D).
        context_shape: (B, S, any width); `inputs_shape` unless given.
    """
    heads_shape = (*inputs_shape[:-1], layer.num_heads, layer.key_shape[1])
    layer.query_norm = layer.key_norm = None
    if getattr(layer, "qk_norm", None) is not None:
        norm = layer.qk_norm, 1e-6, heads_shape
        layer.query_norm = make_norm(layer, "query_norm", *norm)
        layer.key_norm = make_norm(layer, "key_norm", *norm)
    if getattr(layer, "rotary", None) is not None:
        layer.rotary.build(heads_shape)
    if getattr(layer, "relative_bias", None) is not None:
        layer.relative_bias.build(inputs_shape, context_shape or inputs_shape)
    layer.drop = make_dropout(layer, "attention_dropout", layer.attention_dropout)


def active_dropout(layer, training):
    """The dropout of the attention weights, None where there is none to do."""
    return layer.drop if training and layer.attention_dropout else None


def with_relative_bias(layer, query, key, attention_bias, query_offset=0):
    """What is added to the scores: a given bias and that of `relative_bias`.

    Args:
        layer: with `relative_bias`, perhaps None.
        query: float (B, N, T, H), for its length, as the next.
        key: float (B, K, S, H).
        attention_bias: float, broadcasts to (B, N, T, S), or None.
        query_offset: int or int32 scalar tensor.

    Returns: like `attention_bias`.
    """
    if layer.relative_bias is None:
        return attention_bias
    lengths = query[:, 0], key[:, 0]  # (B, T, H), (B, S, H)
    bias = layer.relative_bias(*lengths, query_offset=query_offset)
    return bias if attention_bias is None else attention_bias + bias
