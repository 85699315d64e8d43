"""Texts at both ends of an exported generator, in TensorFlow operations.

Letters: B batch, S source length, T prompt length, n results a prompt, t new tokens.
"""


class Text:
    """Strings to token rows and back.

    Args:
        tokenizer: has `tokenize` and `detokenize` made of TensorFlow operations.
        stop_token_ids: ints, no part of a text; a source ends with the first.
        start_token_id: int or None, no part of a text.
    """

    def __init__(self, tokenizer, stop_token_ids, start_token_id):
        import tensorflow as tf

        # A graph: outside of one, keras_hub gives lists.
        self.read = tf.function(
            lambda text: tf.cast(tokenizer.tokenize(text), tf.int32),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )
        self.tokenizer = tokenizer
        self.stops = tuple(int(i) for i in stop_token_ids)
        start = () if start_token_id is None else (int(start_token_id),)
        # A pretrained tokenizer may have a real token 0.
        pad = getattr(tokenizer, "special_ids", {}).get("pad", 0)
        self.dropped = ((0,) if pad == 0 else ()) + start

    def source(self, rows, room, pad_token_id=0):
        """Rows that end with the stop token.

        Args:
            rows: ragged int32 (B, S).
            room: int, the longest row with its stop token, or None.
            pad_token_id: int, the id of padding.

        Returns: int32 (B, S).
        """
        import tensorflow as tf

        rows = rows[:, : None if room is None else room - 1]
        ends = tf.fill([rows.nrows(), 1], self.stops[0])
        return tf.concat([rows, ends], axis=1).to_tensor(pad_token_id)

    def pad_left(self, rows):
        """Rows of one length.

        Args:
            rows: ragged int32 (B, T).

        Returns: int32 (B, T), 0 is padding.
        """
        return rows[:, ::-1].to_tensor()[:, ::-1]

    def mask_left(self, rows):
        """Where the tokens of `pad_left` are real.

        Args:
            rows: ragged int32 (B, T).

        Returns: bool (B, T).
        """
        import tensorflow as tf

        lengths = tf.cast(rows.row_lengths(), tf.int32)
        longest = tf.cast(rows.bounding_shape(axis=1), tf.int32)
        return tf.sequence_mask(lengths, longest)[:, ::-1]

    def write(self, token_ids):
        """Texts of new tokens, without stop tokens and padding.

        Args:
            token_ids: int32 (B, n, t).

        Returns: string (B, n).
        """
        import tensorflow as tf

        shape = tf.shape(token_ids)
        rows = tf.reshape(token_ids, [-1, shape[2]])
        stops = tf.zeros_like(rows)
        for token_id in self.stops:
            stops += tf.cast(rows == token_id, rows.dtype)
        keep = tf.cumsum(stops, axis=1) == 0  # until the first stop token
        for token_id in self.dropped:
            keep &= rows != token_id
        texts = self.tokenizer.detokenize(tf.ragged.boolean_mask(rows, keep))
        return tf.reshape(texts, shape[:2])
