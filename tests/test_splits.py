"""Splits and the majority baseline."""

import numpy as np
import pytest

from keras_tfm.data import majority_baseline, split_indices


def test_split_covers_and_does_not_overlap():
    train, held_out = split_indices(50, 0.2, seed=1)
    assert len(train) == 40 and len(held_out) == 10
    assert sorted([*train, *held_out]) == list(range(50))
    again = split_indices(50, 0.2, seed=1)
    np.testing.assert_array_equal(again[1], held_out)
    assert not np.array_equal(split_indices(50, 0.2, seed=2)[1], held_out)


def test_split_is_stratified():
    labels = np.array([0] * 30 + [1] * 10)
    train, held_out = split_indices(40, 0.1, labels=labels)
    assert np.bincount(labels[held_out]).tolist() == [3, 1]
    assert np.bincount(labels[train]).tolist() == [27, 9]


def test_tiny_splits_keep_a_training_example():
    assert [len(part) for part in split_indices(2, 0.5)] == [1, 1]
    assert [len(part) for part in split_indices(1, 0.5)] == [1, 0]
    assert [len(part) for part in split_indices(0, 0.5)] == [0, 0]


def test_fraction_is_checked():
    with pytest.raises(ValueError, match=r"`fraction` must be inside \(0, 1\), got 1"):
        split_indices(10, 1)


def test_majority():
    assert majority_baseline([0, 1, 1, 2]) == 0.5
    assert majority_baseline([0, 1, 1], [0, 0, 0, 1]) == 0.25
