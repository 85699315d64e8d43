"""The four projections of an attention layer: made, applied, and their result joined.

Letters: B batch, T length, D width of `inputs`, N query heads, K key-value heads, H
size of a head.
"""

from keras import ops

from keras_tfm.layers.heads import check_width, head_size, join_heads, split_heads
from keras_tfm.layers.parts import make_dense


def make_projections(
    layer,
    inputs_shape,
    context_shape=None,
    num_key_value_heads=None,
    use_output_bias=None,
):
    """Give an attention layer its projections, built, and `key_shape`, (K, H).

    They are `query`, `key`, `value` and `output_projection`.

    Args:
        layer: has `num_heads`, `key_dim` and what `make_dense` asks for.
        inputs_shape: (B, T, D).
        context_shape: (B, S, any width); `inputs_shape` unless given.
        num_key_value_heads: int K; N unless given.
        use_output_bias: bool, the layer's `use_bias` unless given.
    """
    *outer, hidden_dim = inputs_shape
    context_shape = inputs_shape if context_shape is None else context_shape
    key_dim = layer.key_dim or head_size(layer.num_heads, hidden_dim)
    layer.key_shape = num_key_value_heads or layer.num_heads, key_dim
    width, key_width = layer.num_heads * key_dim, layer.key_shape[0] * key_dim
    layer.query = make_dense(layer, "query", width, inputs_shape)
    layer.key = make_dense(layer, "key", key_width, context_shape)
    layer.value = make_dense(layer, "value", key_width, context_shape)
    layer.output_projection = make_dense(
        layer, "output", hidden_dim, (*outer, width), use_output_bias
    )


def projections_of(layer):
    """The four projections of a layer, an empty list before it is built."""
    if not layer.built:
        return []
    return [layer.query, layer.key, layer.value, layer.output_projection]


def project_queries(layer, inputs, positions=None):
    """Queries, normed and rotated if the layer has `query_norm` and `rotary`.

    Args:
        layer: see `make_projections`.
        inputs: float (B, T, D).
        positions: int (T,) or (B, T), or None.

    Returns: float (B, N, T, H).

    Raises:
        ValueError: `positions` without `rotary`, or inputs of another width.
    """
    if positions is not None and getattr(layer, "rotary", None) is None:
        raise ValueError("`positions` needs an attention with `rotary`.")
    return project_heads(layer, "query", inputs, positions=positions)


def project_keys_values(layer, context, positions=None):
    """Keys, normed and rotated likewise, and values.

    Args:
        layer: see `make_projections`.
        context: float (B, S, width).
        positions: int (S,) or (B, S), or None.

    Returns: pair of float (B, K, S, H).
    """
    key = project_heads(layer, "key", context, "context", positions)
    return key, project_heads(layer, "value", context, "context")


def cached_positions(layer, inputs, cache_index, positions=None):
    """Positions of new tokens, for a `rotary`: those given, or the cache's next ones.

    Args:
        layer: see `make_projections`.
        inputs: float (B, T, D), the new tokens.
        cache_index: int32 scalar tensor, how many tokens came before.
        positions: int (T,) or (B, T), or None.

    Returns: int tensor, or None without `rotary`.
    """
    if positions is not None or getattr(layer, "rotary", None) is None:
        return positions
    return ops.arange(ops.shape(inputs)[1], dtype="int32") + cache_index


def project_output(layer, heads):
    """What the heads found, back in the width of the stream.

    Args:
        layer: see `make_projections`.
        heads: float (B, T, N, H).

    Returns: float (B, T, D).
    """
    return layer.output_projection(join_heads(heads))


def project_heads(layer, name, x, argument="inputs", positions=None):
    """One projection of `x`, by heads.

    Args:
        layer: see `make_projections`.
        name: string, of the projection.
        x: float (B, T, width).
        argument: string, what `x` is called in messages.
        positions: int (T,) or (B, T), or None.

    Returns: float (B, N, T, H).
    """
    projection = getattr(layer, name)
    check_width(x, projection.input_spec.axes[-1], argument)
    x = projection(ops.cast(x, layer.compute_dtype))
    x = split_heads(x, layer.key_shape[1])  # (B, T, N, H)
    norm = getattr(layer, f"{name}_norm", None)
    x = x if norm is None else norm(x)
    if name != "value" and getattr(layer, "rotary", None) is not None:
        x = layer.rotary(x, positions)
    return ops.transpose(x, (0, 2, 1, 3))
