"""What the models do alike: complete a dict of inputs, pick values, take a policy."""

import contextlib

import keras
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.policies import owner_dtype, part_policy


def complete(inputs, optional, max_length=None):
    """A dict of inputs with the missing keys filled in.

    Args:
        inputs: int (B, T) token ids, or a dict with "token_ids" and any of
            `optional`.
        optional: dict from name to a function that makes the default from the ids.
        max_length: int or None, longest T.

    Returns: dict with every key.

    Raises:
        ValueError: if "token_ids" is missing, a key is unknown or T too long.
    """
    given = inputs if isinstance(inputs, dict) else {"token_ids": inputs}
    names = {"token_ids", *optional}
    if "token_ids" not in given or set(given) - names:
        raise ValueError(
            f"Inputs must be token ids or a dict with `token_ids` and any of "
            f"{sorted(optional)}, got the keys {sorted(given)}."
        )
    check_length(given["token_ids"], max_length, "token_ids")
    made = {name: make(given["token_ids"]) for name, make in optional.items()}
    return {**made, **given}


def inputs_like(model):
    """New symbolic inputs with the names, shapes and dtypes of a model's."""
    return keras.tree.map_structure(
        lambda x: keras.Input(x.shape[1:], dtype=x.dtype, name=x.name), model.input
    )


def check_length(token_ids, max_length, name):
    """Refuse ids whose length is known to exceed what the model was made for."""
    length = token_ids.shape[1]
    if None not in (length, max_length) and length > max_length:
        raise ValueError(
            f"`{name}` has length {length}, but `max_sequence_length` is {max_length}."
        )


def check_cache_length(max_length, limit):
    """Refuse a cache whose length is known to exceed what the model was made for."""
    if limit is not None and isinstance(max_length, int) and max_length > limit:
        raise ValueError(
            f"`max_length` is {max_length}, but `max_sequence_length` is {limit}."
        )


def all_real(token_ids):
    """A padding mask that keeps every token, bool (B, T)."""
    return ops.cast(ops.ones_like(token_ids), "bool")


def positions_of(padding_mask):
    """Positions that count real tokens, int32 (B, T); padding on the left has 0."""
    count = ops.cumsum(ops.cast(padding_mask, "int32"), axis=1)
    return ops.maximum(count - 1, 0)


def positions_from_one(padding_mask):
    """Positions that count real tokens from 1, int32 (B, T); all padding has 0."""
    real = ops.cast(padding_mask, "int32")
    return ops.cumsum(real, axis=1) * real


def value_of_layer(values, index):
    """The value of layer `index`: `values` itself, or a list of it in turn.

    Args:
        values: a layer, or a list of layers that is cycled over.
        index: int.
    """
    if isinstance(values, (list, tuple)):
        return values[index % len(values)]
    return values


def blocks_config(activation, attention, feed_forward):
    """What a model keeps of the values it was given: their configs, not the layers.

    A layer kept as an attribute would be saved with the model.
    """
    activation = keras.activations.get(activation)
    return {
        "activation": keras.activations.serialize(activation),
        "attention": config_of_values(attention),
        "feed_forward": config_of_values(feed_forward),
    }


def activation_config(activation):
    """Config of an activation; None, which Keras takes for "linear", stays None."""
    if activation is None:
        return None
    return keras.activations.serialize(keras.activations.get(activation))


def from_blocks_config(config):
    """`config` with `attention` and `feed_forward` turned into layers."""
    names = ("attention", "feed_forward")
    return {**config, **{n: values_of_config(config.get(n)) for n in names}}


def config_of_values(values):
    """Configs of what `value_of_layer` takes."""
    if isinstance(values, (list, tuple)):
        return [keras.saving.serialize_keras_object(value) for value in values]
    return None if values is None else keras.saving.serialize_keras_object(values)


def values_of_config(config):
    """The layers whose configs `config_of_values` gave."""
    if isinstance(config, (list, tuple)):
        return [values_of_config(item) for item in config]
    if isinstance(config, dict):
        return keras.saving.deserialize_keras_object(config)
    return config


def remat_scope(remat, names):
    """Where the blocks of a model are made: those that compute twice if it says so.

    Args:
        remat: bool.
        names: list of str, the blocks'.

    Returns: context manager.
    """
    if not remat:
        return contextlib.nullcontext()
    return keras.RematScope("list_of_layers", layer_names=names)


def plain_attention(num_heads, attention_dropout=0.0):
    """The attention of a model that is given none."""
    return layers.MultiHeadAttention(
        num_heads,
        attention_dropout=attention_dropout,
        kernel_initializer=initializer(),
    )


def plain_feed_forward(intermediate_dim, activation, dropout=0.0):
    """The feed-forward of a model that is given none; without a width there is none."""
    if intermediate_dim is None:
        return None
    return layers.FeedForward(
        intermediate_dim,
        activation=activation,
        dropout=dropout,
        kernel_initializer=initializer(),
    )


def initializer():
    """Normal with deviation 0.02, cut at two deviations, as in BERT, GPT and ViT."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


def head_dtype(policy, name):
    """Policy of a layer that makes logits: float32 unless it is quantized."""
    own = part_policy(policy, name)
    return own if own.quantization_mode is not None else "float32"


def settle(model, policy, trainable):
    """Give a functional model what its constructor cannot take in time.

    Args:
        model: after `super().__init__(inputs, outputs)`.
        policy: its dtype policy, else lost on reload.
        trainable: bool, for all layers, which are tracked only now.
    """
    model.dtype_policy = policy
    if not trainable:
        model.trainable = False


def base_config(model):
    """`name`, `trainable` and `dtype` of a functional model's config."""
    return {
        "name": model.name,
        "trainable": model.trainable,
        "dtype": owner_dtype(model, model.layers),
    }
