"""Class tokens: learned vectors put before a sequence.

Letters: B batch, T length, D width, C number of class tokens.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_tfm")
class ClassToken(keras.layers.Layer):
    """Prepend the same trained vectors to every sequence.

    The first of them gathers what a classifier reads; further ones serve as a
    distillation token or as registers. A mask grows by tokens that are kept.

    Args:
        num_tokens: int above 0, how many vectors.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).

    Returns: float (B, C + T, D).

    Raises:
        ValueError: `num_tokens` is not positive.

    Example:
        >>> layer = keras_tfm.layers.ClassToken()
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 8, 16)

    References: Dosovitskiy et al. 2020, sec. 3.1, arXiv:2010.11929; Darcet et al.
        2023 (registers), arXiv:2309.16588.
    """

    def __init__(self, num_tokens=1, **kwargs):
        super().__init__(autocast=False, **kwargs)
        if num_tokens < 1:
            raise ValueError(f"`num_tokens` must be positive, got {num_tokens}.")
        self.num_tokens = num_tokens
        self.supports_masking = True

    def build(self, inputs_shape):
        self.token = self.add_weight(
            name="token",
            shape=(self.num_tokens, inputs_shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            autocast=False,
        )

    def call(self, inputs):
        inputs = ops.cast(inputs, self.compute_dtype)
        token = ops.expand_dims(ops.cast(self.token, self.compute_dtype), 0)
        shape = (ops.shape(inputs)[0], self.num_tokens, inputs.shape[-1])
        return ops.concatenate([ops.broadcast_to(token, shape), inputs], axis=1)

    def compute_mask(self, inputs, previous_mask):
        """Keep the class tokens, and of the rest what `previous_mask` keeps."""
        if previous_mask is None:
            return None
        mask = ops.cast(previous_mask, "int32")  # (B, T)
        mask = ops.pad(mask, ((0, 0), (self.num_tokens, 0)), constant_values=1)
        return ops.cast(mask, "bool")  # (B, C + T)

    def compute_output_shape(self, inputs_shape):
        batch, length, hidden_dim = inputs_shape
        return batch, None if length is None else length + self.num_tokens, hidden_dim

    def get_config(self):
        return {**super().get_config(), "num_tokens": self.num_tokens}
