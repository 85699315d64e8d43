"""A single row in parts: the numbers of Keras's own layers."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.projection import PARTS, Projection, TiedEmbedding, whole_products
from tests.laws import assert_near, gradients, normal, quantize


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


def test_whole_products_by_request(monkeypatch):
    x = normal(1, PARTS * 2)
    _, layer = pair(keras.layers.Dense, Projection, x.shape, units=7)
    shapes, matmul = [], ops.matmul

    def seen(one, other):
        shapes.append(tuple(other.shape))
        return matmul(one, other)

    monkeypatch.setattr(ops, "matmul", seen)
    layer(x)
    with whole_products():
        layer(x)
    layer(x)
    assert shapes[0] == shapes[-1] == (PARTS, 2, 7)
    assert (PARTS, 2, 7) not in shapes[1:-1]
