"""The float32 twin of a mixed-precision model."""

import warnings

import keras

_LOW = ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
_INTEGER = ("int4", "int8", "uint4", "uint8")


def is_quantized(model):
    """Tell whether Keras has quantized a model (`model.quantize(...)`).

    Args:
        model: a built `keras.Model`.

    Returns: bool.
    """
    if any(str(w.dtype) in _INTEGER for w in model.weights):
        return True
    return any(
        policy.quantization_mode is not None
        for layer in _layers(model)
        for policy in _policies(layer)
        if hasattr(policy, "quantization_mode")
    )


def is_low_precision(model):
    """Tell whether any part computes or stores in 16 bits.

    Args:
        model: a built `keras.Model`.

    Returns: bool.
    """
    if any(str(w.dtype) in _LOW for w in model.weights):
        return True
    return any(
        _names_low("dtype", layer.compute_dtype) or _has_low(_config(layer))
        for layer in _layers(model)
    )


def float32_model(model):
    """Give a model that computes in float32 with the same weights.

    Args:
        model: a functional or Sequential `keras.Model`.

    Returns: `model` itself if it is float32 throughout, else a twin of it.

    Raises:
        ValueError: the twin's weights are not those of the model.
    """
    if not is_low_precision(model):
        return model
    twin = _clone(model)
    shapes = [tuple(w.shape) for w in model.weights]
    if [tuple(w.shape) for w in twin.weights] != shapes:
        raise ValueError(
            f"`model` must be rebuilt by its config, but {model.name} has "
            f"{len(shapes)} weights and its float32 twin {len(twin.weights)} others."
        )
    twin.set_weights(model.get_weights())
    return twin


def _clone(layer):
    """Rebuild from the config: a model of plain layers layer by layer."""
    if isinstance(layer, keras.Sequential):
        given = layer.inputs[0]
        dtype = "float32" if given.dtype in _LOW else given.dtype
        inputs = keras.Input(batch_shape=given.shape, dtype=dtype, name=given.name)
        parts = [_clone(part) for part in layer.layers]
        return keras.Sequential([inputs, *parts], name=layer.name)
    config = layer.get_config()
    if isinstance(layer, keras.Model) and "layers" in config:
        return keras.models.clone_model(layer, clone_function=_clone)
    return type(layer).from_config(_raise_precision(config))


def _raise_precision(config):
    """Write float32 wherever a nested config names a 16-bit type or policy."""
    if isinstance(config, dict):
        return {
            key: "float32" if _names_low(key, value) else _raise_precision(value)
            for key, value in config.items()
        }
    if isinstance(config, (list, tuple)):
        return type(config)(_raise_precision(value) for value in config)
    return config


def _config(layer):
    """The config if there is one; what it warns of is for those who save it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return layer.get_config()
        except NotImplementedError:
            return {}


def _has_low(config):
    if isinstance(config, dict):
        return any(_names_low(k, v) or _has_low(v) for k, v in config.items())
    if isinstance(config, (list, tuple)):
        return any(_has_low(value) for value in config)
    return False


def _names_low(key, value):
    return key in ("dtype", "name") and isinstance(value, str) and value in _LOW


def _layers(model):
    """The layers of a model and of the models in it."""
    layers = []
    for layer in model.layers:
        layers += _layers(layer) if isinstance(layer, keras.Model) else [layer]
    return layers


def _policies(layer):
    policy = layer.dtype_policy
    return list(policy.values()) if hasattr(policy, "values") else [policy]
