"""Tokens that are found in a text as they are written, such as "[MASK]"."""

import re

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.text_splits import split_around
from keras_tfm.checkpoints.unicode_ranges import WHITESPACE


def added_token(token_id, content, **flags):
    """An added token as `tokenizer.json` writes it: a dict."""
    off = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": token_id, "content": content, **dict.fromkeys(off, False), **flags}


class AddedTokens:
    """Finds added tokens in strings.

    Args:
        tokens: list of dicts: `content`, `id`, `lstrip`, `rstrip`.
    """

    def __init__(self, tokens):
        import tensorflow as tf

        self.tokens = sorted(tokens, key=lambda token: -len(token["content"]))
        if not self.tokens:
            return
        self.pattern = "|".join(_pattern(token) for token in self.tokens)
        contents = tf.constant([token["content"] for token in self.tokens])
        ids = tf.constant([token["id"] for token in self.tokens], tf.int32)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(contents, ids), default_value=-1
        )
        self.strips = any(t.get("lstrip") or t.get("rstrip") for t in self.tokens)

    @property
    def tables(self):
        """The lookup tables, which an exported graph must own."""
        return [self.table] if self.tokens else []

    def normalized_by(self, normalize):
        """The same tokens as they look in a normalized text."""
        import tensorflow as tf

        if not self.tokens:
            return self
        contents = normalize(tf.constant([token["content"] for token in self.tokens]))
        return AddedTokens(
            [
                {**token, "content": content.decode("utf-8")}
                for token, content in zip(self.tokens, contents.numpy().tolist())
            ]
        )

    def encode(self, texts, encode_others):
        """Turn texts into ids: added tokens here, what lies between them elsewhere.

        Args:
            texts: strings (P,).
            encode_others: callable, strings (R,) -> ragged int32 (R, t).

        Returns: ragged int32 (P, t).
        """
        import tensorflow as tf

        if not self.tokens:
            return encode_others(texts)
        parts = split_around(texts, keep=self.pattern)
        ids = self._lookup(parts.flat_values)  # (R,)
        other = ids < 0
        rows = encode_others(tf.boolean_mask(parts.flat_values, other))
        added = tf.boolean_mask(ids, ~other)[:, tf.newaxis]
        both = tf.concat([rows, tf.RaggedTensor.from_tensor(added)], axis=0)
        count = tf.cast(other, tf.int32)
        place = tf.where(
            other,
            tf.cumsum(count) - 1,
            tf.reduce_sum(count) + tf.cumsum(1 - count) - 1,
        )
        rows = tf.gather(both, place)
        return tf.RaggedTensor.from_row_splits(rows, parts.row_splits).merge_dims(1, 2)

    def _lookup(self, parts):
        import tensorflow as tf

        ids = self.table.lookup(parts)
        if not self.strips:
            return ids
        ends = rf"\A[{WHITESPACE}]+|[{WHITESPACE}]+\z"
        bare = self.table.lookup(tf.strings.regex_replace(parts, ends, ""))
        return tf.where(ids < 0, bare, ids)


def _pattern(token):
    if token.get("single_word"):
        raise CheckpointError(
            f"The added token {token['content']!r} counts as a whole word only "
            "(single_word), which a TensorFlow graph cannot find."
        )
    blanks = f"[{WHITESPACE}]*"
    left, right = blanks * bool(token.get("lstrip")), blanks * bool(token.get("rstrip"))
    return left + re.escape(token["content"]) + right
