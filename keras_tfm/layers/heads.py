"""Heads of attention: how many and how wide, split, joined, declared.

Letters: B batch, T query length, S key-value length, D width, N query heads, H size
of a head.
"""

import keras
from keras import ops


def check_heads(num_heads, num_key_value_heads=None):
    """Refuse numbers of heads that do not go together.

    Args:
        num_heads: int N.
        num_key_value_heads: int that should divide N, or None.
    """
    if num_heads < 1:
        raise ValueError(f"`num_heads` must be positive, got {num_heads}.")
    key_heads = num_heads if num_key_value_heads is None else num_key_value_heads
    if key_heads < 1 or num_heads % key_heads:
        raise ValueError(
            f"`num_key_value_heads` must divide `num_heads`, got {key_heads} and "
            f"{num_heads}."
        )


def head_size(num_heads, hidden_dim):
    """H = D / N.

    Args:
        num_heads: int N.
        hidden_dim: int D.

    Raises:
        ValueError: if N does not divide D.
    """
    if hidden_dim % num_heads:
        raise ValueError(
            f"`num_heads` must divide the width of `inputs`, got {num_heads} heads "
            f"and width {hidden_dim}; or give `key_dim`."
        )
    return hidden_dim // num_heads


def check_width(x, width, name):
    """Refuse a tensor of another width than the one that a layer was built for.

    Args:
        x: float (B, T, D).
        width: int that D should be.
        name: string, the argument.
    """
    if x.shape[-1] != width:
        raise ValueError(
            f"`{name}` must be {width} wide, as when the layer was built, got "
            f"{x.shape[-1]}."
        )


def split_heads(x, key_dim):
    """(B, T, N H) -> (B, T, N, H)."""
    batch, length, width = ops.shape(x)
    return ops.reshape(x, (batch, length, width // key_dim, key_dim))


def join_heads(x):
    """(B, T, N, H) -> (B, T, N H)."""
    batch, length, num_heads, key_dim = ops.shape(x)
    return ops.reshape(x, (batch, length, num_heads * key_dim))


def fold_groups(x, num_key_value_heads):
    """(B, N, T, H) -> (B, K, N / K T, H): query heads of one group in one matrix."""
    batch, num_heads, length, width = ops.shape(x)
    if num_heads == num_key_value_heads:
        return x
    rows = num_heads // num_key_value_heads * length
    return ops.reshape(x, (batch, num_key_value_heads, rows, width))


def attention_spec(layer, inputs, context=None, return_attention_scores=False):
    """What an attention layer with `num_heads` gives, as symbols.

    Args:
        layer: the layer.
        inputs: symbol (B, T, D).
        context: symbol (B, S, any width), or None.
        return_attention_scores: bool.

    Returns: symbol (B, T, D), or a pair with one (B, N, T, S).
    """
    outputs = keras.KerasTensor(inputs.shape, dtype=layer.compute_dtype)
    if not return_attention_scores:
        return outputs
    batch, length, _ = inputs.shape
    key_length = length if context is None else context.shape[1]
    shape = (batch, layer.num_heads, length, key_length)
    return outputs, keras.KerasTensor(shape, dtype=layer.compute_dtype)
