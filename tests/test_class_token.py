import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.class_token import ClassToken

B, T, D = 2, 5, 3


def tokens(*shape):
    return np.random.default_rng(0).normal(size=shape or (B, T, D)).astype("float32")


@pytest.mark.parametrize("num_tokens", [1, 4])
def test_prepends(num_tokens):
    layer, x = ClassToken(num_tokens), tokens()
    outputs = np.array(layer(x))
    (token,) = layer.get_weights()
    assert token.shape == (num_tokens, D) and np.abs(token).max() > 0
    np.testing.assert_array_equal(outputs[:, :num_tokens], [token] * B)
    np.testing.assert_array_equal(outputs[:, num_tokens:], x)
    assert layer.token.path.endswith("/token")


def test_shapes():
    layer = ClassToken(2)
    assert layer(keras.Input((None, D))).shape == (None, None, D)
    assert layer(keras.Input((T, D))).shape == (None, T + 2, D)
    assert tuple(layer(np.zeros((0, T, D), "float32")).shape) == (0, T + 2, D)


def test_mask_grows():
    layer = ClassToken(2)
    ids = np.array([[3, 5, 0], [1, 0, 0]])
    mask = layer.compute_mask(None, ids != 0)
    np.testing.assert_array_equal(mask, [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
    assert layer.compute_mask(None, None) is None

    inputs = keras.Input((None,), dtype="int32")  # through a functional model
    x = layer(keras.layers.Embedding(6, D, mask_zero=True)(inputs))
    pooled = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, [x, pooled])
    x, pooled = model(ids)
    np.testing.assert_allclose(pooled[0], np.mean(x[0, :4], 0), atol=1e-6)
    np.testing.assert_allclose(pooled[1], np.mean(x[1, :3], 0), atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy):
    layer, x = ClassToken(dtype=policy), tokens()
    for outputs in (layer(x), layer.call(ops.array(x))):
        dtype = keras.backend.standardize_dtype(outputs.dtype)
        assert dtype == policy.removeprefix("mixed_")
    assert layer.token.dtype == "float32"


def test_config_and_save(tmp_path):
    layer = ClassToken(num_tokens=3, name="registers")
    config = json.loads(json.dumps(layer.get_config()))
    assert ClassToken.from_config(config).get_config() == layer.get_config()
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(tokens()), loaded(tokens()))


def test_errors():
    with pytest.raises(ValueError, match="`num_tokens` must be positive, got 0"):
        ClassToken(0)
