"""python-docs in pairs: what a docstring says first, and what it says then."""

import functools
import os
import re

from keras_tfm.data import python_docs
from keras_tfm.data.errors import DataError

MIN_FIRST_WORDS = 3
_SENTENCE = re.compile(r"(.+?[.!?])\s+(?=[A-Z])(.*)", re.S)


def python_docs_pairs(split="all", seed=0):
    """Read pairs of texts of one docstring: its first sentence or paragraph, the rest.

    For search: the first says in short what the second is about. Every text is there
    once; the order is that of the sources.

    Args:
        split: "train" (90 %), "validation" (10 %) or "all".
        seed: int, decides the split.

    Returns: list of (str, str).

    Raises:
        ValueError: for an unknown `split`.
        DataError: if the Python at hand carries no sources.
    """
    python_docs.check_split(split)
    pairs = _pairs()
    return [pairs[i] for i in python_docs.part_of_split(split, len(pairs), seed)]


def cut_docstring(text):
    """Cut a docstring into its beginning and the rest of its prose.

    Args:
        text: str.

    Returns: (str, str), or None if either is too short.
    """
    first, *rest = re.split(r"\n\s*\n", text, maxsplit=1)
    first = " ".join(first.split())
    rest = " ".join(python_docs.clean_paragraphs(rest[0] if rest else ""))
    if not rest:  # one paragraph, perhaps of several sentences
        sentences = _SENTENCE.fullmatch(first)
        first, rest = sentences.groups() if sentences else (first, "")
    long_enough = len(rest) >= python_docs.MIN_CHARACTERS
    if first.count(" ") + 1 < MIN_FIRST_WORDS or not long_enough:
        return None
    return (first, rest) if (first + rest).isprintable() else None


@functools.lru_cache(maxsize=1)
def _pairs():
    folder = os.path.dirname(os.__file__)
    seen, result = set(), []
    for text in python_docs.docstrings_of(folder):
        pair = cut_docstring(text)
        if pair and not seen & set(pair):
            seen |= set(pair)
            result.append(pair)
    if not result:
        raise DataError(f"No docstrings found in the standard library at {folder}.")
    return tuple(result)
