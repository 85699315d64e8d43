"""A single row in parts: the numbers of Keras's own layers."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.one_row import plain_rows
from keras_tfm.layers.projection import PARTS, Projection, TiedEmbedding
from tests.laws import assert_near, gradients, normal, quantize, to_numpy


def pair(kind, own, shape, **arguments):
    """Keras's layer and ours with the same weights."""
    layers = [one(**arguments) for one in (kind, own)]
    for layer in layers:
        layer.build(shape)
    layers[1].set_weights(layers[0].get_weights())
    return layers


@pytest.mark.parametrize("shape", [(1, 24), (1, 1, 24), (1, 1, 23), (2, 1, 24)])
@pytest.mark.parametrize("arguments", [{}, {"use_bias": False}, {"activation": "tanh"}])
def test_projection_is_dense(shape, arguments):
    x = normal(*shape)
    plain, layer = pair(keras.layers.Dense, Projection, shape, units=7, **arguments)
    if plain.use_bias:
        for one in (plain, layer):
            one.bias.assign(normal(7, seed=1))
    assert_near(layer(x), plain(x), atol=1e-6)
    slopes = (
        gradients(lambda x, f=f: ops.sum(f(x) ** 2), x, f) for f in (layer, plain)
    )
    for one, other in zip(*slopes):
        assert_near(one, other, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 24), (1, 1, 24), (3, 1, 24)])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_tied_embedding_is_reversible_embedding(shape, cap):
    kind = keras.layers.ReversibleEmbedding
    sizes = {"input_dim": 11, "output_dim": 24, "logit_soft_cap": cap}
    plain, layer = pair(kind, TiedEmbedding, (1, 5), **sizes)
    x, ids = normal(*shape), np.array([[3]])
    assert_near(layer(x, reverse=True), plain(x, reverse=True), atol=1e-6)
    assert_near(layer(ids), plain(ids))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float16"])
def test_low_precision_is_not_added_up_in_parts(dtype):
    x = normal(1, 24)
    plain, layer = pair(keras.layers.Dense, Projection, x.shape, units=7, dtype=dtype)
    assert_near(layer(x), plain(x), atol=0)


def test_quantized_as_keras_does():
    x = normal(1, 24)
    plain, layer = pair(keras.layers.Dense, Projection, x.shape, units=7)
    for one in (plain, layer):
        quantize(keras.Sequential([keras.Input((24,)), one]))
    assert layer.quantization_mode == "int8"
    assert_near(layer(x), plain(x), atol=0)


def test_plain_rows_by_request(monkeypatch):
    x = normal(1, PARTS * 2)
    _, layer = pair(keras.layers.Dense, Projection, x.shape, units=7)
    shapes, matmul = [], ops.matmul

    def seen(one, other):
        shapes.append(tuple(other.shape))
        return matmul(one, other)

    monkeypatch.setattr(ops, "matmul", seen)
    layer(x)
    with plain_rows():
        layer(x)
    layer(x)
    assert shapes[0] == shapes[-1] == (PARTS, 2, 7)
    assert (PARTS, 2, 7) not in shapes[1:-1]


# --- adapters


def with_lora(shape=(3, 24), rank=4, alpha=8.0, **arguments):
    """A layer whose adapter is not zero, and W + scale A B in NumPy."""
    layer = Projection(7, **arguments)
    layer.build(shape)
    kernel = to_numpy(layer.kernel)
    layer.enable_lora(rank, lora_alpha=alpha)
    a, b = normal(24, rank, seed=1), normal(rank, 7, seed=2)
    layer.lora_kernel_a.assign(a)
    layer.lora_kernel_b.assign(b)
    return layer, kernel + alpha / rank * a @ b


@pytest.mark.parametrize("shape", [(3, 24), (2, 5, 24), (1, 24), (1, 1, 24)])
@pytest.mark.parametrize("arguments", [{}, {"use_bias": False}, {"activation": "tanh"}])
def test_lora_adds_a_product(shape, arguments):
    layer, kernel = with_lora(shape, **arguments)
    expected = normal(*shape) @ kernel
    if layer.bias is not None:
        layer.bias.assign(normal(7, seed=3))
        expected = expected + to_numpy(layer.bias)
    expected = np.tanh(expected) if "activation" in arguments else expected
    assert_near(layer(normal(*shape)), expected, atol=1e-4)
    assert_near(layer.kernel, kernel, atol=1e-5)


def test_lora_makes_no_matrix_of_the_kernels_size(monkeypatch):
    layer, _ = with_lora((1, 24))
    shapes, matmul = [], ops.matmul

    def seen(one, other):
        shapes.append(tuple(other.shape))
        return matmul(one, other)

    monkeypatch.setattr(ops, "matmul", seen)
    layer(normal(1, 24))
    assert shapes == [(PARTS, 3, 7), (24, 4), (4, 7)]


def test_lora_in_low_precision():
    layer, kernel = with_lora(dtype="mixed_bfloat16")
    outputs = layer(normal(3, 24))
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    assert_near(outputs, normal(3, 24) @ kernel, atol=0.5)  # 8 bits of up to 40
    assert np.max(np.abs(to_numpy(outputs))) > 10


def saved(layer, path):
    """A model of one layer, and the file of its weights."""
    model = keras.Sequential([keras.Input((24,)), layer])
    model.save_weights(path)
    return model


def test_lora_is_saved_as_it_is(tmp_path):
    layer, _ = with_lora()
    before = layer.get_weights()
    saved(layer, tmp_path / "one.weights.h5")
    other, _ = with_lora()
    other.set_weights([0 * weight for weight in before])
    model = keras.Sequential([keras.Input((24,)), other])
    model.load_weights(tmp_path / "one.weights.h5")
    for one, two in zip(before, other.get_weights()):
        np.testing.assert_array_equal(one, two)
    # Another alpha, the same product.
    twice, kernel = with_lora(alpha=16.0)
    model = keras.Sequential([keras.Input((24,)), twice])
    model.load_weights(tmp_path / "one.weights.h5")
    assert_near(twice(normal(3, 24)), layer(normal(3, 24)), atol=1e-5)


def test_lora_is_merged_into_a_plain_layer(tmp_path):
    layer, kernel = with_lora()
    saved(layer, tmp_path / "one.weights.h5")
    plain = Projection(7)
    model = keras.Sequential([keras.Input((24,)), plain])
    model.load_weights(tmp_path / "one.weights.h5")
    assert not plain.lora_enabled
    assert_near(plain.kernel, kernel)


def test_lora_learns_on_after_a_plain_file(tmp_path):
    plain = Projection(7)
    saved(plain, tmp_path / "plain.weights.h5")
    layer, _ = with_lora()
    model = keras.Sequential([keras.Input((24,)), layer])
    model.load_weights(tmp_path / "plain.weights.h5")
    assert_near(layer(normal(3, 24)), plain(normal(3, 24)), atol=0)
    assert np.all(to_numpy(layer.lora_kernel_a) == normal(24, 4, seed=1))
    assert not np.any(to_numpy(layer.lora_kernel_b))


def test_lora_of_another_rank_is_refused(tmp_path):
    layer, _ = with_lora(rank=2)
    saved(layer, tmp_path / "two.weights.h5")
    other, _ = with_lora(rank=4)
    model = keras.Sequential([keras.Input((24,)), other])
    with pytest.raises(ValueError, match="adapter of rank 4, the file one of rank 2"):
        model.load_weights(tmp_path / "two.weights.h5")
