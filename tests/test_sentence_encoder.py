"""Vectors of texts: NumPy's mean over real tokens, of length 1, saved and exported."""

import keras
import numpy as np
import pytest

from keras_tfm import export, models
from tests.laws import assert_near, differs, randomize, to_numpy, token_ids

B, T, V, D = 3, 5, 31, 8
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 12}


def encoder(pooling="mean", dtype=None):
    backbone = models.Bert(V, max_sequence_length=9, dtype=dtype, **SIZES)
    return randomize(models.SentenceEncoder(backbone, pooling))


def inputs():
    ids = token_ids(B, T)
    real = np.arange(T) < np.array([[5], [2], [1]])
    return {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": real}


@pytest.mark.parametrize("pooling", ["mean", "first", "backbone"])
def test_numpy_pools_the_same(pooling):
    model, given = encoder(pooling), inputs()
    outputs = to_numpy(model.backbone(given))
    rows, real = outputs["sequence_output"], given["padding_mask"]
    pooled = {
        "mean": np.stack([row[mask].mean(axis=0) for row, mask in zip(rows, real)]),
        "first": rows[:, 0],
        "backbone": outputs["pooled_output"],
    }[pooling]
    expected = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    vectors = model(given)
    assert tuple(vectors.shape) == (B, D)
    assert_near(vectors, expected, atol=1e-5)


def test_padding_changes_nothing():
    model, given = encoder(), inputs()
    longer = {k: np.pad(v, [(0, 0), (0, 3)]) for k, v in given.items()}
    longer["token_ids"][:, T:] = 7
    assert_near(model(longer), model(given), atol=1e-5)
    assert differs(model(given["token_ids"])[1:], to_numpy(model(given))[1:])


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_saved_and_loaded(pooling, tmp_path):
    model, given = encoder(pooling), inputs()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is models.SentenceEncoder and loaded.pooling == pooling
    assert_near(loaded(given), model(given), atol=1e-6)
    frozen = models.SentenceEncoder(encoder().backbone, trainable=False)
    frozen.save(tmp_path / "frozen.keras")
    assert not keras.models.load_model(tmp_path / "frozen.keras").trainable_weights


@pytest.mark.tensorflow
def test_exported(tmp_path):
    model, given = encoder(), inputs()
    for path in (
        export.to_saved_model(model, tmp_path / "saved_model"),
        export.to_litert(model, tmp_path / "model.tflite"),
    ):
        assert_near(export.run_file(path, given)["vectors"], model(given), atol=1e-5)


def test_mixed_precision_gives_float32_of_length_1():
    vectors = encoder(dtype="mixed_bfloat16")(inputs())
    assert keras.backend.standardize_dtype(vectors.dtype) == "float32"
    assert_near(np.sum(to_numpy(vectors) ** 2, axis=1), np.ones(B), atol=1e-5)


def test_unknown_pooling():
    with pytest.raises(ValueError, match="`pooling` must be one of .*, got 'max'"):
        encoder("max")
