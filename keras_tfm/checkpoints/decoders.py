"""What decoders share: one attention for all layers, or one for each layer."""

import keras

# What a file does not say of an attention, and what does not change its numbers.
LEFT_OUT = ("name", "dtype", "trainable", "kernel_initializer", "implementation")


def one_or_each(values):
    """A value for all layers if they are alike, else the list of them.

    Args:
        values: list of layers, one a block.
    """
    first = essence(values[0])
    return values[0] if all(essence(v) == first for v in values) else values


def essence(layer):
    """What a file can say of an attention or feed-forward layer: its config, in part.

    Args:
        layer: a layer.

    Returns: dict.
    """
    config = {k: v for k, v in layer.get_config().items() if k not in LEFT_OUT}
    rotary = getattr(layer, "rotary", None)
    if rotary is not None:
        config["rotary"] = {
            k: v for k, v in rotary.get_config().items() if k not in LEFT_OUT
        }
    return {"class": type(layer).__name__, **config}


def same_values(model, built_attention, built_feed_forward):
    """Whether the blocks of a model hold these values.

    Args:
        model: `GPT`.
        built_attention: layer or list of layers, as given to a `GPT`.
        built_feed_forward: layer.
    """
    each = built_attention
    if isinstance(each, keras.layers.Layer):
        each = [each] * model.num_layers
    wanted = [_full(essence(layer), model) for layer in each]
    found = [_full(essence(block.attention), model) for block in model.blocks]
    feed_forward = essence(built_feed_forward)
    return wanted == found and all(
        essence(block.feed_forward) == feed_forward for block in model.blocks
    )


def _full(config, model):
    """The config of an attention with the sizes that it leaves to the model."""
    heads = config.get("num_heads")
    if heads is None:
        return config
    return {
        **config,
        "key_dim": config["key_dim"] or model.hidden_dim // heads,
        "num_key_value_heads": config["num_key_value_heads"] or heads,
        "use_output_bias": config["use_bias"]
        if config["use_output_bias"] is None
        else config["use_output_bias"],
    }
