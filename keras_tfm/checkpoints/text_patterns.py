r"""Regular expressions of the reference library, as TensorFlow's RE2 understands them.

RE2 has no look-ahead, and its `\s`, `\w` know ASCII only. Two things make up for it:
classes are written out as the reference has them, and the one look-ahead that
tokenizers use, `\s+(?!\S)`, becomes cuts made beforehand: before the last blank of a
run that a word follows.
"""

import re

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.unicode_ranges import NEWER, REGEX_WORD, WHITESPACE, WORD

CUT = b"\xff"  # no text in UTF-8 holds it
LOOK_AHEAD = r"|\s+(?!\S)|\s+"
_LETTERS = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}"
WORD_CLASS = _LETTERS + WORD  # of the pre-tokenizer Whitespace
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_ESCAPE = re.compile(r"\\p\{\^?(\w+)\}|\\P\{(\w+)\}|\\(.)", re.S)


def to_re2(pattern):
    r"""Rewrite a pattern for RE2, without its `\s+(?!\S)`; see `cuts`.

    Args:
        pattern: str, of the reference library.

    Returns: str.

    Raises:
        CheckpointError: for what RE2 cannot do.
    """
    if pattern.endswith(LOOK_AHEAD):
        pattern = pattern.removesuffix(LOOK_AHEAD) + r"|\s+"
    parts, at, inside = [], 0, False
    while at < len(pattern):
        escape = _ESCAPE.match(pattern, at)
        if escape:
            parts.append(_escape(pattern, escape, inside))
            at = escape.end()
            continue
        letter = pattern[at]
        if letter == "[" and inside:
            raise _refused(pattern)
        inside = (inside or letter == "[") and letter != "]"
        parts.append(letter)
        at += 1
    result = "".join(parts)
    if re.search(r"\(\?[=!<>|#P(&R]|[*+?}]\+|\\[1-9GKkRX]", result):
        raise _refused(pattern)
    return result


def cuts(pattern):
    """Where to cut before a pattern is used: (pattern, rewrite) for RE2, or None.

    Args:
        pattern: str, of the reference library.
    """
    if not pattern.endswith(LOOK_AHEAD):
        return None
    blank, word = f"[{WHITESPACE}]", f"[^{WHITESPACE}]"
    last = blank
    if r"\s*[\r\n]" in pattern:  # takes a run up to its last line end
        last = "[" + WHITESPACE.replace(r"\x{9}-\x{D}", r"\x{9}\x{B}-\x{C}") + "]"
    return f"({blank})({last}{word})", rb"\1" + CUT + rb"\2"


def _escape(pattern, match, inside):
    r"""One `\...` of a pattern, for RE2."""
    name, negated, letter = match.groups()
    if negated or (name and "^" in match.group()):
        return _property(negated or name, inside, True, pattern)
    if name:
        return _property(name, inside, False, pattern)
    if letter in "sS":
        return _class(WHITESPACE, inside, letter == "S", pattern)
    if letter in "wW":
        return _class(_LETTERS + REGEX_WORD, inside, letter == "W", pattern)
    if letter in "dD":
        return _class(r"\p{Nd}" + NEWER["Nd"], inside, letter == "D", pattern)
    return match.group()


def _property(name, inside, negated, pattern):
    return _class(rf"\p{{{name}}}" + NEWER.get(name, ""), inside, negated, pattern)


def _class(members, inside, negated, pattern):
    if not inside:
        return f"[{'^' if negated else ''}{members}]"
    if negated:
        raise _refused(pattern)
    return members


def _refused(pattern):
    return CheckpointError(
        f"The pattern {pattern!r} splits texts in a way that a TensorFlow graph cannot."
    )
