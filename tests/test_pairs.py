"""Next-sentence pairs and two texts in one row."""

import numpy as np
import pytest

from keras_tfm.data import next_sentence_pairs, pack_pair, truncate_pair

DOCUMENTS = [[f"{letter}{i}" for i in range(40)] for letter in "abc"]


def test_label_one_means_not_next():  # FAULTS O61
    first, second, labels = next_sentence_pairs(DOCUMENTS)
    assert len(first) == len(second) == len(labels) == 3 * 39
    for a, b, label in zip(first, second, labels):
        is_next = a[0] == b[0] and int(b[1:]) == int(a[1:]) + 1
        assert label == (not is_next)
        assert is_next or a[0] != b[0]  # a stranger is of another document
    assert 0.35 < labels.mean() < 0.65


def test_pairs_are_seeded():
    one, two = next_sentence_pairs(DOCUMENTS, 1), next_sentence_pairs(DOCUMENTS, 1)
    assert one[1] == two[1]
    assert one[1] != next_sentence_pairs(DOCUMENTS, 2)[1]


def test_too_few_documents():
    with pytest.raises(ValueError, match="at least two documents .* got 1"):
        next_sentence_pairs([["a", "b"], []])


@pytest.mark.parametrize(
    ("lengths", "room", "expected"),
    [
        ((3, 4), 9, (3, 4)),
        ((10, 2), 8, (6, 2)),
        ((2, 10), 8, (2, 6)),
        ((10, 8), 9, (5, 4)),
        ((8, 8), 3, (2, 1)),
        ((5, 0), 3, (3, 0)),
        ((4, 4), 0, (0, 0)),
    ],
)
def test_the_longer_one_is_cut(lengths, room, expected):
    first, second = truncate_pair(np.arange(lengths[0]), np.arange(lengths[1]), room)
    assert (len(first), len(second)) == expected
    assert first.tolist() == list(range(expected[0]))


def test_pack_pair():
    ids, segments = pack_pair([7, 8], [9], 10, start_id=2, end_id=3)
    assert ids.tolist() == [2, 7, 8, 3, 9, 3]
    assert segments.tolist() == [0, 0, 0, 0, 1, 1]
    ids, segments = pack_pair([7, 8, 7], [9], 6, 2, 3)
    assert ids.tolist() == [2, 7, 8, 3, 9, 3]


def test_pack_single():
    ids, segments = pack_pair([7, 8, 9], None, 4, start_id=2, end_id=3)
    assert ids.tolist() == [2, 7, 8, 3] and segments.tolist() == [0, 0, 0, 0]
    ids, _ = pack_pair([], None, 4, 2, 3)  # an empty text: special tokens only
    assert ids.tolist() == [2, 3]
    ids, segments = pack_pair([], [], 4, 2, 3)
    assert ids.tolist() == [2, 3, 3] and segments.tolist() == [0, 0, 1]


def test_no_room():
    with pytest.raises(ValueError, match="`max_length` must be at least 3, got 2"):
        pack_pair([1], [1], 2, 2, 3)
