"""Feed-forward layers against NumPy."""

import keras
import numpy as np
import pytest

from keras_tfm import layers
from keras_tfm.layers import FeedForward, GatedFeedForward
from tests import laws, numpy_layers
from tests.laws import assert_near, normal, randomize, to_numpy
from tests.numpy_layers import dense

B, T, D, F = 2, 5, 3, 7
ACTIVATIONS = {
    "gelu": numpy_layers.gelu,
    layers.gelu_tanh: numpy_layers.gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": numpy_layers.silu,
}


def make(cls, **config):
    layer = cls(F, **config)
    layer.build((None, None, D))
    return randomize(layer)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_feed_forward_matches_numpy(activation, use_bias):
    layer = make(FeedForward, activation=activation, use_bias=use_bias)
    assert len(layer.weights) == (4 if use_bias else 2)
    x = normal(B, T, D)
    expected = dense(layer.down, ACTIVATIONS[activation](dense(layer.up, x)))
    assert_near(layer(x), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_gated_feed_forward_matches_numpy(activation, use_bias):
    layer = make(GatedFeedForward, activation=activation, use_bias=use_bias)
    assert len(layer.weights) == (6 if use_bias else 3)
    x = normal(B, T, D)
    gate = ACTIVATIONS[activation](dense(layer.gate, x))
    assert_near(layer(x), dense(layer.down, gate * dense(layer.up, x)))


def test_gelu_values():  # FAULTS O57
    x = np.array([-2.7, 0.0, 1.5], "float32")
    exact = to_numpy(keras.activations.get("gelu")(x))
    assert_near(exact, [-0.0093608, 0.0, 1.3997892], atol=1e-6)
    assert_near(layers.gelu_tanh(x), [-0.0088876, 0.0, 1.3995715], atol=1e-6)
    with pytest.raises(ValueError, match="gelu_new"):
        FeedForward(F, activation="gelu_new")


@pytest.mark.parametrize("cls", [FeedForward, GatedFeedForward])
def test_laws(cls):
    layer, x = make(cls), normal(B, T, D)
    laws.permutation_commutes(lambda x: to_numpy(layer(x)), x)
    changed = to_numpy(layer(np.concatenate([x[:, :2], x[:, 2:] + 1], axis=1)))
    assert_near(changed[:, :2], to_numpy(layer(x))[:, :2])  # a token by itself
    laws.every_argument_counts(make(cls, dropout=0.5), x, {"training": True})
    assert_near(make(cls, dropout=0.5)(x, training=False), layer(x), atol=0)


@pytest.mark.parametrize("cls", [FeedForward, GatedFeedForward])
def test_the_mask_passes_through(cls):
    ids = np.array([[3, 4, 0], [5, 0, 0]])
    embedded = keras.layers.Embedding(9, D, mask_zero=True)(ids)
    pooled = keras.layers.GlobalAveragePooling1D()
    outputs = make(cls)(embedded)
    rows = to_numpy(outputs)
    assert_near(pooled(outputs), np.stack([rows[0, :2].mean(0), rows[1, 0]]))


@pytest.mark.parametrize("cls", [FeedForward, GatedFeedForward])
def test_refused(cls):
    with pytest.raises(ValueError, match="`intermediate_dim` must be positive, got 0"):
        cls(0)
