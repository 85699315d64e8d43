"""Patch embedding: cut an image into patches, one token each.

Letters: B batch, P patches, D width. Images: height, width, channels.
"""

import keras
from keras import ops

from keras_tfm.layers.policies import owner_dtype, part_policy


@keras.saving.register_keras_serializable(package="keras_tfm")
class PatchEmbedding(keras.layers.Layer):
    """Project every patch of an image to one token.

    Equal to a convolution whose strides are its kernel size: the kernel of
    `projection` is that convolution's (patch height, patch width, channels, D)
    kernel reshaped to two axes. Tokens follow the rows of the image, left to
    right, then top to bottom, and both data formats share one kernel.

    An image whose sides the patch does not divide is refused: with ValueError
    where a side is known, with TensorFlow's InvalidArgumentError where it is
    not known before the model runs.

    Args:
        hidden_dim: int D, the width of a token.
        patch_size: int, or ints (height, width), in pixels.
        data_format: "channels_last", "channels_first", or None for the one in
            the Keras configuration.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, height, width, channels), or (B, channels, height,
            width) if `data_format` is "channels_first".

    Returns: float (B, P, D) with P = height / patch height * width / patch width.

    Raises:
        ValueError: an argument is not positive or unknown, or a side of the image
            is no multiple of the patch's.

    Example:
        >>> layer = keras_tfm.layers.PatchEmbedding(16, patch_size=4)
        >>> tuple(layer(keras.ops.zeros((2, 8, 12, 3))).shape)
        (2, 6, 16)

    References: Dosovitskiy et al. 2020, sec. 3.1, arXiv:2010.11929.
    """

    def __init__(self, hidden_dim, patch_size, data_format=None, **kwargs):
        super().__init__(**kwargs)
        if hidden_dim < 1:
            raise ValueError(f"`hidden_dim` must be positive, got {hidden_dim}.")
        sides = (patch_size,) * 2 if isinstance(patch_size, int) else tuple(patch_size)
        if len(sides) != 2 or min(sides) < 1:
            raise ValueError(
                f"`patch_size` must be one or two positive ints, got {patch_size}."
            )
        data_format = data_format or keras.config.image_data_format()
        if data_format not in ("channels_last", "channels_first"):
            raise ValueError(
                '`data_format` must be "channels_last" or "channels_first", got '
                f"{data_format!r}."
            )
        self.hidden_dim = hidden_dim
        self.patch_size = sides
        self.data_format = data_format

    def build(self, inputs_shape):
        *_, channels = self._check_sides(inputs_shape)
        patch_height, patch_width = self.patch_size
        self.projection = keras.layers.Dense(
            self.hidden_dim,
            name="projection",
            dtype=part_policy(self.dtype_policy, "projection"),
            trainable=self.trainable,
        )
        self.projection.build((None, patch_height * patch_width * channels))

    def call(self, inputs):
        height, width, channels = self._check_sides(inputs.shape)
        patch_height, patch_width = self.patch_size
        inputs = ops.cast(inputs, self.compute_dtype)
        if self.data_format == "channels_first":
            inputs = ops.transpose(inputs, (0, 2, 3, 1))
        known = None not in (height, width)
        batch, height, width = ops.shape(inputs)[:3]
        rows, columns = height // patch_height, width // patch_width
        # Rows join the batch and channels the columns: no rank above 4. A side not
        # known yet leaves no axis to be guessed, so that a bad one is an error.
        strips = ops.reshape(
            inputs,
            (
                -1 if known else batch * rows,
                patch_height,
                columns,
                patch_width * channels,
            ),
        )
        pixels = ops.transpose(strips, (0, 2, 1, 3))
        patches = ops.reshape(pixels, (-1, patch_height * patch_width * channels))
        tokens = self.projection(patches)  # (B P, D)
        shape = (-1 if known else batch, rows * columns, self.hidden_dim)
        return ops.reshape(tokens, shape)

    def _check_sides(self, shape):
        """Height, width and channels of an image; refuses what does not divide."""
        if len(shape) != 4:
            raise ValueError(f"`inputs` must have 4 axes, got the shape {shape}.")
        height, width, channels = shape[1:]
        if self.data_format == "channels_first":
            channels, height, width = shape[1:]
        for side, patch in zip((height, width), self.patch_size):
            if side is not None and side % patch:
                raise ValueError(
                    f"`inputs` must have sides that `patch_size` {self.patch_size} "
                    f"divides, got {(height, width)}."
                )
        return height, width, channels

    def compute_output_shape(self, inputs_shape):
        height, width, _ = self._check_sides(inputs_shape)
        patches = None
        if None not in (height, width):
            patches = (height // self.patch_size[0]) * (width // self.patch_size[1])
        return inputs_shape[0], patches, self.hidden_dim

    def get_config(self):
        config = {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "patch_size": self.patch_size,
            "data_format": self.data_format,
        }
        if self.built:
            config["dtype"] = owner_dtype(self, [self.projection])
        return config
