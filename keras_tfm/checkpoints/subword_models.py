"""Words to token ids, as TensorFlow operations.

A model takes strings (W,) and gives a ragged int32 (W, t). `tables` are what an
exported graph must own.
"""


class WordPiece:
    """The longest piece first; a word that pieces do not cover is unknown.

    Args:
        spec: dict, the `model` of a `tokenizer.json`.
        tokens: list of str, index is id.
    """

    def __init__(self, spec, tokens):
        import tensorflow as tf
        import tensorflow_text

        self.unknown = spec["unk_token"]
        self.longest = spec["max_input_chars_per_word"]
        self.pieces = tensorflow_text.FastWordpieceTokenizer(
            vocab=tokens,
            suffix_indicator=spec["continuing_subword_prefix"],
            max_bytes_per_word=4 * self.longest,
            token_out_type=tf.int32,
            unknown_token=self.unknown,
            no_pretokenization=True,
        )
        self.tables = []

    def __call__(self, words):
        import tensorflow as tf

        long = tf.strings.length(words, unit="UTF8_CHAR") > self.longest
        return self.pieces.tokenize(tf.where(long, self.unknown, words))


class WordLevel:
    """A word is a token or unknown.

    Args:
        spec: dict, the `model` of a `tokenizer.json`.
        tokens: list of str, index is id.
    """

    def __init__(self, spec, tokens):
        ids = {token: number for number, token in enumerate(tokens)}
        self.table = _table(ids, "string", ids[spec["unk_token"]])
        self.tables = [self.table]

    def __call__(self, words):
        import tensorflow as tf

        return tf.RaggedTensor.from_tensor(self.table.lookup(words)[:, tf.newaxis])


class SentencePiece:
    """A trained SentencePiece model, which also normalizes and splits.

    Args:
        proto: bytes, the trained model.
        ids: dict from pieces to ids where the model's own are not used, or None.
        unknown_id: int, the id of pieces that `ids` lacks.
    """

    def __init__(self, proto, ids=None, unknown_id=0):
        import tensorflow as tf
        import tensorflow_text

        out_type = tf.int32 if ids is None else tf.string
        self.pieces = tensorflow_text.SentencepieceTokenizer(proto, out_type=out_type)
        self.table = None if ids is None else _table(ids, "string", unknown_id)
        self.tables = [self.pieces, *([] if ids is None else [self.table])]

    def __call__(self, words):
        pieces = self.pieces.tokenize(words)
        if self.table is None:
            return pieces
        return pieces.with_flat_values(self.table.lookup(pieces.flat_values))


def _table(ids, key_dtype, default):
    import tensorflow as tf

    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(ids), key_dtype), tf.constant(list(ids.values()), tf.int32)
        ),
        default_value=default,
    )
