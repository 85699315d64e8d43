"""scikit-learn's digits as images."""

import numpy as np

from keras_tfm.data import load_digits


def test_digits():
    (x_train, y_train), (x_test, y_test) = load_digits()
    assert x_train.shape == (1438, 8, 8, 1) and x_test.shape == (359, 8, 8, 1)
    assert x_train.dtype == np.uint8 and y_train.dtype == np.int32
    assert x_train.max() == 255 and x_train.min() == 0
    counts = np.bincount(y_test)
    assert len(counts) == 10 and counts.min() >= 34 and counts.max() <= 37


def test_fixed_split():
    first, second = load_digits(), load_digits()
    np.testing.assert_array_equal(first[1][1], second[1][1])
    assert not np.array_equal(first[1][1][:30], load_digits(seed=1)[1][1][:30])


def test_values_are_those_of_sklearn():
    from sklearn import datasets

    source = datasets.load_digits()
    (x_train, y_train), _ = load_digits()
    sums = {(i.sum(), t) for i, t in zip(source.images, source.target)}
    rescaled = np.rint(x_train[..., 0] * (16 / 255))
    assert {(i.sum(), t) for i, t in zip(rescaled, y_train)} <= sums
