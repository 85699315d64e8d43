"""python-docs: the English that every Python carries in its standard library.

The docstrings of the standard library are read with `ast` from its sources (nothing
is imported or run), cut into paragraphs and cleaned. No download is needed.
"""

import ast
import collections
import functools
import os
import re
import warnings

import numpy as np

from keras_tfm.data.errors import DataError
from keras_tfm.data.splits import split_indices

SKIPPED_FOLDERS = {
    "__pycache__",
    "_bundled",
    "dist-packages",
    "idle_test",
    "lib-dynload",
    "site-packages",
    "test",
    "tests",
    "turtledemo",
}
NOT_CLASSES = {"distutils", "idlelib", "lib2to3"}  # gone from, or unlike, the rest
MIN_CHARACTERS = 40
MIN_WORDS = 6


def _source_files(folder):
    """Yield (path, top-level name) of the library's sources, in sorted order."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(".py"):
            yield path, name[:-3]
        elif os.path.isdir(path) and name.isidentifier():
            if name in SKIPPED_FOLDERS:
                continue
            for root, folders, files in os.walk(path):
                folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
                for file in sorted(files):
                    if file.endswith(".py"):
                        yield os.path.join(root, file), name


def _docstrings(path):
    """Return the docstrings of a source file, outermost first."""
    with open(path, "rb") as file:
        source = file.read()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old sources
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []  # e.g. templates and files of another Python
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(n) for n in ast.walk(tree) if isinstance(n, kinds))
    return [text for text in found if text]


def docstrings_of(folder):
    """Yield the docstrings of all sources in a folder.

    Args:
        folder: str, that of the standard library.
    """
    for path, _ in _source_files(folder):
        yield from _docstrings(path)


def clean_paragraphs(text):
    """Cut a text at its blank lines and keep the paragraphs that read as prose.

    White space is folded. A doctest (from its first `>>>` on) is dropped, and so is
    what is shorter than 40 characters or 6 words, or is mostly not letters.

    Args:
        text: str, a docstring or a manual page.

    Returns: list of str.
    """
    paragraphs = []
    for block in re.split(r"\n\s*\n", text):
        lines = []
        for line in block.splitlines():
            if line.lstrip().startswith(">>>"):
                break
            lines.append(line)
        paragraph = " ".join(" ".join(lines).split())
        letters = sum(c.isalpha() or c == " " for c in paragraph)
        if (
            len(paragraph) >= MIN_CHARACTERS
            and paragraph.count(" ") + 1 >= MIN_WORDS
            and letters >= 0.75 * len(paragraph)
            and paragraph.isprintable()
        ):
            paragraphs.append(paragraph)
    return paragraphs


@functools.lru_cache(maxsize=1)
def _paragraphs():
    folder = os.path.dirname(os.__file__)
    seen, result = set(), []
    for path, package in _source_files(folder):
        for docstring in _docstrings(path):
            for paragraph in clean_paragraphs(docstring):
                if paragraph not in seen:
                    seen.add(paragraph)
                    result.append((paragraph, package))
    if not result:
        raise DataError(f"No docstrings found in the standard library at {folder}.")
    return tuple(result)


def python_docs_paragraphs():
    """Read the paragraphs of the standard library's docstrings.

    Tests, bundled wheels and installed packages are left out. The order is that of the
    sorted paths, every paragraph is there once.

    Returns: list of (text, top-level package or module name).

    Raises:
        DataError: if the Python at hand carries no sources.
    """
    return list(_paragraphs())


def hide_name(text, name):
    """Replace a module's name in a text, also where it leads a dotted name.

    Args:
        text: str.
        name: str, a top-level name such as "email"; "email.message" goes with it.

    Returns: str, with "it" in the name's place.
    """
    pattern = rf"(?<!\w){re.escape(name)}(?:\.\w+)*(?!\w)"
    return re.sub(pattern, "it", text, flags=re.IGNORECASE)


def python_docs_classification(num_classes=8, split="all", seed=0, max_ratio=2.0):
    """Which module does this paragraph describe? Real text, labels for free.

    The classes are the `num_classes` top-level names with most paragraphs, in
    alphabetical order. A class larger than `max_ratio` times the smallest is thinned
    at random, and each paragraph's own module name is hidden, so the answer
    is not written in the question. Compare with `majority_baseline`.

    Args:
        num_classes: int, at least 2.
        split: "train" (90 %), "validation" (10 %, stratified) or "all".
        seed: int, decides thinning, order and split.
        max_ratio: float >= 1, largest class over smallest.

    Returns: `(texts, labels, class_names)`: list of str, int32 array, list of str.

    Raises:
        ValueError: for an unknown `split` or a `num_classes` that is not there.
    """
    check_split(split)
    by_name = collections.defaultdict(list)
    for text, name in _paragraphs():
        if not name.startswith("_") and name not in NOT_CLASSES:
            by_name[name].append(text)
    if not 2 <= num_classes <= len(by_name):
        raise ValueError(
            f"`num_classes` must be from 2 to {len(by_name)}, got {num_classes}."
        )
    largest = sorted(by_name, key=lambda name: (-len(by_name[name]), name))
    class_names = sorted(largest[:num_classes])
    limit = int(max_ratio * min(len(by_name[name]) for name in class_names))
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for label, name in enumerate(class_names):
        order = rng.permutation(len(by_name[name]))[:limit]
        texts += [hide_name(by_name[name][i], name) for i in order]
        labels += [label] * len(order)
    labels = np.array(labels, "int32")
    chosen = part_of_split(split, len(texts), seed, labels)
    chosen = rng.permutation(chosen)
    return [texts[i] for i in chosen], labels[chosen], class_names


def python_docs_text(split="all", seed=0):
    """Read the library's docstrings and language reference as one text.

    The docstrings' paragraphs come with those of `pydoc_data.topics`, the language
    reference behind Python's `help()`. One paragraph a line; the training part and
    the validation part share no paragraph.

    Args:
        split: "train" (90 %), "validation" (10 %) or "all".
        seed: int, decides the split. The order stays that of the sources.

    Returns: str.

    Raises:
        ValueError: for an unknown `split`.
    """
    check_split(split)
    paragraphs = [text for text, _ in _paragraphs()]
    seen = set(paragraphs)
    for topic in _topics():
        for paragraph in clean_paragraphs(topic):
            if paragraph not in seen:
                seen.add(paragraph)
                paragraphs.append(paragraph)
    chosen = part_of_split(split, len(paragraphs), seed)
    return "\n".join(paragraphs[i] for i in chosen) + "\n"


def _topics():
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave it out
        return []
    return [topics[name] for name in sorted(topics)]


def check_split(split):
    """Refuse what is no split.

    Args:
        split: str.
    """
    if split not in ("train", "validation", "all"):
        raise ValueError(
            f'`split` must be "train", "validation" or "all", got {split!r}.'
        )


def part_of_split(split, count, seed, labels=None):
    """Numbers of the examples of a split.

    Args:
        split: see `python_docs_text`.
        count: int, how many examples there are.
        seed: int.
        labels: int (count,) whose shares the parts keep, or None.

    Returns: int array.
    """
    if split == "all":
        return np.arange(count)
    train, validation = split_indices(count, 0.1, seed, labels)
    return train if split == "train" else validation
