"""Texts to words, as TensorFlow operations.

A splitter takes strings (P,) and gives a ragged (P, w) of words. `tokenizer.json`
names it by its `type`.
"""

import functools
import re

from keras_tfm.checkpoints import unicode_ranges as ranges
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.text_patterns import CUT, GPT2, WORD_CLASS, cuts, to_re2

KNOWN = (
    "BertPreTokenizer, ByteLevel, Digits, Punctuation, Sequence, Split, Whitespace, "
    "WhitespaceSplit"
)


def make_splitter(spec):
    """Make the function of a pre-tokenizer.

    Args:
        spec: dict with `type` and its fields, or None: a text is one word.

    Returns: callable, strings (P,) -> ragged strings (P, w).

    Raises:
        CheckpointError: for a kind that has no TensorFlow counterpart.
    """
    if spec is None:
        return _whole
    kind, blank = spec["type"], f"[{ranges.WHITESPACE}]+"
    if kind == "Sequence":
        return chain([make_splitter(part) for part in spec["pretokenizers"]])
    if kind == "BertPreTokenizer":
        mark = f"[{ranges.BERT_PUNCTUATION}]"
        return splitter(keep=mark, drop=blank)
    if kind == "WhitespaceSplit":
        return splitter(drop=blank)
    if kind == "Whitespace":
        sign = f"[^{WORD_CLASS}{ranges.WHITESPACE}]+"
        return splitter(keep=sign, drop=blank)
    if kind == "Punctuation":
        return splitter(**_behavior(spec, f"[{ranges.BERT_PUNCTUATION}]"))
    if kind == "Digits":
        plus = "" if spec["individual_digits"] else "+"
        return splitter(keep=rf"[\p{{N}}{ranges.NUMERIC}]{plus}")
    if kind == "Split":
        return _split(spec)
    if kind == "ByteLevel":
        return _byte_level(spec)
    raise CheckpointError(
        f"The pre-tokenizer {kind!r} is not known: known are {KNOWN}."
    )


def chain(splitters):
    """One splitter after another, each on the words of the one before."""

    def split(texts):
        import tensorflow as tf

        words = splitters[0](texts)
        for splitter_ in splitters[1:]:
            inner = splitter_(words.flat_values)
            words = tf.RaggedTensor.from_row_splits(inner, words.row_splits)
            words = words.merge_dims(1, 2)
        return words

    return split


def split_around(texts, keep=None, drop=None):
    """Split around what patterns match; empty words are left out.

    TensorFlow's own operations do it: `tensorflow_text.regex_split` ends a text at
    its first NUL.

    Args:
        texts: strings (P,); may hold `CUT`s, which split as well.
        keep: str, RE2; its matches are words of their own.
        drop: str, RE2; its matches are in no word.

    Returns: ragged strings (P, w).
    """
    import tensorflow as tf

    if keep is not None:
        texts = tf.strings.regex_replace(texts, f"({keep})", CUT + rb"\1" + CUT)
    if drop is not None:
        texts = tf.strings.regex_replace(texts, drop, CUT)
    words = tf.strings.split(texts, sep=CUT)
    return tf.ragged.boolean_mask(words, words != "")


def splitter(keep=None, drop=None):
    """`split_around` as a splitter."""
    return functools.partial(split_around, keep=keep, drop=drop)


def _whole(texts):
    import tensorflow as tf

    return tf.RaggedTensor.from_row_lengths(texts, tf.ones_like(texts, tf.int64))


def _behavior(spec, pattern):
    """What becomes of the matches, as arguments of `split_around`."""
    behaviors = {"Isolated": {"keep": pattern}, "Removed": {"drop": pattern}}
    behavior = spec.get("behavior", "Isolated")
    if behavior not in behaviors:
        raise CheckpointError(
            f"The pre-tokenizer {spec['type']!r} with the behavior {behavior!r} is "
            f"not known: known are {', '.join(behaviors)}."
        )
    return behaviors[behavior]


def _split(spec):
    (kind, source), *_ = spec["pattern"].items()
    pattern = re.escape(source) if kind == "String" else to_re2(source)
    rule = _behavior(spec, pattern)
    if spec.get("invert") and "drop" in rule:
        return _with_cuts(source, functools.partial(_matches, pattern=pattern))
    if spec.get("invert"):  # what is between the matches stays as well
        rule = {"keep": pattern}
    return _with_cuts(source, splitter(**rule))


def _matches(texts, pattern):
    """Only what a pattern matches."""
    import tensorflow as tf

    words = split_around(texts, keep=pattern)
    mask = tf.strings.regex_full_match(words.flat_values, pattern)
    return tf.ragged.boolean_mask(words, words.with_flat_values(mask))


def _byte_level(spec):
    """GPT-2's words, of which the model sees the bytes."""
    split = _whole
    if spec.get("use_regex", True):
        split = _with_cuts(GPT2, splitter(keep=to_re2(GPT2)))
    if not spec["add_prefix_space"]:
        return split

    def split_prefixed(texts):
        import tensorflow as tf

        return split(tf.strings.regex_replace(texts, r"\A([^ ])", r" \1"))

    return split_prefixed


def _with_cuts(source, split):
    """Make the cuts that stand for a pattern's look-ahead, then split."""
    if cuts(source) is None:
        return split
    pattern, rewrite = cuts(source)

    def split_cut(texts):
        import tensorflow as tf

        return split(tf.strings.regex_replace(texts, pattern, rewrite))

    return split_cut
