"""Token ids to texts, as TensorFlow operations: a table of pieces, joined.

What the reference's decoders do to a token depends on whether it is the first one, so
there are two tables.
"""

import dataclasses
import re

from keras_tfm.checkpoints.byte_pairs import byte_alphabet, token_bytes
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.sentencepiece_protos import (
    BYTE,
    CONTROL,
    METASPACE,
    UNKNOWN,
    parse,
)

CLEANUPS = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
_BYTE = re.compile(r"<0x([0-9A-F]{2})>\Z")


@dataclasses.dataclass(frozen=True)
class Pieces:
    """What each token adds to a text: bytes at its start, and further on.

    Args:
        first: list of bytes, index is id; None: adds nothing, and is not the first.
        later: list of bytes.
        until_text: bool, every token before the first that adds something is "first".
    """

    first: list
    later: list
    until_text: bool = False


def make_pieces(spec, tokens):
    """The pieces of a decoder.

    Args:
        spec: dict with `type` and its fields, or None.
        tokens: list of str, index is id.

    Returns: `Pieces`.

    Raises:
        CheckpointError: for a kind that is not known.
    """
    write = _writer(spec)
    return Pieces(
        first=[write(token, True) for token in tokens],
        later=[write(token, False) for token in tokens],
    )


def sentencepiece_pieces(proto, tokens):
    """The pieces of a SentencePiece model; tokens beyond it add what they are.

    Args:
        proto: bytes.
        tokens: list of str, index is id.

    Returns: `Pieces`.
    """
    message = parse(proto)
    rules = message.normalizer_spec
    drops = rules.add_dummy_prefix or rules.remove_extra_whitespaces
    first, later = [], []
    for piece in message.pieces:
        text = piece.piece.replace(METASPACE, " ")
        if piece.type == CONTROL:
            text = None
        elif piece.type == UNKNOWN:
            text = message.trainer_spec.unk_surface
        elif piece.type == BYTE:
            text = bytes.fromhex(text[3:5])
        start = text
        if drops and piece.piece.startswith(METASPACE):
            start = text[1:]
        first.append(_utf8(start))
        later.append(_utf8(text))
    others = [_utf8(token) for token in tokens[len(first) :]]
    return Pieces(first + others, later + others, rules.remove_extra_whitespaces)


def join(first, later, until_text, ids):
    """Texts of ids.

    Args:
        first: string tensor (V + 1,).
        later: string tensor (V + 1,).
        until_text: bool, see `Pieces`.
        ids: ragged int32 (B, T), all in [0, V].

    Returns: string (B,); bytes that are no UTF-8 become U+FFFD.
    """
    import tensorflow as tf

    first, later = (tf.gather(table, ids.flat_values) for table in (first, later))
    counted = first != "" if until_text else tf.ones_like(first, tf.bool)
    before = tf.cumsum(tf.cast(counted, tf.int32), exclusive=True)
    at_start = tf.gather(tf.concat([before, [0]], 0), ids.row_starts())
    before -= tf.gather(at_start, ids.value_rowids())  # of the same row
    words = ids.with_flat_values(tf.where(before == 0, first, later))
    texts = tf.strings.reduce_join(words, axis=1)
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def _writer(spec):
    """(token, whether it is the first) -> bytes."""
    kind = "None" if spec is None else spec["type"]
    makers = {
        "None": lambda: lambda token, first: _utf8(token if first else " " + token),
        "ByteLevel": _byte_level,
        "WordPiece": lambda: _wordpiece(spec),
        "Metaspace": lambda: _metaspace(spec),
        "Sequence": lambda: _sequence(spec["decoders"]),
    }
    if kind not in makers:
        raise CheckpointError(
            f"The decoder {kind!r} is not known: known are {', '.join(makers)}."
        )
    return makers[kind]()


def _utf8(token):
    """Bytes of a str; bytes and None stay."""
    if not isinstance(token, str):
        return token
    return token.encode("utf-8", "replace")


def _byte_level():
    alphabet = byte_alphabet()
    return lambda token, first: token_bytes(token, alphabet)


def _wordpiece(spec):
    def write(token, first):
        if not first:
            goes_on = token.startswith(spec["prefix"])
            token = token.replace(spec["prefix"], "", 1) if goes_on else " " + token
        if spec["cleanup"]:
            for old, new in CLEANUPS:
                token = token.replace(old, new)
        return _utf8(token)

    return write


def _metaspace(spec):
    drops = spec.get("prepend_scheme", "always") != "never"
    if not spec.get("add_prefix_space", True):
        drops = False

    def write(token, first):
        return _utf8(token.replace(spec["replacement"], "" if first and drops else " "))

    return write


def _sequence(specs):
    """Llama's kind: replace, bytes, then a blank off the start of the text."""
    replaces = [s for s in specs if s["type"] == "Replace"]
    strips = [s for s in specs if s["type"] == "Strip"]
    kinds = {s["type"] for s in specs}
    known = {"Replace", "ByteFallback", "Fuse", "Strip"}
    plain = all(s["content"] == " " and s["stop"] == 0 for s in strips)
    if (
        not kinds <= known
        or not plain
        or any("String" not in s["pattern"] for s in replaces)
    ):
        raise CheckpointError(f"The decoder Sequence of {sorted(kinds)} is not known.")
    most = sum(s["start"] for s in strips)

    def write(token, first):
        for spec in replaces:
            token = token.replace(spec["pattern"]["String"], spec["content"])
        byte = _BYTE.match(token) if "ByteFallback" in kinds else None
        if byte:
            return bytes.fromhex(byte.group(1))
        if first:
            blanks = len(token) - len(token.lstrip(" "))
            token = token[min(most, blanks) :]
        return _utf8(token)

    return write
