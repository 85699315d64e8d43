"""Relative position bias: a trained number for every head and distance.

Letters: B batch, T query length, S key length, N heads.
"""

import keras
import numpy as np
from keras import ops


def _bucket_starts(bidirectional, num_buckets, max_distance):
    """The smallest distance of every bucket of one direction but the first.

    Found by walking through all distances with the float32 formula of the
    reference, so that borders agree with it on every backend.
    """
    size = num_buckets // 2 if bidirectional else num_buckets
    exact = size // 2
    distances = np.arange(exact, max_distance + 1, dtype="float32")
    octaves = np.log(distances / np.float32(exact)) / np.float32(
        np.log(max_distance / exact)
    )
    buckets = exact + (octaves * np.float32(size - exact)).astype("int64")
    buckets = np.concatenate([np.arange(exact), np.minimum(buckets, size - 1)])
    return np.searchsorted(buckets, np.arange(1, size)).astype("int32")


def relative_position_bucket(
    relative_position, bidirectional=True, num_buckets=32, max_distance=128
):
    """Number the distances: small ones each, large ones in logarithmic groups.

    Args:
        relative_position: int (...,), key position - query position.
        bidirectional: bool; keys after the query have buckets of their own, half
            of them. If False they share bucket 0 with the distance 0.
        num_buckets: int, the number of buckets.
        max_distance: int; from here on all distances share the last bucket.

    Returns: int32 (...,) in [0, num_buckets).
    """
    starts = _bucket_starts(bidirectional, num_buckets, max_distance)
    distance = -ops.cast(relative_position, "int32")
    distance = ops.abs(distance) if bidirectional else ops.maximum(distance, 0)
    reached = ops.expand_dims(distance, -1) >= ops.convert_to_tensor(starts)
    buckets = ops.sum(ops.cast(reached, "int32"), axis=-1)
    if not bidirectional:
        return buckets
    after = ops.cast(ops.cast(relative_position, "int32") > 0, "int32")
    return buckets + after * (num_buckets // 2)


@keras.saving.register_keras_serializable(package="keras_tfm")
class RelativePositionBias(keras.layers.Layer):
    """A trained bias for the scores, by head and by distance (T5).

    Give it to `MultiHeadAttention(relative_bias=...)`, or call it once and pass
    the result to several layers as `attention_bias`, as T5 does. The result is
    float32 at least, whatever the policy.

    Args:
        num_heads: int N, query heads.
        num_buckets: int, rows of the table.
        max_distance: int; from here on all distances share a bucket.
        bidirectional: bool; False for causal attention, where keys after the
            query need no buckets.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: (B, T, ...); only its length is read.
        context: (B, S, ...) or None, what the keys are made of, or a cache of
            them; only its length is read. None means `inputs`.
        query_offset: int or int32 scalar tensor, position of the first query
            among the keys: the index into the cache when decoding.

    Returns: float (1, N, T, S).

    Raises:
        ValueError: an argument is too small.

    Example:
        >>> layer = keras_tfm.layers.RelativePositionBias(num_heads=4)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (1, 4, 7, 7)

    References: Raffel et al. 2019, sec. 2.1, arXiv:1910.10683.
    """

    def __init__(
        self,
        num_heads,
        num_buckets=32,
        max_distance=128,
        bidirectional=True,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        if num_heads < 1:
            raise ValueError(f"`num_heads` must be positive, got {num_heads}.")
        least = 4 if bidirectional else 2
        if num_buckets < least:
            raise ValueError(
                f"`num_buckets` must be at least {least}, got {num_buckets}."
            )
        exact = num_buckets // least
        if max_distance <= exact:
            raise ValueError(
                f"`max_distance` must be above {exact}, the distances that have a "
                f"bucket of their own, got {max_distance}."
            )
        self.num_heads = num_heads
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        self.table = self.add_weight(
            name="table",
            shape=(self.num_buckets, self.num_heads),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,
        )

    def call(self, inputs, context=None, query_offset=0):
        length = ops.shape(inputs)[1]
        key_length = length if context is None else ops.shape(context)[1]
        # One value for each distance (and one more), then spread over (T, S).
        distances = ops.arange(length + key_length, dtype="int32") - (length - 1)
        buckets = relative_position_bucket(
            distances - ops.cast(query_offset, "int32"),
            self.bidirectional,
            self.num_buckets,
            self.max_distance,
        )
        wide = keras.backend.result_type(self.compute_dtype, "float32")
        values = ops.take(ops.cast(self.table, wide), buckets, axis=0)
        queries = ops.expand_dims(ops.arange(length, dtype="int32"), 1)
        keys = ops.expand_dims(ops.arange(key_length, dtype="int32"), 0)
        spread = keys - queries + (length - 1)  # (T, S)
        bias = ops.take(ops.transpose(values), spread, axis=1)  # (N, T, S)
        return ops.expand_dims(bias, 0)

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
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
        }
