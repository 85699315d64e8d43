"""A tokenizer of the reference library as a Keras layer.

Letters: B batch, T length, V vocabulary size.
"""

import keras
import numpy as np

from keras_tfm.checkpoints import text_decoders
from keras_tfm.checkpoints.added_tokens import AddedTokens
from keras_tfm.checkpoints.tokenizer_stages import make_stages, pieces_of, vocabulary_of

ROLES = {  # of `special_ids`: the reference library's names, the first that is there
    "pad": ("pad_token",),
    "unknown": ("unk_token",),
    "start": ("cls_token", "bos_token"),
    "end": ("sep_token", "eos_token"),
    "mask": ("mask_token",),
}


@keras.saving.register_keras_serializable(package="keras_tfm")
class PretrainedTokenizer(keras.layers.Layer):
    """Texts to the ids of the reference tokenizer, in a graph as well as eagerly.

    Has the methods of keras_hub's tokenizers. `load_tokenizer` makes it.

    Special tokens written in a text are found, as the reference library does; none is
    added: `special_ids` says which a model wants at its ends.

    Args:
        description: dict, the content of a `tokenizer.json`; with `special_tokens`,
            a dict such as `{"cls_token": "[CLS]"}`, and `chat_template`, str or None.
        **kwargs: `name`.

    Call arguments:
        inputs: str tensor or list of str (B,), or one str.

    Returns: a ragged int32 tensor (B, T), or (T,) for one str.

    Example:
        >>> description = {
        ...     "model": {
        ...         "type": "WordLevel", "vocab": {"?": 0, "to": 1, "be": 2},
        ...         "unk_token": "?",
        ...     },
        ...     "pre_tokenizer": {"type": "WhitespaceSplit"},
        ... }
        >>> tokenizer = keras_tfm.checkpoints.PretrainedTokenizer(description)
        >>> tokenizer(["to be", "", "or"]).to_list()
        [[1, 2], [], [0]]
        >>> tokenizer.detokenize([[1, 2]])
        ['to be']
    """

    def __init__(self, description, **kwargs):
        kwargs.setdefault("dtype", "int32")
        super().__init__(**kwargs)
        import tensorflow as tf

        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self._description = Frozen(description)
        tokens = description.get("added_tokens") or []
        self._tokens = Frozen(vocabulary_of(description))
        self._ids = Frozen({t: i for i, t in enumerate(self._tokens.value) if t})
        with tf.init_scope():
            stages = make_stages(description)
            added = [
                AddedTokens([t for t in tokens if t.get("normalized", False) == late])
                for late in (False, True)
            ]
            added[1] = added[1].normalized_by(stages.normalize)
            self._make_pieces(description, tokens)
        self._stages, self._added = Frozen(stages), Frozen(added)
        self._holder = tf.Module()  # an exported graph must own the tables
        self._holder.tables = [*added[0].tables, *added[1].tables, *stages.tables]
        strings = tf.TensorSpec([None], tf.string)
        self._graph = tf.function(
            self._encode, input_signature=[strings], autograph=False
        )
        self.built = True

    def _make_pieces(self, description, added):
        import tensorflow as tf

        pieces = pieces_of(description, self._tokens.value)
        # One more: what any other id adds, nothing.
        self._pieces = tuple(
            tf.constant([*(part or b"" for part in table), b""])
            for table in (pieces.first, pieces.later)
        )
        self._until_text = pieces.until_text
        silent = [
            not token or piece is None
            for token, piece in zip(self._tokens.value, pieces.first)
        ]
        silent = np.array([*silent, True])
        self._silent = tf.constant(silent)
        special = silent.copy()
        special[[t["id"] for t in added if t.get("special")]] = True
        self._special = tf.constant(special)

    @property
    def special_tokens(self):
        """Dict from the reference library's names, such as "cls_token", to ids."""
        named = self._description.value.get("special_tokens") or {}
        ids = self._ids.value
        return {role: ids[token] for role, token in named.items() if token in ids}

    @property
    def special_ids(self):
        """Dict with "pad", "unknown", "start", "end", "mask": an int or None.

        Without a padding token the end token is "pad", as is usual.
        """
        named = self.special_tokens
        ids = {
            role: next((named[name] for name in names if name in named), None)
            for role, names in ROLES.items()
        }
        return {**ids, "pad": ids["end"] if ids["pad"] is None else ids["pad"]}

    @property
    def chat_template(self):
        """The template that makes a text of messages (Jinja), a str or None."""
        return self._description.value.get("chat_template")

    def get_vocabulary(self):
        """Return the list of tokens, index is id; "" where there is none."""
        return list(self._tokens.value)

    def vocabulary_size(self):
        """Return V, one more than the highest id."""
        return len(self._tokens.value)

    def token_to_id(self, token):
        """Return the id of a token; raise ValueError if there is none."""
        if token not in self._ids.value:
            raise ValueError(f"Token {token!r} is not in the vocabulary.")
        return self._ids.value[token]

    def id_to_token(self, token_id):
        """Return the token of an id; raise ValueError if there is none."""
        if not 0 <= token_id < self.vocabulary_size():
            raise ValueError(
                f"`token_id` must be in [0, {self.vocabulary_size()}), got {token_id}."
            )
        return self._tokens.value[token_id]

    def call(self, inputs):
        import tensorflow as tf

        texts = tf.convert_to_tensor(inputs, tf.string)
        if texts.shape.rank == 0:
            return self._graph(texts[tf.newaxis])[0]
        return self._graph(texts)

    tokenize = call

    def encode(self, texts):
        """Turn many texts into ids.

        Args:
            texts: list of str.

        Returns: list of int32 arrays, the ids that a call gives.
        """
        rows = []
        for at in range(0, len(texts), 1024):
            ragged = self.call(texts[at : at + 1024])
            rows += np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])
        return rows

    def detokenize(self, inputs, skip_special_tokens=True):
        """Join ids to texts, as the reference library does.

        Args:
            inputs: int (B, T), dense, ragged or a list of lists.
            skip_special_tokens: bool, special tokens are left out; ids that no token
                has always are.

        Returns: list of str, or a str tensor (B,) inside a graph.
        """
        import tensorflow as tf

        ids = _ragged(inputs)
        texts = self._decode(ids, skip_special_tokens)
        if not tf.executing_eagerly():
            return texts
        return [text.decode("utf-8") for text in texts.numpy().tolist()]

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs.shape, None), dtype="int32")

    def get_config(self):
        return {**super().get_config(), "description": self._description.value}

    def _encode(self, texts):
        early, late = self._added.value
        stages = self._stages.value
        return early.encode(
            texts,
            lambda parts: late.encode(stages.normalize(parts), stages.encode_words),
        )

    def _decode(self, ids, skip_special_tokens):
        import tensorflow as tf

        flat, size = tf.cast(ids.flat_values, tf.int32), self.vocabulary_size()
        flat = tf.where((flat >= 0) & (flat < size), flat, size)
        dropped = self._special if skip_special_tokens else self._silent
        kept = ids.with_flat_values(~tf.gather(dropped, flat))
        ids = tf.ragged.boolean_mask(ids.with_flat_values(flat), kept)
        return text_decoders.join(*self._pieces, self._until_text, ids)


def _ragged(ids):
    """Rows of ids as a ragged tensor (B, T)."""
    import tensorflow as tf

    if isinstance(ids, tf.RaggedTensor):
        return ids
    if isinstance(ids, tf.Tensor):
        return tf.RaggedTensor.from_tensor(ids)
    rows = [np.asarray(row, "int32") for row in ids]
    values = np.concatenate([np.zeros(0, "int32"), *rows])
    return tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])


class Frozen:
    """A value that Keras leaves as it is: no tracking, no wrapped lists.

    Args:
        value: anything.
    """

    def __init__(self, value):
        self.value = value
