"""A character tokenizer of core TensorFlow ops, so that it exports without helpers.

keras_hub's sub-word tokenizers need `tensorflow_text` wherever their SavedModel is
read; this one needs nothing but TensorFlow.

Letters: B batch, T length, V vocabulary_size.
"""

import keras
import numpy as np

from keras_tfm.data.errors import DataError

SPECIALS = ["[PAD]", "[UNK]"]


@keras.saving.register_keras_serializable(package="keras_tfm")
class CharacterTokenizer(keras.layers.Layer):
    """One token a character; id 0 is padding, id 1 an unknown character.

    Runs on strings only, so the TensorFlow part of a model, a `tf.data` map or a
    SavedModel is its place. The same code runs in graphs and in plain Python calls.

    Args:
        vocabulary: list of str: "[PAD]", "[UNK]", then single characters. See
            `train_characters`.
        **kwargs: `name`.

    Call arguments:
        inputs: str tensor or list of str (B,), or one str.

    Returns: a ragged int32 tensor (B, T), or (T,) for one str. An empty text has no
        token.

    Example:
        >>> tokenizer = keras_tfm.data.CharacterTokenizer(["[PAD]", "[UNK]", "a", "b"])
        >>> tokenizer(["ab", "", "ac"]).to_list()
        [[2, 3], [], [2, 1]]
        >>> tokenizer.detokenize([[2, 3, 0]])
        ['ab']
    """

    def __init__(self, vocabulary, **kwargs):
        kwargs.setdefault("dtype", "int32")
        super().__init__(**kwargs)
        import tensorflow as tf

        vocabulary = list(vocabulary)
        characters = vocabulary[2:]
        if vocabulary[:2] != SPECIALS or {len(c) for c in characters} != {1}:
            raise ValueError(
                f"`vocabulary` must be {SPECIALS} and then single characters, "
                f"got {vocabulary[:4]}."
            )
        if len(set(vocabulary)) != len(vocabulary):
            raise ValueError("`vocabulary` must not hold a character twice.")
        self.vocabulary = vocabulary
        self._ids = {token: number for number, token in enumerate(vocabulary)}
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        with tf.init_scope():
            codes = tf.constant([ord(c) for c in characters], "int32")
            numbers = tf.range(2, len(vocabulary), dtype="int32")
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(codes, numbers), default_value=1
            )
        self.built = True

    def get_vocabulary(self):
        """Return the list of tokens, index is id."""
        return list(self.vocabulary)

    def vocabulary_size(self):
        """Return V."""
        return len(self.vocabulary)

    def token_to_id(self, token):
        """Return the id of a token; raise ValueError if there is none."""
        if token not in self._ids:
            raise ValueError(f"Token {token!r} is not in the vocabulary.")
        return self._ids[token]

    def id_to_token(self, token_id):
        """Return the token of an id; raise ValueError if there is none."""
        if not 0 <= token_id < len(self.vocabulary):
            raise ValueError(
                f"`token_id` must be in [0, {len(self.vocabulary)}), got {token_id}."
            )
        return self.vocabulary[token_id]

    def call(self, inputs):
        import tensorflow as tf

        codes = tf.strings.unicode_decode(tf.convert_to_tensor(inputs), "UTF-8")
        return tf.ragged.map_flat_values(self.table.lookup, codes)

    tokenize = call

    def encode(self, texts):
        """Turn many or long texts into ids without TensorFlow, much faster.

        Args:
            texts: list of str.

        Returns: list of int32 arrays, the ids that a call gives.
        """
        codes = [ord(character) for character in self.vocabulary[2:]]
        ids = np.ones(max(codes) + 2, "int32")  # the last one is unknown
        ids[codes] = np.arange(2, len(self.vocabulary))
        rows = []
        for text in texts:
            row = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
            rows.append(ids[np.minimum(row, len(ids) - 1)])
        return rows

    def detokenize(self, inputs):
        """Join ids to texts; padding and unknown characters are left out.

        Args:
            inputs: int (B, T), dense, ragged or a list of lists.

        Returns: list of str, or a str tensor (B,) inside a graph.
        """
        import tensorflow as tf

        if not isinstance(inputs, (tf.Tensor, tf.RaggedTensor)):
            inputs = tf.ragged.constant(inputs, dtype="int32", ragged_rank=1)
        characters = tf.constant(["", "", *self.vocabulary[2:]])
        pieces = tf.gather(characters, inputs)
        texts = tf.strings.reduce_join(pieces, axis=-1)
        if not tf.executing_eagerly():
            return texts
        return [text.decode("utf-8") for text in texts.numpy().tolist()]

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs.shape, None), dtype="int32")

    def get_config(self):
        return {**super().get_config(), "vocabulary": self.vocabulary}


def train_characters(texts):
    """Collect the characters of some texts, in sorted order.

    Args:
        texts: str, or iterable of str.

    Returns: `CharacterTokenizer`.

    Raises:
        DataError: if there is no character.
    """
    texts = [texts] if isinstance(texts, str) else texts
    characters = set()
    for text in texts:
        characters.update(text)
    if not characters:
        raise DataError("There is no text to learn a vocabulary from.")
    return CharacterTokenizer([*SPECIALS, *sorted(characters)])
