import json
import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.alibi_bias import AlibiBias, alibi_slopes

# Made by tests/reference/position_biases.py with Hugging Face Transformers.
GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "position_biases.npz")
B, T, S = 2, 5, 7


def zeros(length, width=4):
    return np.zeros((B, length, width), "float32")


@pytest.mark.parametrize("name", [k for k in GOLDEN.files if k.startswith("alibi/")])
def test_slopes(name):
    expected = GOLDEN[name]  # (N, 5): slope times key position
    slopes = alibi_slopes(int(name[6:]))
    np.testing.assert_allclose(np.outer(slopes, np.arange(5)), expected, rtol=1e-6)


def test_slopes_of_the_paper():
    np.testing.assert_array_equal(alibi_slopes(8), 0.5 ** np.arange(1, 9))
    assert len(alibi_slopes(6)) == 6 and len(set(alibi_slopes(6))) == 6
    np.testing.assert_allclose(
        alibi_slopes(6), [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    )


def bias_of(num_heads, length, key_length, offset=0):
    queries, keys = np.arange(length) + offset, np.arange(key_length)
    distance = np.abs(queries[:, None] - keys[None, :])
    return (-alibi_slopes(num_heads)[:, None, None] * distance)[None]


@pytest.mark.parametrize("num_heads", [1, 3, 8])
def test_bias(num_heads):
    layer = AlibiBias(num_heads)
    expected = bias_of(num_heads, T, T)
    np.testing.assert_allclose(layer(zeros(T)), expected, rtol=1e-6)
    expected = bias_of(num_heads, T, S)
    np.testing.assert_allclose(layer(zeros(T), context=zeros(S)), expected, rtol=1e-6)
    heads = np.ones((1, S, 2, 6), "float32")  # only the lengths are read
    np.testing.assert_allclose(layer(zeros(T, 9), context=heads), expected, rtol=1e-6)
    assert not layer.weights


@pytest.mark.parametrize("kind", ["int", "tensor"])
def test_query_offset(kind):
    offset = 3 if kind == "int" else ops.array(3, "int32")
    bias = AlibiBias(6)(zeros(2), context=zeros(S), query_offset=offset)
    np.testing.assert_allclose(bias, bias_of(6, 2, S, 3), rtol=1e-6)
    whole = AlibiBias(6)(zeros(S))
    np.testing.assert_array_equal(bias, whole[:, :, 3:5])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_stays_float32(policy):
    x = np.zeros((1, 513, 1), "float32")
    bias = AlibiBias(3, dtype=policy)(x)
    assert keras.backend.standardize_dtype(bias.dtype) == "float32"
    np.testing.assert_allclose(bias, bias_of(3, 513, 513), rtol=1e-6)
    assert AlibiBias(3, dtype=policy)(keras.Input((T, 1))).dtype == "float32"


def test_symbolic():
    layer = AlibiBias(3)
    assert layer(keras.Input((None, 4))).shape == (1, 3, None, None)
    inputs, context = keras.Input((None, 4)), keras.Input((S, 4))
    outputs = layer(inputs, context=context)
    assert outputs.shape == (1, 3, None, S)
    model = keras.Model([inputs, context], outputs + ops.sum(inputs))
    np.testing.assert_allclose(model([zeros(T), zeros(S)]), bias_of(3, T, S), rtol=1e-6)


def test_mask_ends_here():
    x = keras.layers.Embedding(6, 4, mask_zero=True)(np.array([[1, 0]]))
    assert getattr(AlibiBias(3)(x), "_keras_mask", None) is None


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_trace(jit_compile):
    import tensorflow as tf

    layer, traces = AlibiBias(3), []
    signature = [tf.TensorSpec((None, None, 4))] * 2 + [tf.TensorSpec((), tf.int32)]

    @tf.function(input_signature=signature, jit_compile=jit_compile)
    def run(x, context, offset):
        traces.append(1)
        return layer(x, context=context, query_offset=offset)

    for offset in (0, 1, 6):
        bias = run(zeros(1), zeros(S), offset)
        np.testing.assert_allclose(bias, bias_of(3, 1, S, offset), rtol=1e-6)
    assert len(traces) == 1


def test_config():
    layer = AlibiBias(num_heads=3, name="slopes")
    config = json.loads(json.dumps(layer.get_config()))
    assert AlibiBias.from_config(config).get_config() == layer.get_config()


def test_errors():
    with pytest.raises(ValueError, match="`num_heads` must be positive, got 0"):
        AlibiBias(0)
