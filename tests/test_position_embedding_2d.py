import json
import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.position_embedding_2d import (
    PositionEmbedding2D,
    resize_position_table,
    sincos_grid,
)

# Made by tests/reference/position_grid.py with timm.
GOLDEN = np.load(pathlib.Path(__file__).parent / "golden" / "position_grid.npz")
B, D, GRID = 2, 8, (2, 3)


def tokens(length, width=D):
    return np.random.default_rng(0).normal(size=(B, length, width)).astype("float32")


def test_learned():
    layer, x = PositionEmbedding2D(GRID, num_class_tokens=2), tokens(8)
    outputs = layer(x)
    (rows,) = layer.get_weights()
    assert rows.shape == (8, D) and layer.table.path.endswith("/table")
    assert len(np.unique(rows)) == rows.size
    np.testing.assert_allclose(outputs, x + rows, atol=1e-6)


def test_sincos():
    layer, x = PositionEmbedding2D(GRID, "sincos", num_class_tokens=2), tokens(8)
    outputs = layer(x)
    assert not layer.weights
    np.testing.assert_array_equal(outputs[:, :2], x[:, :2])
    waves = sincos_grid(GRID, D)
    np.testing.assert_allclose(outputs[:, 2:], x[:, 2:] + waves, atol=1e-6)
    # Half of the columns for the row, half for the column, sines before cosines.
    place = 1 * 3 + 2  # row 1, column 2
    angles = np.array([1.0, 0.01])
    expected = [f(n * angles) for n in (1, 2) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(waves[place], np.ravel(expected), atol=1e-12)


def test_sincos_against_timm():
    # timm orders the quarters sine row, sine column, cosine row, cosine column.
    quarters = sincos_grid((3, 5), 16).reshape(15, 4, 4)
    expected = GOLDEN["sincos"].reshape(15, 4, 4)[:, [0, 2, 1, 3]]
    np.testing.assert_allclose(quarters, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["learned", "sincos"])
def test_number_of_tokens(kind):
    layer = PositionEmbedding2D(GRID, kind, num_class_tokens=1)
    message = r"`inputs` must have 1 \+ 2 \* 3 = 7 tokens, got 6"
    with pytest.raises(ValueError, match=message):
        layer.build((None, 6, D))
    layer.build((None, None, D))
    assert layer(keras.Input((None, D))).shape == (None, None, D)
    with pytest.raises(ValueError, match=message):
        layer(keras.Input((6, D)))
    for length in (1, 6, 8, 14):
        with pytest.raises(ValueError, match=f"tokens, got {length}"):
            layer(tokens(length))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("kind", ["learned", "sincos"])
def test_unknown_number_of_tokens(kind, jit_compile):
    # FAULTS O54: fewer patches never get the positions of other places.
    import tensorflow as tf

    layer = PositionEmbedding2D(GRID, kind)
    layer.build((None, None, D))
    run = tf.function(
        lambda x: layer(x),
        input_signature=[tf.TensorSpec((None, None, D))],
        jit_compile=jit_compile,
    )
    np.testing.assert_allclose(run(tokens(6)), layer(tokens(6)), atol=1e-6)
    for length in (1, 5, 7, 12):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(tokens(length))


@pytest.mark.parametrize("kind", ["learned", "sincos"])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy, kind):
    layer, x = PositionEmbedding2D(GRID, kind, dtype=policy), tokens(6)
    for outputs in (layer(x), layer.call(ops.array(x))):
        dtype = keras.backend.standardize_dtype(outputs.dtype)
        assert dtype == policy.removeprefix("mixed_")
        np.testing.assert_allclose(
            ops.cast(outputs, "float32"), x + np.array(layer.table), atol=3e-2
        )


@pytest.mark.parametrize("kind", ["learned", "sincos"])
def test_config_and_save(tmp_path, kind):
    layer = PositionEmbedding2D(grid_size=GRID, kind=kind, num_class_tokens=1)
    config = json.loads(json.dumps(layer.get_config()))
    assert PositionEmbedding2D.from_config(config).get_config() == layer.get_config()
    inputs = keras.Input((7, D))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(tokens(7)), loaded(tokens(7)))


