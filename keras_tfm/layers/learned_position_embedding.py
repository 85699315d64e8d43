"""Learned positions: one trained row for every position, added to embeddings.

Letters: B batch, T length, D width.
"""

import keras
from keras import ops

from keras_tfm.layers.sinusoidal_position_encoding import token_positions


@keras.saving.register_keras_serializable(package="keras_tfm")
class LearnedPositionEmbedding(keras.layers.Layer):
    """Add row `position` of a trained table to every token. Masks pass through.

    A table has an end, and a sequence past it is never given a made-up row:

    - a known length past the table raises ValueError, also in a symbolic call;
    - an unknown length (`tf.function`, an exported model) that turns out too
      long stops with TensorFlow's InvalidArgumentError;
    - explicit `positions` outside the table raise InvalidArgumentError on
      TensorFlow on a CPU; compiled (`jit_compile=True`), on a GPU and on other
      backends, where nothing can be raised, their rows are NaN.

    Args:
        max_sequence_length: int above 0, the number of rows.
        initializer: Keras initializer of the table.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        positions: int (T,) or (B, T), each in [0, max_sequence_length); 0, 1,
            2 ... if None. With padding on the left, count the real tokens only,
            and give padding any position of the table, say 0.

    Returns: float (B, T, D).

    Raises:
        ValueError: `max_sequence_length` is not positive, `inputs` is longer than
            the table, or `positions` has another shape or is not integer.

    Example:
        >>> layer = keras_tfm.layers.LearnedPositionEmbedding(10)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Gehring et al. 2017, sec. 3.1, arXiv:1705.03122; Devlin et al.
        2018, arXiv:1810.04805.
    """

    def __init__(self, max_sequence_length, initializer="uniform", **kwargs):
        super().__init__(autocast=False, **kwargs)
        if max_sequence_length < 1:
            raise ValueError(
                f"`max_sequence_length` must be positive, got {max_sequence_length}."
            )
        self.max_sequence_length = max_sequence_length
        self.initializer = keras.initializers.get(initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        self.table = self.add_weight(
            name="table",
            shape=(self.max_sequence_length, inputs_shape[-1]),
            initializer=self.initializer,
            autocast=False,
        )

    def call(self, inputs, positions=None):
        inputs = ops.cast(inputs, self.compute_dtype)
        rows = self._first(inputs) if positions is None else self._at(inputs, positions)
        return inputs + ops.cast(rows, self.compute_dtype)

    def _first(self, inputs):
        """The first T rows. A slice, since a slice past the end is an error."""
        self._check_length(inputs.shape[1])
        table = ops.convert_to_tensor(self.table)
        shape = (ops.shape(inputs)[1], inputs.shape[-1])
        return ops.slice(table, (0, 0), shape)  # (T, D)

    def _at(self, inputs, positions):
        """The rows at `positions`; NaN where the table has none."""
        positions = token_positions(inputs, positions)
        rows = ops.take(self.table, positions, axis=0)  # (T, D) or (B, T, D)
        inside = ops.logical_and(positions >= 0, positions < self.max_sequence_length)
        return ops.where(ops.expand_dims(inside, -1), rows, float("nan"))

    def _check_length(self, length):
        if isinstance(length, int) and length > self.max_sequence_length:
            raise ValueError(
                f"`inputs` has length {length}, but `max_sequence_length` is "
                f"{self.max_sequence_length}."
            )

    def compute_output_shape(self, inputs_shape, positions_shape=None):
        if positions_shape is None:
            self._check_length(inputs_shape[1])
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "initializer": keras.initializers.serialize(self.initializer),
        }
