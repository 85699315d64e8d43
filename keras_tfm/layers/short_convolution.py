"""Convolution of each channel by itself over a few tokens, with a cache.

Letters: B batch, T length, E width, K kernel_size.
"""

import keras
from keras import ops

from keras_tfm.layers.real_tokens_first import keep_first


@keras.saving.register_keras_serializable(package="keras_tfm")
class ShortConvolution(keras.layers.Layer):
    """Each token becomes a weighted sum of itself and the K - 1 before it.

    Args:
        kernel_size: int K, at least 2.
        use_bias: bool.
        centred: bool, (K - 1) // 2 of the tokens stand before and the rest after.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, E), with zeros where there is no token.

    Returns: float (B, T, E).
    """

    def __init__(self, kernel_size, use_bias=True, centred=False, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.kernel_size = kernel_size
        self.use_bias = use_bias
        self.centred = centred

    def build(self, inputs_shape):
        width, bound = inputs_shape[-1], self.kernel_size**-0.5
        self.kernel = self.add_weight(
            shape=(self.kernel_size, width),
            initializer=keras.initializers.RandomUniform(-bound, bound),
            name="kernel",
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight((width,), initializer="zeros", name="bias")

    def call(self, inputs):
        after = self.kernel_size - 1
        before = after // 2 if self.centred else after
        room = before, after - before
        return self._convolve(ops.pad(inputs, ((0, 0), room, (0, 0))))

    def call_with_cache(self, inputs, before, counts=None):
        """The convolution, and the newest tokens for the next one.

        Args:
            inputs: float (B, T, E).
            before: float (B, K - 1, E), the tokens that came before; None at the
                beginning of a sequence.
            counts: int (B,), how many of each row's tokens are real, the first ones;
                all unless given.

        Returns: pair of float (B, T, E) and (B, K - 1, E), None if `before` is.
        """
        inputs = keep_first(inputs, counts)
        if before is None:
            return self(inputs), None
        both = ops.concatenate([before, inputs], axis=1)  # (B, K - 1 + T, E)
        size, width = self.kernel_size - 1, inputs.shape[2]
        if counts is None:
            newest = both[:, -size:]
        else:
            batch, length, _ = ops.shape(both)
            first = ops.arange(batch, dtype="int32") * length + counts
            places = ops.expand_dims(first, 1) + ops.arange(size, dtype="int32")
            newest = ops.take(ops.reshape(both, (-1, width)), places, axis=0)
        return self._convolve(both), ops.reshape(newest, (-1, size, width))

    def _convolve(self, x):
        """(B, K - 1 + T, E) -> (B, T, E)."""
        kernel, size = ops.cast(self.kernel, x.dtype), self.kernel_size
        outputs = 0.0 if self.bias is None else ops.cast(self.bias, x.dtype)
        for k in range(size):
            outputs = outputs + x[:, k : k - size + 1 or None] * kernel[k]
        return outputs

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_size": self.kernel_size,
            "use_bias": self.use_bias,
            "centred": self.centred,
        }
