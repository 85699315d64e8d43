"""What vision checkpoints have in common: layouts, names of the embeddings, fields.

Letters: C channels, D hidden_dim, P patches.
"""

import numpy as np

from keras_tfm.checkpoints.family import activation_name
from keras_tfm.checkpoints.weight_map import ROW, Entry, Layout, linear, norm
from keras_tfm.layers import MultiHeadAttention, resize_position_table
from keras_tfm.models import VisionTransformer

LAYER = "encoder.layer.{i}"
POOLER = linear("pooler", "pooler.dense")


def pair(size):
    """(height, width) of a config's size, an int or a pair."""
    return (size, size) if isinstance(size, int) else tuple(size)


def size_of(sides):
    """What a config holds for (height, width): one int if both are the same."""
    return sides[0] if sides[0] == sides[1] else list(sides)


def patches(patch_size):
    """The layout of a convolution's kernel (D, C, height, width) as that of a product.

    Args:
        patch_size: ints (height, width).
    """

    def read(kernel):
        kernel = kernel.transpose(2, 3, 1, 0)
        return kernel.reshape(-1, kernel.shape[-1])

    def write(kernel):
        kernel = kernel.reshape(*patch_size, -1, kernel.shape[-1])
        return kernel.transpose(3, 2, 0, 1)

    return Layout(read, write)


def positions(config, backbone):
    """The layout of a position table (1, tokens, D), resized to the model's grid.

    The file's grid is that of its config, never guessed from the number of rows. The
    resampling is the reference library's: bicubic, without antialiasing.

    Args:
        config: dict, of the file.
        backbone: `VisionTransformer`.
    """
    sides = zip(pair(config["image_size"]), pair(config["patch_size"]))
    grid = tuple(side // patch for side, patch in sides)
    ours = tuple(s // p for s, p in zip(backbone.image_size, backbone.patch_size))

    def read(table):
        table = np.squeeze(table, 0)
        return resize_position_table(
            table, grid, ours, backbone.num_class_tokens, antialias=False
        )

    return Layout(read, lambda table: table[None])


def embedding_entries(config, backbone):
    """The entries before and behind the blocks, and those of the attention.

    Args:
        config: dict, of the file.
        backbone: `VisionTransformer`.
    """
    attention, layer = "block_{i}/attention", f"{LAYER}.attention"
    projection = "embeddings.patch_embeddings.projection"
    kernel = patches(pair(config["patch_size"]))
    table = positions(config, backbone)
    return (
        Entry("patch_embedding/projection/kernel", f"{projection}.weight", kernel),
        Entry("patch_embedding/projection/bias", f"{projection}.bias"),
        Entry("class_token/token", "embeddings.cls_token", ROW),
        Entry("distillation_token/token", "embeddings.distillation_token", ROW),
        Entry("position_embedding/table", "embeddings.position_embeddings", table),
        *linear(f"{attention}/query", f"{layer}.attention.query"),
        *linear(f"{attention}/key", f"{layer}.attention.key"),
        *linear(f"{attention}/value", f"{layer}.attention.value"),
        *linear(f"{attention}/output", f"{layer}.output.dense"),
        *norm("final_norm", "layernorm"),
    )


def fields_of(config):
    """Constructor arguments of `VisionTransformer` that all families name alike.

    Args:
        config: `Config`.
    """
    attention = None
    if not config.get("qkv_bias", True):  # a field that old files lack
        attention = MultiHeadAttention(
            config["num_attention_heads"], use_bias=False, use_output_bias=True
        )
    return {
        "image_size": pair(config["image_size"]),
        "patch_size": pair(config["patch_size"]),
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "channels": config["num_channels"],
        "dropout": config["hidden_dropout_prob"],
        "activation": config.activation("hidden_act"),
        "norm_epsilon": config["layer_norm_eps"],
        "attention": attention,
    }


def describe(model):
    """The fields of a `VisionTransformer` that all families name alike, or None.

    Args:
        model: any model.
    """
    if not isinstance(model, VisionTransformer) or model.pooling == "mean":
        return None
    config = model.get_config()
    if config["attention"] is not None or config["feed_forward"] is not None:
        return None  # other values than ViT's own
    return {
        "image_size": size_of(model.image_size),
        "patch_size": size_of(model.patch_size),
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "hidden_size": model.hidden_dim,
        "num_channels": model.channels,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": activation_name(model.blocks[0].feed_forward.activation),
        "layer_norm_eps": model.norm_epsilon,
        "qkv_bias": True,
    }
