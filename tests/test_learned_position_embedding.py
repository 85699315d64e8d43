import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.learned_position_embedding import LearnedPositionEmbedding

B, T, D, LIMIT = 2, 5, 3, 16


def tokens(*shape):
    return np.random.default_rng(0).normal(size=shape or (B, T, D)).astype("float32")


def built(**kwargs):
    layer = LearnedPositionEmbedding(LIMIT, **kwargs)
    layer.build((None, None, D))
    return layer


def test_adds_rows():
    layer, x = built(), tokens()
    (rows,) = layer.get_weights()
    assert rows.shape == (LIMIT, D) and layer.table.path.endswith("/table")
    np.testing.assert_allclose(layer(x), x + rows[:T], atol=1e-6)
    shared = np.array([4, 0, 15, 9, 9])
    np.testing.assert_allclose(layer(x, positions=shared), x + rows[shared], atol=1e-6)
    each = np.array([[0, 0, 0, 1, 2], [3, 1, 4, 1, 15]], "int64")
    np.testing.assert_allclose(layer(x, positions=each), x + rows[each], atol=1e-6)


def test_initializer():
    (rows,) = built(initializer=keras.initializers.Constant(0.5)).get_weights()
    np.testing.assert_array_equal(rows, np.full((LIMIT, D), 0.5))
    layer = built(initializer=keras.initializers.RandomNormal(stddev=0.1, seed=3))
    config = json.loads(json.dumps(layer.get_config()))
    clone = LearnedPositionEmbedding.from_config(config)
    assert clone.get_config() == layer.get_config()
    clone.build((None, None, D))
    np.testing.assert_array_equal(clone.get_weights()[0], layer.get_weights()[0])


def test_left_padding():
    # FAULTS O22: positions count real tokens.
    layer, x = built(), tokens()
    padded = layer(x, positions=np.array([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]))
    np.testing.assert_allclose(padded[:1, 2:], layer(x[:1, 2:]), atol=1e-6)


def test_offset_positions():
    # FAULTS O24: positions that start at pad id + 1; pads at the pad id.
    layer = LearnedPositionEmbedding(514)
    x = np.zeros((1, 512, D), "float32")
    outputs = layer(x, positions=np.arange(2, 514))
    np.testing.assert_array_equal(outputs[0], layer.get_weights()[0][2:])
    with_pads = layer(x[:, :3], positions=np.array([2, 3, 1]))
    np.testing.assert_array_equal(with_pads[0], layer.get_weights()[0][[2, 3, 1]])
    with pytest.raises(ValueError, match="length 515, but `max_sequence_length` is 51"):
        layer(np.zeros((1, 515, D), "float32"))


@pytest.mark.parametrize("length", [17, 40])
def test_past_the_table(length):
    # FAULTS O25: a known length past the table names length and limit.
    layer = built()
    assert tuple(layer(tokens(1, 16, D)).shape) == (1, 16, D)
    message = f"`inputs` has length {length}, but `max_sequence_length` is 16"
    with pytest.raises(ValueError, match=message):
        layer(tokens(1, length, D))
    with pytest.raises(ValueError, match=message):
        layer(keras.Input((length, D)))
    # More tokens than rows are fine where their positions say so.
    outputs = layer(tokens(1, length, D), positions=np.arange(length) % 4)
    assert np.isfinite(outputs).all()
    symbol = layer(
        keras.Input((length, D)), positions=keras.Input((length,), dtype="int32")
    )
    assert symbol.shape == (None, length, D)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_past_the_table_unknown_length(jit_compile):
    # FAULTS O25: in a graph of unknown length, an error that names both numbers.
    import tensorflow as tf

    layer = built()
    signature = [tf.TensorSpec((None, None, D))]
    run = tf.function(
        lambda x: layer(x), input_signature=signature, jit_compile=jit_compile
    )
    for length in (1, 16):
        x = tokens(B, length, D)
        np.testing.assert_allclose(run(x), layer(x), atol=1e-6)
    for length in (17, 40):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"16.* {length}"):
            run(tokens(B, length, D))


@pytest.mark.tensorflow
def test_positions_past_the_table():
    # FAULTS O25: offset 10 with length 8; never zeros, never the last row again.
    import tensorflow as tf

    layer, positions = built(), np.arange(10, 18)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"16 is not in \[0, 16\)"):
        layer(tokens(B, 8, D), positions=positions)


def test_compiled_positions_past_the_table():
    # Nothing can be raised there, so the rows are NaN; the others are right.
    layer, x = built(), tokens(B, 8, D)
    positions = np.array([15, 16, 17, -1, 40, 0, 1, 2], "int32")
    outside = np.array([False, True, True, True, True, False, False, False])
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        run = tf.function(lambda x, p: layer(x, positions=p), jit_compile=True)
        outputs = np.array(run(x, positions))
    else:
        outputs = np.array(layer(x, positions=positions))
    np.testing.assert_array_equal(np.isnan(outputs).all(-1), [outside] * B)
    rows = layer.get_weights()[0][positions[~outside]]
    np.testing.assert_allclose(outputs[:, ~outside], x[:, ~outside] + rows, atol=1e-6)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy, given):
    # FAULTS O15: the float32 table is cast, also outside of any autocast scope.
    layer, x = built(dtype=policy), tokens()
    positions = np.arange(T) if given else None
    for outputs in (layer(x, positions=positions), layer.call(ops.array(x), positions)):
        dtype = keras.backend.standardize_dtype(outputs.dtype)
        assert dtype == policy.removeprefix("mixed_")
        expected = x + layer.get_weights()[0][:T]
        np.testing.assert_allclose(ops.cast(outputs, "float32"), expected, atol=2e-2)
    assert layer.table.dtype == "float32"


def test_learns():
    layer = LearnedPositionEmbedding(7)
    model = keras.Sequential([keras.Input((None, D)), layer])
    model.compile("sgd", "mse")
    target = np.broadcast_to(np.arange(7, dtype="float32")[:, None], (7, D))
    x, y = np.zeros((8, 5, D), "float32"), np.stack([target[:5]] * 8)
    before = layer.get_weights()[0]
    losses = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[0]
    after = layer.get_weights()[0]
    assert (after[1:5] != before[1:5]).all() and (after[5:] == before[5:]).all()


def test_save(tmp_path):
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, LearnedPositionEmbedding(7)(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = tokens()
    np.testing.assert_array_equal(model(x), loaded(x))


def test_mask_passes():
    # FAULTS O04.
    seen = []

    class Probe(keras.layers.Layer):
        supports_masking = True

        def call(self, inputs, mask=None):
            seen.append(mask)
            return inputs

    ids = np.array([[3, 5, 0, 0], [1, 0, 2, 0]])
    x = keras.layers.Embedding(6, D, mask_zero=True)(ids)
    Probe()(LearnedPositionEmbedding(4)(x))
    Probe()(LearnedPositionEmbedding(4)(x, positions=np.arange(4)))
    for mask in seen:
        np.testing.assert_array_equal(mask, ids != 0)
    assert len(seen) == 2


def test_errors():
    with pytest.raises(ValueError, match="`max_sequence_length` must be positive, g"):
        LearnedPositionEmbedding(0)
    with pytest.raises(ValueError, match="`positions` must be integers"):
        built()(tokens(), positions=np.zeros((T,), "float32"))