@pytest.mark.parametrize("kind", ["", "/sharp"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("number", range(4))
def test_resize_against_timm(number, interpolation, kind):
    *grids, class_tokens = (int(n) for n in GOLDEN[f"{number}/grids"])
    resized = resize_position_table(
        GOLDEN[f"{number}/table"],
        grids[:2],
        grids[2:],
        class_tokens,
        interpolation,
        antialias=not kind,
    )
    expected = GOLDEN[f"{number}/{interpolation}{kind}"]
    np.testing.assert_allclose(resized, expected, atol=5e-6)
    assert resized.dtype == "float32"


@pytest.mark.parametrize("class_tokens", [0, 1])
def test_same_grid(class_tokens):
    # FAULTS O53: 196 and 197 rows; nothing changes, bit for bit.
    table = np.random.default_rng(0).normal(size=(196 + class_tokens, 3))
    resized = resize_position_table(table, (14, 14), (14, 14), class_tokens)
    np.testing.assert_array_equal(resized, table)
    assert resized is not table and resized.dtype == table.dtype
    with pytest.raises(ValueError, match=r"1? ?\+ 14 \* 14 rows, got the shape"):
        resize_position_table(table, (14, 14), (7, 7), 1 - class_tokens)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
@pytest.mark.parametrize(("old", "new"), [((2, 4), (4, 2)), ((4, 6), (9, 3))])
def test_axes(old, new, interpolation):
    # FAULTS O53: what varies down the rows goes on varying down the rows only.
    rows, columns = np.indices(old)
    grid = np.stack([rows, columns], -1).reshape(-1, 2).astype("float32")
    table = np.concatenate([[[70.0, -70.0]], grid])
    resized = resize_position_table(table, old, new, 1, interpolation)
    np.testing.assert_array_equal(resized[0], [70.0, -70.0])
    found = resized[1:].reshape(*new, 2)
    np.testing.assert_allclose(found[..., 0], found[:, :1, 0] + 0 * found[..., 0])
    np.testing.assert_allclose(found[..., 1], found[:1, :, 1] + 0 * found[..., 1])
    assert (np.diff(found[:, 0, 0]) >= 0).all() and (np.diff(found[0, :, 1]) >= 0).all()


def test_nearest():
    table = np.arange(6.0)[:, None]
    found = resize_position_table(table, (2, 3), (4, 3), interpolation="nearest")
    np.testing.assert_array_equal(found[:, 0], [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5])
    found = resize_position_table(table, (2, 3), (1, 3), interpolation="nearest")
    np.testing.assert_array_equal(found[:, 0], [3, 4, 5])


def test_resized_table_fits_a_new_layer():
    small = PositionEmbedding2D(GRID, num_class_tokens=1)
    small.build((None, 7, D))
    large = PositionEmbedding2D((4, 6), num_class_tokens=1)
    large.build((None, 25, D))
    table = resize_position_table(small.table, GRID, (4, 6), 1)
    large.table.assign(table)
    np.testing.assert_array_equal(large.get_weights()[0][0], small.get_weights()[0][0])


def test_errors():
    with pytest.raises(ValueError, match='`kind` must be "learned" or "sincos", got'):
        PositionEmbedding2D(GRID, "fixed")
    for grid in ((2,), (2, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match="`grid_size` must be two positive ints"):
            PositionEmbedding2D(grid)
    with pytest.raises(ValueError, match="`num_class_tokens` must not be negative"):
        PositionEmbedding2D(GRID, num_class_tokens=-1)
    with pytest.raises(ValueError, match="`dim` must be a multiple of 4 .*, got 6"):
        PositionEmbedding2D(GRID, "sincos").build((None, 6, 6))
    table = np.zeros((6, 2))
    with pytest.raises(ValueError, match="`new_grid` must be two positive ints"):
        resize_position_table(table, GRID, (0, 3))
    with pytest.raises(ValueError, match="`interpolation` must be .*, got 'lanczos'"):
        resize_position_table(table, GRID, (4, 3), interpolation="lanczos")
