import keras
import numpy as np
import pytest

from keras_tfm.layers.dropout import PairedDropout


def ones(*shape):
    return np.ones(shape, "float32")


@pytest.mark.parametrize("rate", [0.1, 0.37, 0.9])
def test_rate_and_mean(rate):
    outputs = np.array(PairedDropout(rate, seed=1)(ones(1000, 501), training=True))
    dropped = outputs == 0
    halves = dropped.reshape(-1)[:250_500], dropped.reshape(-1)[250_500:]
    for half in halves:  # each from its own part of the draws
        np.testing.assert_allclose(half.mean(), rate, atol=0.003)
    np.testing.assert_allclose(outputs[~dropped], 1 / (1 - rate), rtol=1e-6)
    # Entries that share a draw, and neighbours, are independent.
    for left, right in ((halves[0], halves[1]), (halves[0][1:], halves[0][:-1])):
        both = (left & right).mean()
        np.testing.assert_allclose(both, rate**2, atol=0.003)


@pytest.mark.parametrize("shape", [(1,), (3, 5, 7), (2, 2), (0, 4)])
def test_odd_and_even_counts(shape):
    outputs = PairedDropout(0.5, seed=1)(ones(*shape), training=True)
    assert tuple(outputs.shape) == shape
    assert set(np.unique(outputs)) <= {0.0, 2.0}


def test_is_a_keras_dropout():
    x = ones(4, 6)
    for layer in (PairedDropout(0.5), PairedDropout(0.0), PairedDropout(1.0)):
        np.testing.assert_array_equal(layer(x), x)
        np.testing.assert_array_equal(layer(x, training=False), x)
    np.testing.assert_array_equal(PairedDropout(0.0)(x, training=True), x)
    np.testing.assert_array_equal(PairedDropout(1.0)(x, training=True), 0 * x)
    rows = PairedDropout(0.5, noise_shape=(4, 1), seed=1)(x, training=True)
    assert (np.array(rows) == np.array(rows)[:, :1]).all()
    layer = PairedDropout(0.3, seed=7)
    clone = PairedDropout.from_config(layer.get_config())
    np.testing.assert_array_equal(layer(x, training=True), clone(x, training=True))
    again = layer(x, training=True)
    assert not np.array_equal(again, clone(0 * x, training=True))
    half = PairedDropout(0.5, dtype="mixed_float16")(x, training=True)
    assert keras.backend.standardize_dtype(half.dtype) == "float16"


@pytest.mark.tensorflow
def test_in_a_graph_of_unknown_shape():
    import tensorflow as tf

    layer = PairedDropout(0.5, seed=1)
    for jit in (False, True):
        call = tf.function(
            lambda x: layer(x, training=True),
            input_signature=[tf.TensorSpec((None, None, 3))],
            jit_compile=jit,
        )
        assert set(np.unique(call(ones(4, 5, 3)))) == {0.0, 2.0}


def test_gradient_is_the_mask():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, use_bias=False)])
    model.add(PairedDropout(0.5, seed=1))
    model.compile(keras.optimizers.SGD(1.0), "mae")
    before = model.get_weights()[0]
    model.fit(ones(64, 8), 100 * ones(64, 1), batch_size=64, verbose=0)
    change = model.get_weights()[0] - before
    assert np.isfinite(change).all() and (change > 0).all()
