"""`largest` against NumPy, with ties and minus infinity."""

import numpy as np
import pytest

from keras_tfm.generation.largest import SIZE, largest
from tests.laws import compiled, normal, to_numpy


def reference(x, k):
    """Sorted in a stable way, so that of equal numbers the first comes first."""
    places = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, places, axis=-1), places


def numbers(kind, length):
    x = normal(2, 3, length)
    if kind == "ties":
        return np.round(x) + 0  # JAX sorts -0 below 0
    if kind == "few":
        return np.where(np.arange(length) % 997 == 5, x, -np.inf).astype("float32")
    return np.full_like(x, -np.inf) if kind == "none" else x


@pytest.mark.parametrize("kind", ["normal", "ties", "few", "none"])
@pytest.mark.parametrize(
    "length, k",
    [(7, 3), (4 * SIZE, 1), (40 * SIZE, 10), (40 * SIZE + 1, 10), (8 * SIZE - 1, 2)],
)
def test_matches_numpy(kind, length, k):
    x = numbers(kind, length)
    for run in (lambda x: largest(x, k), compiled(lambda x: largest(x, k))):
        best, places = to_numpy(run(x))
        np.testing.assert_array_equal(best, reference(x, k)[0])
        np.testing.assert_array_equal(places, reference(x, k)[1])


def test_no_rows():
    best, places = to_numpy(largest(np.zeros((0, 40 * SIZE), "float32"), 2))
    assert best.shape == places.shape == (0, 2)
