"""Token ids to texts, as TensorFlow operations: a table of pieces, joined.

What the reference's decoders do to a token depends on whether it is the first one, so
there are two tables.
"""

import dataclasses
import re

from keras_tfm.checkpoints.byte_pairs import byte_alphabet, token_bytes
from keras_tfm.checkpoints.errors import CheckpointError

METASPACE = "\u2581"
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
        first: list of bytes, index is id.
        later: list of bytes.
    """

    first: list
    later: list


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


def join(pieces, ids):
    """Texts of ids.

    Args:
        pieces: (first, later), two string tensors (V + 1,).
        ids: ragged int32 (B, T), all in [0, V].

    Returns: string (B,); bytes that are no UTF-8 become U+FFFD.
    """
    import tensorflow as tf

    place = tf.ragged.range(ids.row_lengths()).flat_values
    first, later = (tf.gather(table, ids.flat_values) for table in pieces)
    words = ids.with_flat_values(tf.where(place == 0, first, later))
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
