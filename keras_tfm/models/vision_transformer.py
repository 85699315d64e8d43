"""ViT: an encoder over the patches of an image.

Letters: B batch, P patches, C class tokens, T tokens (C + P), D hidden_dim.
"""

import keras

from keras_tfm import layers
from keras_tfm.layers.dropout import PairedDropout
from keras_tfm.layers.policies import part_policy
from keras_tfm.models import inputs as tools
from keras_tfm.models.sizes import VIT_SIZES, numbers_of


@keras.saving.register_keras_serializable(package="keras_tfm")
class VisionTransformer(keras.Model):
    """Transformer encoder of images, a functional model.

    Cuts the image into patches, embeds them with learned positions, runs
    `num_layers` pre-norm blocks and a final norm, and pools.

    Args:
        image_size: int or pair (height, width), in pixels.
        patch_size: int or pair, divides `image_size`.
        num_layers: int.
        num_heads: int, divides `hidden_dim`.
        hidden_dim: int D.
        intermediate_dim: int, inner width of the feed-forward.
        pooling: "token" (a class token), "pooler" (the same, then a dense layer with
            tanh) or "mean" (over the patches, without a class token).
        channels: int, of the image.
        dropout: float in [0, 1), on embeddings and branches.
        drop_path: float in [0, 1], rate of the last block, rising from 0.
        layer_scale: float or None, see `TransformerEncoderBlock`.
        norm_epsilon: float.
        attention: attention value, or a list of them cycled over the layers;
            `MultiHeadAttention(num_heads)` unless given.
        feed_forward: likewise; `FeedForward(intermediate_dim)` unless given.
        activation: of the plain feed-forward.
        distillation_token: bool, a second class token behind the first, which learns
            from a teacher.
        remat: bool, blocks keep only their inputs and compute the rest again for the
            gradient: less memory, more time.
        dtype: dtype policy.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: float (B, height, width, channels).
        training: bool.

    Returns: dict with `sequence_output`, float (B, T, D), and `pooled_output`,
        float (B, D).

    Raises:
        ValueError: a patch that does not divide the image, heads that do not divide,
            an unknown `pooling`, a distillation token without a class token.

    Example:
        >>> model = keras_tfm.models.VisionTransformer(
        ...     image_size=8, patch_size=4, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32,
        ... )
        >>> tuple(model(keras.ops.zeros((2, 8, 8, 3)))["sequence_output"].shape)
        (2, 5, 8)

    References:
        Dosovitskiy et al. 2020, arXiv:2010.11929; mean pooling: Beyer et al. 2022,
        arXiv:2205.01580; distillation token: Touvron et al. 2020, arXiv:2012.12877.
    """

    def __init__(
        self,
        image_size,
        patch_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        pooling="token",
        channels=3,
        dropout=0.0,
        drop_path=0.0,
        layer_scale=None,
        norm_epsilon=1e-6,
        attention=None,
        feed_forward=None,
        activation="gelu",
        distillation_token=False,
        remat=False,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        num_class_tokens = _class_tokens(pooling, distillation_token)
        image_size, patch_size = _pair(image_size), _pair(patch_size)
        grid = _grid(image_size, patch_size)
        policy = keras.dtype_policies.get(dtype)

        def part(name):
            return {"name": name, "dtype": part_policy(policy, name)}

        # Layers
        patches = layers.PatchEmbedding(
            hidden_dim,
            patch_size,
            data_format="channels_last",
            **part("patch_embedding"),
        )
        names = ("distillation_token", "class_token")[2 - num_class_tokens :]
        class_tokens = [layers.ClassToken(**part(name)) for name in names]
        positions = layers.PositionEmbedding2D(
            grid, num_class_tokens=num_class_tokens, **part("position_embedding")
        )
        drop = PairedDropout(dropout, **part("embedding_dropout"))
        own_attention = tools.plain_attention(num_heads)
        own_feed_forward = tools.plain_feed_forward(intermediate_dim, activation)
        names = [f"block_{i}" for i in range(num_layers)]
        with tools.remat_scope(remat, names):
            blocks = [
                layers.TransformerEncoderBlock(
                    tools.value_of_layer(attention or own_attention, i),
                    tools.value_of_layer(feed_forward or own_feed_forward, i),
                    norm_epsilon=norm_epsilon,
                    dropout=dropout,
                    drop_path=drop_path * i / max(num_layers - 1, 1),
                    layer_scale=layer_scale,
                    **part(name),
                )
                for i, name in enumerate(names)
            ]
        final_norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, **part("final_norm")
        )

        # Graph
        images = keras.Input((*image_size, channels), name="images")
        x = patches(images)  # (B, P, D)
        for class_token in class_tokens:
            x = class_token(x)  # (B, C + P, D)
        x = drop(positions(x))
        for block in blocks:
            x = block(x)
        x = final_norm(x)
        pooled = x[:, 0]
        if pooling == "mean":
            pooled = keras.layers.GlobalAveragePooling1D(**part("pool"))(x)
        if pooling == "pooler":
            pooler = keras.layers.Dense(hidden_dim, "tanh", **part("pooler"))
            pooled = pooler(pooled)
        outputs = {"sequence_output": x, "pooled_output": pooled}
        super().__init__(images, outputs, **kwargs)
        tools.settle(self, policy, trainable)

        # Config
        self.blocks = blocks
        self.image_size = image_size
        self.patch_size = patch_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.pooling = pooling
        self.channels = channels
        self.dropout = dropout
        self.remat = remat
        self.drop_path = drop_path
        self.layer_scale = layer_scale
        self.norm_epsilon = norm_epsilon
        self.distillation_token = distillation_token
        self.num_class_tokens = num_class_tokens
        self._values = tools.blocks_config(activation, attention, feed_forward)

    def get_config(self):
        return {
            **tools.base_config(self),
            "image_size": list(self.image_size),
            "patch_size": list(self.patch_size),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "pooling": self.pooling,
            "channels": self.channels,
            "dropout": self.dropout,
            "remat": self.remat,
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
            "norm_epsilon": self.norm_epsilon,
            "distillation_token": self.distillation_token,
            **self._values,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**tools.from_blocks_config(config))

    @classmethod
    def from_size(cls, size, image_size=224, patch_size=16, **changes):
        """A model of a published size, with random weights.

        Args:
            size: "tiny", "small", "base", "large" or "huge".
            image_size: int or pair (height, width), in pixels.
            patch_size: int or pair.
            **changes: further constructor arguments that differ.
        """
        numbers = numbers_of(VIT_SIZES, size)
        return cls(image_size, patch_size, **{**numbers, **changes})


def _class_tokens(pooling, distillation_token):
    """How many tokens stand before the patches."""
    if pooling not in ("token", "pooler", "mean"):
        raise ValueError(
            f'`pooling` must be "token", "pooler" or "mean", got {pooling!r}.'
        )
    if pooling == "mean" and distillation_token:
        raise ValueError('`distillation_token` does not go with `pooling="mean"`.')
    return int(pooling != "mean") + int(distillation_token)


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


def _grid(image_size, patch_size):
    """Patches down and across."""
    if image_size[0] % patch_size[0] or image_size[1] % patch_size[1]:
        raise ValueError(
            f"`patch_size` must divide `image_size`, got {patch_size} and {image_size}."
        )
    return image_size[0] // patch_size[0], image_size[1] // patch_size[1]
