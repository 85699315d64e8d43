"""Pairs of texts: two rows of one label, and Python's docstrings in two parts."""

import numpy as np
import pytest

from keras_tfm import data
from keras_tfm.data.python_docs_pairs import cut_docstring

pytestmark = pytest.mark.tensorflow

PAIRS = [("a b", "b a b a b"), ("b", "a"), ("a a a", "b b"), ("", "b a a b")]


@pytest.fixture(scope="module")
def tokenizer():
    return data.train_wordpiece([text for pair in PAIRS for text in pair], 20)


def test_rows_of_a_pair_follow_each_other(tokenizer):
    ids = data.special_ids(tokenizer)
    batches = list(data.text_pairs_dataset(PAIRS, tokenizer, 6, batch_size=3))
    assert [len(labels) for _, labels in batches] == [6, 2]
    texts = [text for pair in PAIRS for text in pair]
    at = 0
    for features, labels in batches:
        assert not np.any(features["segment_ids"])
        rows = zip(*(features[n].numpy() for n in ("token_ids", "padding_mask")))
        for (row, real), label in zip(rows, labels):
            words = data.encode(tokenizer, [texts[at]])[0][:4]
            assert list(row[real]) == [ids["start"], *words, ids["end"]]
            assert label == at // 2 and np.all(row[~real] == ids["pad"])
            at += 1
    assert at == 8


def test_training_shows_every_pair_once(tokenizer):
    pairs = [("a " * (1 + n % 30), "b " * (1 + n % 7)) for n in range(50)]
    dataset = data.text_pairs_dataset(pairs, tokenizer, 64, 8, training=True)
    orders = []
    for _ in range(2):
        labels = np.concatenate([labels for _, labels in dataset])
        assert sorted(labels[::2]) == list(range(50))
        np.testing.assert_array_equal(labels[::2], labels[1::2])
        orders.append(labels)
    assert np.any(orders[0] != orders[1])


def test_a_docstring_in_two_parts():
    rest = "It takes a path, and gives nothing back to those who call it at all."
    assert cut_docstring(f"Remove a\n file.\n\n{rest}\n") == ("Remove a file.", rest)
    assert cut_docstring(f"Remove a file. {rest}") == ("Remove a file.", rest)
    assert cut_docstring("Remove a file.") is None
    assert cut_docstring(f"Remove.\n\n{rest}") is None
    assert (
        cut_docstring("Remove a file.\n\n>>> remove('a very long path of a file')")
        is None
    )


def test_python_docs():
    train, held_out = map(data.python_docs_pairs, ("train", "validation"))
    assert set(data.python_docs_pairs()) == {*train, *held_out}
    assert len(train) > 1000 and len(held_out) == pytest.approx(len(train) / 9, rel=0.1)
    texts = [text for pair in train + held_out for text in pair]
    assert len(set(texts)) == len(texts)
    with pytest.raises(ValueError, match="`split` must be"):
        data.python_docs_pairs("test")
