import json
import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.relative_position_bias import (
    RelativePositionBias,
    relative_position_bucket,
)

# Made by tests/reference/position_biases.py with Hugging Face Transformers.
GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "position_biases.npz")
B, T, S, N = 2, 5, 17, 3


def zeros(length, width=4):
    return np.zeros((B, length, width), "float32")


def reference_layer(**kwargs):
    layer = RelativePositionBias(N, num_buckets=10, max_distance=12, **kwargs)
    layer.build((None, None, 4))
    layer.set_weights([GOLDEN["t5/table"]])
    return layer


@pytest.mark.parametrize("name", [k for k in GOLDEN.files if k.startswith("buckets/")])
def test_buckets(name):
    bidirectional, num_buckets, max_distance = map(int, name[8:].split("_"))
    found = relative_position_bucket(
        GOLDEN["relative_position"], bool(bidirectional), num_buckets, max_distance
    )
    np.testing.assert_array_equal(found, GOLDEN[name])
    assert keras.backend.standardize_dtype(found.dtype) == "int32"


def test_bias():
    layer = reference_layer()
    assert layer.table.path.endswith("/table")
    bias = layer(zeros(T), context=zeros(S))
    np.testing.assert_array_equal(bias, GOLDEN["t5/bias"])
    assert tuple(bias.shape) == (1, N, T, S)
    # Only the lengths are read: any rank, any width, any values.
    heads = np.ones((1, S, 2, 6), "float32")
    np.testing.assert_array_equal(layer(zeros(T, 9), context=heads), bias)


@pytest.mark.parametrize("kind", ["int", "tensor"])
def test_query_offset(kind):
    offset = 9 if kind == "int" else ops.array(9, "int32")
    bias = reference_layer()(zeros(2), context=zeros(S), query_offset=offset)
    np.testing.assert_array_equal(bias, GOLDEN["t5/shifted"])


def test_depends_on_distance():
    layer = RelativePositionBias(N, bidirectional=False)
    bias = np.array(layer(zeros(S)))
    np.testing.assert_array_equal(bias[:, :, 1:, 1:], bias[:, :, :-1, :-1])
    later = np.triu_indices(S)  # keys at and after the query share bucket 0
    same = bias[0, :, later[0], later[1]]
    np.testing.assert_array_equal(same, same[:1] + 0 * same)
    assert len(np.unique(bias[0, 0])) == len({min(d, 16) for d in range(S)})


def test_gradient_counts_uses():
    layer = RelativePositionBias(1, num_buckets=4, max_distance=3, bidirectional=False)
    layer.build((None, None, 1))

    class Total(keras.Model):
        def call(self, inputs):
            return ops.sum(layer(inputs)) + 0 * ops.sum(inputs)

    model = Total()
    model.bias = layer
    model(zeros(5, 1))
    model.compile(
        keras.optimizers.SGD(1.0), loss=lambda y, total: total, jit_compile=False
    )
    before = layer.get_weights()[0][:, 0]
    model.train_on_batch(zeros(5, 1), np.zeros(B))
    moved = before - layer.get_weights()[0][:, 0]
    # Of 25 distances 15 are 0 or ahead, 4 are 1, 3 are 2 and 3 are 3 or more.
    np.testing.assert_allclose(moved, [15, 4, 3, 3], atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_stays_float32(policy):
    layer = reference_layer(dtype=policy)

    class Outer(keras.layers.Layer):  # autocasts what it reads, but not this
        def call(self, inputs):
            return layer(inputs, context=zeros(S))

    for bias in (layer(zeros(T), context=zeros(S)), Outer(dtype=policy)(zeros(T))):
        assert keras.backend.standardize_dtype(bias.dtype) == "float32"
        np.testing.assert_array_equal(bias, GOLDEN["t5/bias"])
    assert layer(keras.Input((None, 4))).dtype == "float32"


@pytest.mark.tensorflow
def test_float64():
    assert reference_layer(dtype="float64")(zeros(T)).dtype == "float64"


def test_symbolic():
    layer = reference_layer()
    inputs, context = keras.Input((None, 4)), keras.Input((None, 4))
    assert layer(inputs).shape == (1, N, None, None)
    assert layer(keras.Input((T, 4)), context=keras.Input((S, 4))).shape == (1, N, T, S)
    scores = keras.ops.sum(inputs) + layer(inputs, context=context)
    model = keras.Model([inputs, context], scores)
    np.testing.assert_array_equal(model([zeros(T), zeros(S)]), GOLDEN["t5/bias"])


def test_mask_ends_here():
    x = keras.layers.Embedding(6, 4, mask_zero=True)(np.array([[1, 0]]))
    assert getattr(RelativePositionBias(N)(x), "_keras_mask", None) is None


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_trace(jit_compile):
    import tensorflow as tf

    layer, traces = reference_layer(), []
    signature = [tf.TensorSpec((None, None, 4))] * 2 + [tf.TensorSpec((), tf.int32)]

    @tf.function(input_signature=signature, jit_compile=jit_compile)
    def run(x, context, offset):
        traces.append(1)
        return layer(x, context=context, query_offset=offset)

    np.testing.assert_array_equal(run(zeros(T), zeros(S), 0), GOLDEN["t5/bias"])
    np.testing.assert_array_equal(run(zeros(2), zeros(S), 9), GOLDEN["t5/shifted"])
    assert len(traces) == 1


def test_config_and_save(tmp_path):
    layer = RelativePositionBias(
        num_heads=N, num_buckets=10, max_distance=12, bidirectional=False
    )
    config = json.loads(json.dumps(layer.get_config()))
    assert RelativePositionBias.from_config(config).get_config() == layer.get_config()
    inputs = keras.Input((None, 4))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(zeros(S)), loaded(zeros(S)))


def test_errors():
    with pytest.raises(ValueError, match="`num_heads` must be positive, got 0"):
        RelativePositionBias(0)
    with pytest.raises(ValueError, match="`num_buckets` must be at least 4, got 3"):
        RelativePositionBias(N, num_buckets=3)
    with pytest.raises(ValueError, match="`num_buckets` must be at least 2, got 1"):
        RelativePositionBias(N, num_buckets=1, bidirectional=False)
    with pytest.raises(ValueError, match="`max_distance` must be above 8, .*, got 8"):
        RelativePositionBias(N, max_distance=8)
