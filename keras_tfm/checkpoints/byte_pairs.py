"""Byte-level byte-pair merges in a TensorFlow graph.

Letters: W words, U different words, n bytes of all of them, t tokens of a word.
"""

from keras_tfm.checkpoints.errors import CheckpointError


def byte_alphabet():
    """The printable character that stands for each byte: dict, character -> byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    letters.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return letters


def token_bytes(token, alphabet):
    """The bytes that a token stands for; those of its letters if it has others."""
    try:
        return bytes(alphabet[letter] for letter in token)
    except KeyError:
        return token.encode("utf-8")


class BytePairs:
    """Merges neighbours, the earliest rule first and from the left, until none fits.

    Args:
        spec: dict, the `model` of a `tokenizer.json`.
        ids: dict from tokens to ids.
    """

    def __init__(self, spec, ids):
        import tensorflow as tf

        alphabet = byte_alphabet()
        self.size = max(ids.values()) + 1
        starts = [-1] * 256
        for letter, byte in alphabet.items():
            starts[byte] = ids.get(letter, -1)
        self.starts = tf.constant(starts, tf.int64)  # byte -> id
        pairs, values = _rules(spec["merges"], ids, self.size)
        self.none = len(spec["merges"]) * self.size
        self.rules = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(pairs, tf.int64), tf.constant(values, tf.int64)
            ),
            default_value=self.none,
        )
        self.tables = [self.rules]
        self.whole = None
        if spec.get("ignore_merges"):  # a word that is a token needs no merge
            words = [token_bytes(token, alphabet) for token in ids]
            self.whole = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant(words), tf.constant(list(ids.values()), tf.int64)
                ),
                default_value=-1,
            )
            self.tables.append(self.whole)

    def __call__(self, words):
        import tensorflow as tf

        unique, where = tf.unique(words)  # (U,), (W,)
        letters = tf.strings.bytes_split(unique)
        codes = tf.io.decode_raw(letters.flat_values, tf.uint8, fixed_length=1)
        ids = tf.gather(self.starts, tf.cast(tf.reshape(codes, [-1]), tf.int32))
        owners = letters.value_rowids()
        if self.whole is not None:
            ids, owners = self._whole_words(unique, ids, owners)
        known = ids >= 0
        ids, owners = tf.boolean_mask(ids, known), tf.boolean_mask(owners, known)
        ids, owners = self._merge(ids, owners)
        count = tf.size(unique, tf.int64)
        rows = tf.RaggedTensor.from_value_rowids(
            tf.cast(ids, tf.int32), owners, nrows=count
        )
        return tf.gather(rows, where)

    def _whole_words(self, unique, ids, owners):
        """Put the id of a word that is a token in the place of its bytes."""
        import tensorflow as tf

        token = tf.gather(self.whole.lookup(unique), owners)
        first = tf.concat([owners[:1] >= 0, owners[1:] != owners[:-1]], axis=0)
        kept = (token < 0) | first
        ids = tf.boolean_mask(tf.where(token < 0, ids, token), kept)
        return ids, tf.boolean_mask(owners, kept)

    def _merge(self, ids, owners):
        import tensorflow as tf

        def rules(ids, owners):
            """Of each neighbours' pair: rank and result in one number, (n - 1,)."""
            pair = self.rules.lookup(ids[:-1] * self.size + ids[1:])
            return tf.where(owners[1:] == owners[:-1], pair, self.none)

        def step(ids, owners, pairs):
            # The first of the best pairs of each word that has any.
            places = tf.range(tf.size(pairs, tf.int64), dtype=tf.int64)
            left = owners[:-1]
            count = owners[-1] + 1
            best = tf.math.unsorted_segment_min(pairs, left, count)
            found = (pairs < self.none) & (pairs == tf.gather(best, left))
            candidates = tf.where(found, places, tf.size(ids, tf.int64))
            first = tf.math.unsorted_segment_min(candidates, left, count)
            merged = found & (places == tf.gather(first, left))  # (n - 1,)
            no = tf.constant([False])
            results = tf.concat([pairs % self.size, ids[-1:]], axis=0)
            ids = tf.where(tf.concat([merged, no], axis=0), results, ids)
            kept = ~tf.concat([no, merged], axis=0)
            ids, owners = tf.boolean_mask(ids, kept), tf.boolean_mask(owners, kept)
            return ids, owners, rules(ids, owners)

        ids, owners, _ = tf.while_loop(
            lambda ids, owners, pairs: tf.reduce_any(pairs < self.none),
            step,
            (ids, owners, rules(ids, owners)),
            shape_invariants=(tf.TensorShape([None]),) * 3,
        )
        return ids, owners


def _rules(merges, ids, size):
    """Keys of pairs, and rank and result of each in one number."""
    rules = {}
    for rank, merge in enumerate(merges):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        missing = [t for t in (left, right, left + right) if t not in ids]
        if missing:
            raise CheckpointError(
                f"The merge {left!r} {right!r} has the token {missing[0]!r}, which is "
                "not in the vocabulary."
            )
        rules[ids[left] * size + ids[right]] = rank * size + ids[left + right]
    return list(rules), list(rules.values())
