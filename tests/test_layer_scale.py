import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.layer_scale import LayerScale

B, T, D = 2, 5, 3


def tokens(*shape):
    return np.random.default_rng(0).normal(size=shape or (B, T, D)).astype("float32")


def test_scales_channels():
    layer, x = LayerScale(0.25), tokens()
    np.testing.assert_allclose(layer(x), 0.25 * x, rtol=1e-6)
    assert layer.gamma.shape == (D,) and layer.gamma.path.endswith("/gamma")
    layer.gamma.assign([1.0, -2.0, 0.5])
    np.testing.assert_allclose(layer(x), x * [1.0, -2.0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(layer(x[0]), x[0] * [1.0, -2.0, 0.5], rtol=1e-6)
    fresh = LayerScale()
    fresh.build((None, D))
    np.testing.assert_allclose(fresh.get_weights()[0], np.full(D, 1e-5))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy):
    # FAULTS O15: the float32 factor never lifts half-precision activations.
    layer, x = LayerScale(0.5, dtype=policy), tokens()
    for outputs in (layer(x), layer.call(ops.array(x))):
        dtype = keras.backend.standardize_dtype(outputs.dtype)
        assert dtype == policy.removeprefix("mixed_")
    assert layer.gamma.dtype == "float32"


def test_learns():
    layer = LayerScale(1.0)
    model = keras.Sequential([keras.Input((None, D)), layer])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    x = tokens(64, T, D)
    losses = model.fit(x, 3 * x, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2


def test_config_and_save(tmp_path):
    layer = LayerScale(init_value=0.3)
    config = json.loads(json.dumps(layer.get_config()))
    assert LayerScale.from_config(config).get_config() == layer.get_config()
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, layer(inputs))
    layer.gamma.assign([1.0, -2.0, 0.5])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(tokens()), loaded(tokens()))
