"""ALiBi: scores fall with the distance, in every head by another slope.

Letters: B batch, T query length, S key length, N heads.
"""

import keras
import numpy as np
from keras import ops


def alibi_slopes(num_heads):
    """The slope of every head.

    Args:
        num_heads: int N.

    Returns: NumPy float64 (N,): 2 ** (-8 / N), its square, its cube ... if N is a
        power of two; otherwise the slopes of the next smaller power, then every
        other slope of the next larger one.

    References: Press et al. 2021, sec. 3 and its published code,
        arXiv:2108.12409.
    """
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4.0 * np.arange(1, 2 * power, 2) / power)
    return np.concatenate([slopes, between[: num_heads - power]])


@keras.saving.register_keras_serializable(package="keras_tfm")
class AlibiBias(keras.layers.Layer):
    """A fixed bias for the scores: minus slope times distance. No weights.

    Give it to `MultiHeadAttention(relative_bias=...)`, or pass its result as
    `attention_bias`. Distances count in both directions, so it serves encoders
    too. The result is float32 at least, whatever the policy.

    Args:
        num_heads: int N, query heads.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: (B, T, ...); only its length is read.
        context: (B, S, ...) or None, what the keys are made of, or a cache of
            them; only its length is read. None means `inputs`.
        query_offset: int or int32 scalar tensor, position of the first query
            among the keys: the index into the cache when decoding.

    Returns: float (1, N, T, S).

    Raises:
        ValueError: `num_heads` is not positive.

    Example:
        >>> layer = keras_tfm.layers.AlibiBias(num_heads=8)
        >>> bias = layer(keras.ops.zeros((2, 4, 16)))
        >>> [float(x) for x in bias[0, 0, 3]]
        [-1.5, -1.0, -0.5, 0.0]

    References: Press et al. 2021, sec. 3, arXiv:2108.12409.
    """

    def __init__(self, num_heads, **kwargs):
        super().__init__(autocast=False, **kwargs)
        if num_heads < 1:
            raise ValueError(f"`num_heads` must be positive, got {num_heads}.")
        self.num_heads = num_heads
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        pass

    def call(self, inputs, context=None, query_offset=0):
        length = ops.shape(inputs)[1]
        key_length = length if context is None else ops.shape(context)[1]
        queries = ops.arange(length, dtype="int32") + ops.cast(query_offset, "int32")
        keys = ops.arange(key_length, dtype="int32")
        distances = ops.abs(ops.expand_dims(queries, 1) - ops.expand_dims(keys, 0))
        wide = keras.backend.result_type(self.compute_dtype, "float32")
        slopes = alibi_slopes(self.num_heads).reshape(1, -1, 1, 1)
        return ops.convert_to_tensor(slopes, wide) * ops.cast(-distances, wide)

    def compute_output_spec(self, inputs, context=None, query_offset=0):
        """Shape (1, N, T, S) and a dtype of at least float32."""
        keys = inputs if context is None else context
        shape = (1, self.num_heads, inputs.shape[1], keys.shape[1])
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        return keras.KerasTensor(shape, dtype=dtype)

    def compute_mask(self, inputs, previous_mask=None):
        """None: the bias has no time axis of its own to be masked."""
        return None

    def compute_output_shape(self, inputs_shape, context_shape=None):
        keys_shape = inputs_shape if context_shape is None else context_shape
        return 1, self.num_heads, inputs_shape[1], keys_shape[1]

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}
