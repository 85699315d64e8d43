"""Layers given to layers as values: recreated, built and written to configs.

A block recreates what it is given from its config, so that one value may be
handed to twelve blocks and each has its own weights under fixed names.
"""

import inspect

import keras

from keras_tfm.layers.policies import part_policy


def recreate(value, name, owner):
    """A fresh, unbuilt copy of the layer `value` as the part `name` of `owner`.

    The copy has the owner's dtype policy (a `keras.Model` keeps its own) and is
    trainable if both are.

    Args:
        value: a layer without weights yet, or None.
        name: string, the fixed name of the part.
        owner: the layer that takes it.

    Returns: a layer of the same class, or None.

    Raises:
        ValueError: if `value` is no layer, already has weights, or cannot be
            rebuilt from its config.
    """
    if value is None:
        return None
    if not isinstance(value, keras.layers.Layer):
        raise ValueError(f"`{name}` must be a Keras layer instance, got {value!r}.")
    is_model = isinstance(value, keras.Model)
    if value.weights and not is_model:
        raise ValueError(
            f"`{name}` must be a layer that is not built yet: {value.name!r} has "
            "weights, which the copy made from its config would lose."
        )
    try:
        config = dict(value.get_config())
        config["name"] = name
        if not is_model:
            config["trainable"] = bool(value.trainable and owner.trainable)
            policy = part_policy(owner.dtype_policy, name)
            config["dtype"] = keras.dtype_policies.serialize(policy)
        copy = type(value).from_config(config)
    except Exception as error:
        raise ValueError(
            f"`{name}` cannot be rebuilt from its config: {type(value).__name__} and "
            "every function in it need `get_config` and "
            "`@keras.saving.register_keras_serializable()`."
        ) from error
    if is_model:
        copy.trainable = bool(value.trainable and owner.trainable)
    return copy


def build_value(value, *shapes):
    """Build a part; one without a `build` of its own is called on a symbol."""
    if isinstance(value, keras.Model) and value.built:  # it has inputs of its own
        return
    if type(value).build is keras.layers.Layer.build:
        value(keras.KerasTensor(shapes[0], dtype=value.compute_dtype))
    else:
        value.build(*shapes)


def given(**arguments):
    """The call arguments that say something: neither None nor False."""
    return {k: v for k, v in arguments.items() if v is not None and v is not False}


def refuse(layer, why, **arguments):
    """Refuse call arguments that a layer cannot honour.

    Args:
        layer: the layer.
        why: string, the reason or what to use instead.
        **arguments: values; None and False say nothing and pass.
    """
    for name in given(**arguments):
        raise ValueError(f"{type(layer).__name__} takes no `{name}`: {why}.")


def takes(value, argument):
    """Whether the `call` of a part names `argument`."""
    return argument in inspect.signature(value.call).parameters


def draws_random_numbers(value):
    """Whether a built part draws random numbers, as one with dropout does."""
    states = [v.name for v in value.non_trainable_variables]
    return "seed_generator_state" in states


def serialize_value(value):
    """Config of a part, without the shapes it was built with.

    With them, loading would build every part twice.
    """
    if value is None:
        return None
    config = keras.saving.serialize_keras_object(value)
    config.pop("build_config", None)
    return config


def deserialize_values(config, names):
    """`config` with the parts called `names` turned from configs into layers."""
    config = dict(config)
    for name in names:
        if isinstance(config.get(name), dict):
            config[name] = keras.saving.deserialize_keras_object(config[name])
    return config
