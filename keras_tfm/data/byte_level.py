"""keras_hub's byte tokenizer, fit for serving."""

import functools


def byte_tokenizer():
    """Make the tokenizer that needs no training: one token a byte, V = 256.

    Returns: a `keras_hub.tokenizers.ByteTokenizer`; id 0, a byte that no text holds, is
        padding. In a SavedModel it needs nothing but TensorFlow.
    """
    return _byte_tokenizer_class()(lowercase=False)


@functools.cache
def _byte_tokenizer_class():
    """keras_hub's class, made to take empty texts and empty batches in a graph."""
    import keras_hub
    import tensorflow as tf

    class ByteTokenizer(keras_hub.tokenizers.ByteTokenizer):
        def tokenize(self, inputs):
            if not tf.inside_function():
                return super().tokenize(inputs)
            pieces = tf.strings.bytes_split(inputs)
            if isinstance(pieces, tf.RaggedTensor):
                return pieces.with_flat_values(self._codes(pieces.flat_values))
            return self._codes(pieces)

        def _codes(self, pieces):
            codes = tf.io.decode_raw(pieces, tf.uint8, fixed_length=1)
            return tf.cast(tf.reshape(codes, [-1]), self.compute_dtype)

    return ByteTokenizer
