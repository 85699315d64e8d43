"""python-docs: cleaning, classes, splits, and that nothing leaks between them."""

import collections

import numpy as np
import pytest

from keras_tfm.data import (
    majority_baseline,
    python_docs_classification,
    python_docs_paragraphs,
    python_docs_text,
)
from keras_tfm.data.python_docs import clean_paragraphs, hide_name


def test_paragraphs_are_real_and_different():
    paragraphs = python_docs_paragraphs()
    texts = [text for text, _ in paragraphs]
    assert len(texts) > 8000
    assert len(set(texts)) == len(texts)
    names = collections.Counter(name for _, name in paragraphs)
    assert {"asyncio", "email", "logging", "unittest"} <= set(names)
    assert "test" not in names and "site-packages" not in names
    assert paragraphs == python_docs_paragraphs()
    assert paragraphs is not python_docs_paragraphs()  # a user may change theirs


def test_clean_paragraphs():
    text = """Fold   the white
        space of one paragraph into single blanks.

    Too short to keep.

    A doctest is dropped from its first line on, like this:
    >>> 1 + 1
    2

    >>> print("nothing is left of a paragraph that is only a doctest")

    ----- ===== 12345 67890 ----- ===== 12345 67890 ----- ===== 12345 67890 is no prose
    """
    assert clean_paragraphs(text) == [
        "Fold the white space of one paragraph into single blanks.",
        "A doctest is dropped from its first line on, like this:",
    ]


def test_the_answer_is_hidden():
    assert hide_name("The email.message module, Email emails.", "email") == (
        "The it module, it emails."
    )
    texts, labels, names = python_docs_classification()
    for text, label in zip(texts, labels):
        words = text.lower().replace(".", " ").split()
        assert names[label] not in words


def test_classes_are_balanced_enough():
    texts, labels, names = python_docs_classification(num_classes=6)
    counts = np.bincount(labels)
    assert len(texts) == len(labels) and len(names) == len(counts) == 6
    assert names == sorted(names)
    assert counts.max() <= 2 * counts.min()
    assert 1 / 6 <= majority_baseline(labels) <= 2 / 7  # 2 of 2 + 5


def test_classification_splits():
    everything, _, names = python_docs_classification()
    parts = [python_docs_classification(split=s) for s in ("train", "validation")]
    assert [part[2] for part in parts] == [names, names]
    train, validation = (part[0] for part in parts)
    assert collections.Counter(train + validation) == collections.Counter(everything)
    assert len(validation) == pytest.approx(0.1 * len(everything), abs=8)
    assert set(parts[1][1]) == set(range(8))
    assert python_docs_classification(split="train")[0] == train
    assert python_docs_classification(split="train", seed=1)[0] != train


def test_text_splits_share_no_paragraph():
    train, validation = python_docs_text("train"), python_docs_text("validation")
    a, b = set(train.splitlines()), set(validation.splitlines())
    assert not a & b
    assert len(train) + len(validation) == len(python_docs_text())
    assert 0.05 < len(validation) / len(train) < 0.2
    assert len(train) > 1_000_000


def test_unknown_split_and_too_many_classes():
    with pytest.raises(ValueError, match="`split` must be .* got 'test'"):
        python_docs_text("test")
    with pytest.raises(ValueError, match="`split` must be .* got 'dev'"):
        python_docs_classification(split="dev")
    with pytest.raises(ValueError, match="`num_classes` must be from 2 to .* got 1"):
        python_docs_classification(num_classes=1)
