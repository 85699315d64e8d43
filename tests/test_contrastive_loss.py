"""The contrastive loss against NumPy, and what it makes of a batch without partners."""

import keras
import numpy as np
import pytest

from keras_tfm.training import ContrastiveLoss
from tests.laws import assert_near, gradients, normal, to_numpy

D, TEMPERATURE = 5, 0.3


def by_numpy(labels, vectors):
    """Row by row, as the docstring says it."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = unit @ unit.T / TEMPERATURE
    losses = []
    for i in range(len(labels)):
        others = [j for j in range(len(labels)) if j != i]
        partners = [j for j in others if labels[j] == labels[i]]
        total = np.log(sum(np.exp(scores[i, j]) for j in others))
        if partners:
            losses.append(np.mean([total - scores[i, j] for j in partners]))
    return np.mean(losses)


@pytest.mark.parametrize(
    "labels", [[0, 0, 1, 1], [0, 1, 2, 0, 1, 2], [4, 4, 4, 1, 1, 9]]
)
def test_numpy_gives_the_same(labels):
    vectors = normal(len(labels), D)
    loss = ContrastiveLoss(TEMPERATURE)(np.array(labels), vectors)
    assert_near(loss, by_numpy(labels, vectors), atol=1e-5)
    assert_near(ContrastiveLoss(TEMPERATURE)(np.array(labels), 3 * vectors), loss)


def test_no_partner_is_no_loss():
    loss, labels = ContrastiveLoss(TEMPERATURE), np.arange(3)
    x = normal(3, D)
    assert float(loss(labels, x)) == 0.0
    assert not np.any(gradients(lambda x: loss(labels, x), x)[0])


def test_bfloat16_is_added_up_in_float32():
    vectors = keras.ops.cast(normal(6, D), "bfloat16")
    labels = np.array([0, 0, 1, 1, 2, 2])
    loss = ContrastiveLoss(TEMPERATURE)(labels, vectors)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert_near(loss, by_numpy(labels, to_numpy(vectors)), atol=1e-4)


def test_fit_brings_partners_together():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(D)])
    model.compile(keras.optimizers.Adam(0.05), ContrastiveLoss(TEMPERATURE))
    x, labels = normal(12, 8), np.arange(12) // 2
    history = model.fit(x, labels, 12, 40, 0, shuffle=False).history["loss"]
    assert history[-1] < 0.5 * history[0]


def test_config():
    loss = ContrastiveLoss(0.2)
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(copy) is ContrastiveLoss and copy.temperature == 0.2
    with pytest.raises(ValueError, match="`temperature` must be positive, got 0"):
        ContrastiveLoss(0)
