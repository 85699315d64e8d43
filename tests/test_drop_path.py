import json

import keras
import numpy as np
import pytest

from keras_tfm.layers.drop_path import DropPath

ONES = np.ones((64, 4, 8), "float32")


def test_whole_samples():
    # FAULTS O65: a sample is wholly 0 or 1 / (1 - rate).
    outputs = np.array(DropPath(0.5, seed=1)(ONES, training=True))
    samples = outputs.reshape(64, -1)
    assert set(samples[:, 0]) == {0.0, 2.0}
    assert (samples == samples[:, :1]).all()
    assert 0.6 < outputs.mean() < 1.4


def test_mean_stays():
    ones = np.ones((20_000, 1), "float32")
    for rate in (0.1, 0.8):
        outputs = np.array(DropPath(rate, seed=1)(ones, training=True))
        np.testing.assert_allclose(outputs.mean(), 1, atol=0.05)
        np.testing.assert_allclose((outputs == 0).mean(), rate, atol=0.02)
        np.testing.assert_allclose(outputs.max(), 1 / (1 - rate), rtol=1e-6)


def test_identity():
    for layer in (DropPath(0.5), DropPath(1.0), DropPath(0.0)):
        np.testing.assert_array_equal(layer(ONES), ONES)
        np.testing.assert_array_equal(layer(ONES, training=False), ONES)
    np.testing.assert_array_equal(DropPath(0.0)(ONES, training=True), ONES)


def test_rate_one():
    # FAULTS O65: no division by zero, and nothing of a dropped inf.
    outputs = DropPath(1.0)(np.full((3, 2), np.inf, "float32"), training=True)
    np.testing.assert_array_equal(outputs, np.zeros((3, 2)))
    outputs = np.array(DropPath(0.5, seed=1)(ONES * np.inf, training=True))
    assert not np.isnan(outputs).any()


def test_seeds():
    # FAULTS O63: steps and layers differ, equal seeds repeat.
    first, second = DropPath(0.5, seed=3), DropPath(0.5, seed=3)
    steps = [np.array(first(ONES, training=True)) for _ in range(2)]
    again = [np.array(second(ONES, training=True)) for _ in range(2)]
    np.testing.assert_array_equal(steps, again)
    assert (steps[0] != steps[1]).any()
    one, other = (np.array(DropPath(0.5)(ONES, training=True)) for _ in range(2))
    assert (one != other).any()
    assert len(DropPath(0.5).variables) == 1
    assert not DropPath(0.0).variables


def test_in_a_model():
    inputs = keras.Input((4, 8))
    model = keras.Model(inputs, DropPath(0.5)(inputs))
    np.testing.assert_array_equal(model.predict(ONES, verbose=0), ONES)
    assert set(np.unique(model(ONES, training=True))) == {0.0, 2.0}
    trained = keras.Sequential([inputs, keras.layers.Dense(8), DropPath(0.5)])
    trained.compile("sgd", "mse")
    trained.fit(ONES, ONES, verbose=0)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph(jit_compile):
    import tensorflow as tf

    layer = DropPath(0.5, seed=1)
    run = tf.function(
        lambda x: layer(x, training=True),
        input_signature=[tf.TensorSpec((None, None, 8))],
        jit_compile=jit_compile,
    )
    steps = [run(ONES).numpy() for _ in range(2)]
    assert set(np.unique(steps)) == {0.0, 2.0} and (steps[0] != steps[1]).any()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy):
    outputs = DropPath(0.75, dtype=policy)(ONES, training=True)
    dtype = keras.backend.standardize_dtype(outputs.dtype)
    assert dtype == policy.removeprefix("mixed_")
    values = np.unique(keras.ops.cast(outputs, "float32"))
    np.testing.assert_array_equal(values, [0, 4])


def test_config():
    layer = DropPath(rate=0.25, seed=7)
    config = json.loads(json.dumps(layer.get_config()))
    clone = DropPath.from_config(config)
    assert clone.get_config() == layer.get_config()
    np.testing.assert_array_equal(
        clone(ONES, training=True), layer(ONES, training=True)
    )


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_errors(rate):
    with pytest.raises(ValueError, match=r"`rate` must be in \[0, 1\], got"):
        DropPath(rate)
