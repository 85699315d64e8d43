"""Buckets, shuffling and the check of token ids."""

import collections

import numpy as np
import pytest

from keras_tfm.data import (
    bucket_lengths,
    bucketed_dataset,
    check_token_ids,
    count_cut,
    gather_dataset,
    pad_rows,
)


def test_check_token_ids():  # FAULTS O26
    check_token_ids(np.array([[0, 9], [3, 4]]), 10)
    check_token_ids([np.array([0, 9]), np.array([], "int32")], 10)
    for wrong in (10, -1, 2**40):
        with pytest.raises(ValueError, match=rf"in \[0, 10\), got {wrong}\."):
            check_token_ids(np.array([[1, wrong]]), 10)
    with pytest.raises(ValueError, match=r"got 10 in row 1\."):
        check_token_ids([[1], [2, 10]], 10)


def test_count_cut():
    assert count_cut([3, 8, 9, 20], 8) == 2
    assert count_cut([], 8) == 0


@pytest.mark.parametrize(
    ("lengths", "max_length", "buckets", "expected"),
    [
        ([3, 60, 100], 128, None, [16, 32, 56, 104]),
        ([3, 200], 128, None, [16, 32, 64, 128]),
        ([3, 5], 128, None, [8]),
        ([3, 5], 4, None, [4]),
        ([], 16, None, [8]),
        ([3, 100], 128, [], [128]),
        ([3, 20], 128, [16, 32], [16, 32]),
        ([3, 50], 128, [32, 16], [16, 32, 128]),
    ],
)
def test_bucket_lengths(lengths, max_length, buckets, expected):
    assert bucket_lengths(lengths, max_length, buckets) == expected


def test_bad_buckets():
    for wrong in ([0, 8], [8, 200]):
        with pytest.raises(
            ValueError, match=r"`buckets` must be lengths in \[1, 128\]"
        ):
            bucket_lengths([3], 128, wrong)


def test_pad_rows():
    assert pad_rows([[1, 2, 3], [], [4]], 2, pad_id=9).tolist() == [
        [1, 2],
        [9, 9],
        [4, 9],
    ]
    assert pad_rows([], 2).shape == (0, 2)


def rows_dataset(lengths, buckets, batch_size, shuffle, seed=0):
    rows = [np.full(n, i + 1, "int32") for i, n in enumerate(lengths)]

    def arrays(numbers, length):
        return pad_rows([rows[i] for i in numbers], length), numbers

    return bucketed_dataset(
        arrays, np.array(lengths), buckets, batch_size, shuffle, seed
    )


LENGTHS = [1, 9, 3, 4, 12, 2, 7, 8, 16, 5, 6, 2, 3, 10, 11]


@pytest.mark.tensorflow
def test_shuffled_buckets():
    dataset = rows_dataset(LENGTHS, [4, 8, 16], 2, True)
    assert dataset.cardinality() == 8
    for _ in range(2):
        seen, sizes = [], collections.Counter()
        for ids, numbers in dataset:
            seen += numbers.numpy().tolist()
            sizes[tuple(ids.shape)] += 1
            for row, number in zip(ids.numpy(), numbers.numpy()):
                assert row[row > 0].tolist() == [number + 1] * LENGTHS[number]
        assert sorted(seen) == list(range(15))  # no row is lost or doubled
        # Six rows of at most 4, five of at most 8 (one moves up), four above.
        assert sizes == {(2, 4): 3, (2, 8): 2, (2, 16): 2, (1, 16): 1}


@pytest.mark.tensorflow
def test_each_pass_has_a_new_order_and_the_seed_decides_it():
    def orders(seed):
        dataset = rows_dataset(LENGTHS, [4, 16], 2, True, seed)
        return [
            [n for _, numbers in dataset for n in numbers.numpy().tolist()]
            for _ in range(2)
        ]

    first = orders(0)
    assert first[0] != first[1]
    assert first == orders(0)
    assert first != orders(1)


@pytest.mark.tensorflow
def test_in_order():
    dataset = rows_dataset(LENGTHS, [4, 8, 16], 4, False)
    assert dataset.cardinality() == 4
    batches = list(dataset)
    numbers = [n for _, numbers in batches for n in numbers.numpy().tolist()]
    assert numbers == list(range(15))
    assert [tuple(ids.shape) for ids, _ in batches] == [(4, 16)] * 3 + [(3, 16)]
    dataset = rows_dataset([2, 3, 7, 1, 12, 2, 1], [4, 8, 16], 2, False)
    shapes = [tuple(ids.shape) for ids, _ in dataset]
    assert shapes == [(2, 4), (2, 8), (2, 16), (1, 4)]


@pytest.mark.tensorflow
def test_rows_longer_than_the_last_bucket_are_cut():
    (ids, _), *_ = rows_dataset([9, 2], [4], 2, False)
    assert ids.numpy().tolist() == [[1, 1, 1, 1], [2, 2, 0, 0]]


def test_no_rows_and_no_batch():
    with pytest.raises(ValueError, match="at least one example, got none"):
        rows_dataset([], [4], 2, True)
    with pytest.raises(ValueError, match="`batch_size` must be positive, got 0"):
        rows_dataset([1], [4], 0, True)


@pytest.mark.tensorflow
def test_gather_dataset():
    x, y = np.arange(10).reshape(5, 2), np.arange(5)
    batches = [
        (a.numpy().tolist(), b.numpy().tolist())
        for a, b in gather_dataset((x, y), 2, False)
    ]
    assert batches[0] == ([[0, 1], [2, 3]], [0, 1])
    assert batches[2] == ([[8, 9]], [4])
    shuffled = gather_dataset({"x": x, "y": y}, 5, True)
    for batch in shuffled:
        assert (batch["x"][:, 0].numpy() == 2 * batch["y"].numpy()).all()
        assert sorted(batch["y"].numpy()) == [0, 1, 2, 3, 4]
