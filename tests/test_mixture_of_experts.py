"""MixtureOfExperts: routing, its two losses, and that padding does not count."""

import keras
import numpy as np
import pytest

from keras_tfm.layers import (
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    MultiHeadAttention,
    TransformerEncoderBlock,
)
from tests import laws, numpy_layers
from tests.laws import assert_near, differs, normal, randomize, to_numpy

B, T, D, F, E = 2, 5, 3, 7, 4


def make(top_k=2, expert=None, **config):
    layer = MixtureOfExperts(expert or FeedForward(F), E, top_k, **config)
    layer.build((None, None, D))
    return randomize(layer)


def numpy_route(layer, x):
    """Router scores (B, T, E), and the chosen experts of every token."""
    scores = numpy_layers.dense(layer.router, x)
    return scores, np.argsort(-scores, axis=-1)[..., : layer.top_k]


@pytest.mark.parametrize("top_k", [1, 2, E])
def test_matches_numpy(top_k):
    layer, x = make(top_k), normal(B, T, D)
    said = [to_numpy(expert(x)) for expert in layer.experts]
    scores, chosen = numpy_route(layer, x)
    expected = np.zeros((B, T, D))
    for b, t in np.ndindex(B, T):
        picks = chosen[b, t]
        for weight, e in zip(numpy_layers.softmax(scores[b, t, picks]), picks):
            expected[b, t] += weight * said[e][b, t]
    assert_near(layer(x), expected)


def numpy_losses(layer, x, real):
    scores, chosen = numpy_route(layer, x[real])
    probabilities = np.array([numpy_layers.softmax(row) for row in scores])
    share = np.bincount(chosen.reshape(-1), minlength=E) / chosen.size
    balance = E * np.sum(share * probabilities.mean(0))
    z = np.mean(np.log(np.exp(scores).sum(-1)) ** 2)
    return [layer.load_balancing_weight * balance, layer.router_z_weight * z]


@pytest.mark.parametrize("padded", [False, True])
def test_losses_match_numpy(padded):
    layer = make(load_balancing_weight=0.3, router_z_weight=0.7)
    x = normal(B, T, D)
    real = np.arange(T) < ([[3], [T]] if padded else [[T], [T]])
    layer(x, padding_mask=real if padded else None, training=True)
    assert_near(np.array(to_numpy(layer.losses)), numpy_losses(layer, x, real))
    layer(x, training=False)
    assert layer.losses == []


def test_perfect_balance_costs_its_weight():
    layer = make(load_balancing_weight=0.3, router_z_weight=0.0)
    layer.router.set_weights([np.zeros((D, E))])
    layer(normal(B, T, D), training=True)
    assert_near(to_numpy(layer.losses[0]), np.float32(0.3))


def test_padding_counts_in_no_loss():
    block = TransformerEncoderBlock(
        MultiHeadAttention(3), MixtureOfExperts(FeedForward(F), E)
    )
    x, real = normal(1, T, D), np.arange(T) < [[3]]
    block(x, padding_mask=real, training=True)
    padded = to_numpy(block.losses)
    block(x[:, :3], training=True)
    assert_near(np.array(padded), np.array(to_numpy(block.losses)))
    assert len(padded) == 2

    embedding = keras.layers.Embedding(9, D, mask_zero=True)
    layer = make()
    layer(embedding(np.array([[5, 6, 0]])), training=True)
    implicit = to_numpy(layer.losses)
    layer(embedding(np.array([[5, 6]])), training=True)
    assert_near(np.array(implicit), np.array(to_numpy(layer.losses)))


def test_the_losses_train_the_router():
    layer = make(load_balancing_weight=1.0)
    model = keras.Sequential([keras.Input((T, D)), layer])
    model.compile(keras.optimizers.SGD(0.1), loss=lambda y, x: 0.0 * x)
    before = to_numpy(layer.router.kernel).copy()
    model.fit(normal(4, T, D), np.zeros((4, T, D)), batch_size=4, verbose=0)
    assert differs(layer.router.kernel, before)


def test_each_expert_has_its_own_weights():
    layer = MixtureOfExperts(GatedFeedForward(F), E)
    layer.build((None, None, D))
    kernels = [to_numpy(expert.up.kernel) for expert in layer.experts]
    assert all(differs(kernels[0], other) for other in kernels[1:])
    paths = [w.path for w in layer.weights]
    assert len(set(paths)) == len(paths) == 3 * E + 1
    assert f"{layer.name}/expert_3/up/kernel" in paths


def test_routing_is_float32_in_mixed_precision():
    exact = make()
    layer = MixtureOfExperts(FeedForward(F), E, dtype="mixed_bfloat16")
    layer.build((None, None, D))
    layer.set_weights(exact.get_weights())
    x = np.round(normal(B, T, D), 1)
    assert layer.router.compute_dtype == "float32"
    assert_near(layer(x), exact(x), atol=5e-2)


def test_laws():
    layer, x = make(expert=FeedForward(F, dropout=0.5)), normal(B, T, D)
    laws.permutation_commutes(lambda x: to_numpy(layer(x)), x)
    assert differs(layer(x, training=True), layer(x))
    assert_near(layer(x, padding_mask=np.ones((B, T), bool)), layer(x), atol=0)


@pytest.mark.parametrize("top_k", [0, E + 1])
def test_refused(top_k):
    with pytest.raises(ValueError, match=f"`top_k` must be between 1 .* got {top_k}"):
        make(top_k)
