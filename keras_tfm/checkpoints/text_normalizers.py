"""What is done to a text before it is split, as TensorFlow operations.

A normalizer takes strings (P,) and gives strings (P,). `tokenizer.json` names it by
its `type`.
"""

import re

from keras_tfm.checkpoints import unicode_ranges as ranges
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.text_patterns import CUT, to_re2

UNICODE_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def make_normalizer(spec):
    """Make the function of a normalizer.

    Args:
        spec: dict with `type` and its fields, or None.

    Returns: callable, strings (P,) -> strings (P,).

    Raises:
        CheckpointError: for a kind that has no TensorFlow counterpart.
    """
    if spec is None:
        return lambda texts: texts
    kind = spec["type"]
    if kind == "Sequence":
        return _sequence([make_normalizer(part) for part in spec["normalizers"]])
    if kind in UNICODE_FORMS:
        return _unicode_form(kind)
    if kind == "BertNormalizer":
        return _bert(spec)
    makers = {
        "Lowercase": lambda: lowercase,
        "StripAccents": lambda: _replace(f"[{ranges.MARKS}]", ""),
        "Strip": lambda: _strip(spec["strip_left"], spec["strip_right"]),
        "Prepend": lambda: _replace(r"\A((?s:.))", _literal(spec["prepend"]) + r"\1"),
        "Replace": lambda: _replace_spec(spec),
    }
    if kind not in makers:
        raise CheckpointError(
            f"The normalizer {kind!r} is not known: known are Sequence, "
            f"BertNormalizer, {', '.join((*UNICODE_FORMS, *makers))}."
        )
    return makers[kind]()


def lowercase(texts):
    """Lowercase character by character; a capital sigma never becomes a final one."""
    import tensorflow as tf

    texts = tf.strings.regex_replace(texts, "\u03a3", "\u03c3")
    # `lower` ends a text at its first NUL.
    parts = tf.strings.split(tf.strings.regex_replace(texts, r"\x{0}", CUT), sep=CUT)
    first = tf.ragged.range(parts.row_lengths()).flat_values == 0
    before = tf.where(first, "", tf.strings.unicode_encode([0], "UTF-8"))
    words = tf.strings.lower(parts.flat_values, encoding="utf-8")
    words = parts.with_flat_values(tf.strings.join([before, words]))
    return tf.strings.reduce_join(words, axis=1)


def _bert(spec):
    """BERT's rules, in its order: clean, set Chinese apart, accents off, lowercase."""
    strip_accents = spec.get("strip_accents")
    if strip_accents is None:
        strip_accents = spec["lowercase"]
    steps = []
    if spec["clean_text"]:
        steps.append(_replace(f"[{ranges.BERT_CONTROL}]", ""))
        steps.append(_replace(f"[{ranges.WHITESPACE}]", " "))
    if spec["handle_chinese_chars"]:
        steps.append(_replace(f"([{ranges.BERT_CJK}])", r" \1 "))
    if strip_accents:
        steps.append(_unicode_form("NFD"))
        steps.append(_replace(f"[{ranges.BERT_ACCENTS}]", ""))
    if spec["lowercase"]:
        steps.append(lowercase)
    return _sequence(steps)


def _sequence(steps):
    def apply(texts):
        for step in steps:
            texts = step(texts)
        return texts

    return apply


def _unicode_form(form):
    def apply(texts):
        import tensorflow_text

        return tensorflow_text.normalize_utf8(texts, form)

    return apply


def _replace(pattern, rewrite):
    def apply(texts):
        import tensorflow as tf

        return tf.strings.regex_replace(texts, pattern, rewrite)

    return apply


def _replace_spec(spec):
    (kind, pattern), *_ = spec["pattern"].items()
    pattern = re.escape(pattern) if kind == "String" else to_re2(pattern)
    return _replace(pattern, _literal(spec["content"]))


def _strip(left, right):
    blanks = f"[{ranges.WHITESPACE}]+"
    ends = [rf"\A{blanks}"] * left + [rf"{blanks}\z"] * right
    return _replace("|".join(ends), "") if ends else make_normalizer(None)


def _literal(text):
    """A text as RE2's rewrite, in which a backslash speaks of groups."""
    return text.replace("\\", r"\\")
