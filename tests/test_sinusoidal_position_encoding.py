import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.sinusoidal_position_encoding import (
    SinusoidalPositionEncoding,
    sinusoidal_table,
    sinusoidal_waves,
)

B, T, D = 2, 5, 6


def table(length, dim, max_wavelength=10000.0):
    """The formula, in float64."""
    columns = np.arange(dim)
    angles = np.arange(length)[:, None] / max_wavelength ** (2 * (columns // 2) / dim)
    return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles))


def tokens(*shape):
    return np.random.default_rng(0).normal(size=shape or (B, T, D)).astype("float32")


def test_layout():
    # FAULTS O18: sin and cos interleave.
    expected = [[0, 1, 0, 1], [0.8414710, 0.5403023, 0.0099998, 0.9999500]]
    np.testing.assert_allclose(sinusoidal_table(2, 4), expected, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 8, 127])
def test_table_is_the_formula(dim):
    # FAULTS O17: odd and tiny widths; the last lone column is a sine.
    for length in (1, 300):
        found = sinusoidal_table(length, dim)
        assert tuple(found.shape) == (length, dim)
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
        np.testing.assert_allclose(found, table(length, dim), atol=5e-5)
    other = sinusoidal_table(7, dim, max_wavelength=50.0)
    np.testing.assert_allclose(other, table(7, dim, 50.0), atol=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 16, 127])
def test_long_tables(dim):
    # FAULTS O17: finite, and no two rows alike.
    found = np.array(sinusoidal_table(100_000, dim))
    assert found.shape == (100_000, dim) and np.isfinite(found).all()
    if dim >= 16:
        assert len(np.unique(found[:, :16], axis=0)) == 100_000


def test_layer_adds_the_table():
    x = tokens()
    layer = SinusoidalPositionEncoding()
    np.testing.assert_allclose(layer(x), x + table(T, D), atol=1e-6)
    assert not layer.weights
    layer = SinusoidalPositionEncoding(max_wavelength=100.0)
    np.testing.assert_allclose(layer(x), x + table(T, D, 100.0), atol=1e-6)


def test_positions():
    x, rows = tokens(), table(70_000, D)
    layer = SinusoidalPositionEncoding()
    shared = np.array([4, 0, 9, 9, 69_999])
    np.testing.assert_allclose(layer(x, positions=shared), x + rows[shared], atol=5e-3)
    each = np.array([[0, 0, 0, 1, 2], [3, 1, 4, 1, 5]], "int64")
    np.testing.assert_allclose(layer(x, positions=each), x + rows[each], atol=1e-5)


def test_left_padding():
    # FAULTS O22: positions count real tokens.
    x = tokens()
    layer = SinusoidalPositionEncoding()
    alone = layer(x[:1, 2:])
    padded = layer(x, positions=np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]))
    np.testing.assert_allclose(padded[:1, 2:], alone, atol=1e-6)
    np.testing.assert_allclose(padded[1:], layer(x[1:]), atol=1e-6)


@pytest.mark.parametrize(
    ("policy", "step"), [("mixed_float16", 1e-3), ("mixed_bfloat16", 8e-3)]
)
def test_far_positions_in_half_precision(policy, step):
    # FAULTS O19: angles are never computed in half precision.
    positions = np.array([257, 4095, 4096, 15962, 32766, 32767])
    outputs = SinusoidalPositionEncoding(dtype=policy)(
        np.zeros((1, 6, 64), "float32"), positions=positions
    )
    dtype = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    found = np.array(ops.cast(outputs, "float32"))[0]
    np.testing.assert_allclose(found, table(32768, 64)[positions], atol=step + 3e-3)
    assert np.abs(found[5] - found[4]).max() > 0.5


@pytest.mark.tensorflow
def test_float64():
    layer = SinusoidalPositionEncoding(dtype="float64")
    outputs = layer(np.zeros((1, 3000, D)))
    np.testing.assert_allclose(outputs[0], table(3000, D), atol=1e-11)


def test_mask_passes():
    # FAULTS O04: with an implicit mask, no warning (an error here) and no loss.
    seen = []

    class Probe(keras.layers.Layer):
        supports_masking = True

        def call(self, inputs, mask=None):
            seen.append(mask)
            return inputs

    ids = np.array([[3, 5, 0, 0], [1, 0, 2, 0]])
    x = keras.layers.Embedding(6, D, mask_zero=True)(ids)
    Probe()(SinusoidalPositionEncoding()(x))
    np.testing.assert_array_equal(seen[0], ids != 0)


def test_config():
    layer = SinusoidalPositionEncoding(max_wavelength=77.0, dtype="mixed_bfloat16")
    config = json.loads(json.dumps(layer.get_config()))
    clone = SinusoidalPositionEncoding.from_config(config)
    assert clone.get_config() == layer.get_config()
    assert clone.max_wavelength == 77.0


def test_unknown_length():
    inputs = keras.Input((None, D))
    positions = keras.Input((None,), dtype="int32")
    layer = SinusoidalPositionEncoding()
    model = keras.Model([inputs, positions], layer(layer(inputs), positions=positions))
    assert model.output_shape == (None, None, D)
    for length in (1, 4, 9):
        x, at = tokens(B, length, D), np.arange(B * length).reshape(B, length)
        expected = x + table(length, D) + table(B * length, D)[at]
        np.testing.assert_allclose(
            model.predict([x, at], verbose=0), expected, atol=1e-5
        )


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_trace(jit_compile):
    import tensorflow as tf

    layer, traces = SinusoidalPositionEncoding(), []
    signature = [tf.TensorSpec((None, None, D))]

    @tf.function(input_signature=signature, jit_compile=jit_compile)
    def run(x):
        traces.append(1)
        return layer(x)

    for length in (1, 4, 9):
        x = tokens(B, length, D)
        np.testing.assert_allclose(run(x), layer(x), atol=1e-6)
    assert len(traces) == 1


def test_errors():
    with pytest.raises(ValueError, match="`max_wavelength` must be positive, got 0"):
        SinusoidalPositionEncoding(max_wavelength=0)
    with pytest.raises(ValueError, match="`max_wavelength` must be positive, got -1"):
        sinusoidal_table(3, 4, -1)
    with pytest.raises(ValueError, match="`dim` must be positive, got 0"):
        sinusoidal_table(3, 0)
    layer = SinusoidalPositionEncoding()
    with pytest.raises(ValueError, match="`positions` must be integers"):
        layer(tokens(), positions=np.zeros((T,), "float32"))
    for shape in ((T + 1,), (1,), (B, 1), (B, T, 1), ()):
        with pytest.raises(ValueError, match=r"`positions` must have the shape"):
            layer(tokens(), positions=np.zeros(shape, "int32"))


def test_waves_of_tensors():
    waves = sinusoidal_waves(ops.arange(3), 4, dtype="float32")
    np.testing.assert_allclose(waves, table(3, 4), atol=1e-6)
