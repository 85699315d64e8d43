"""Adapters alone in a file: small, complete, and refused where they do not fit."""

import json

import numpy as np
import pytest

from keras_tfm import export, models, training
from tests.laws import assert_near, to_numpy
from tests.test_lora import (
    IDS,
    SIZES,
    D,
    F,
    L,
    R,
    V,
    assert_equal,
    bert,
    fit,
    gpt,
    kernels_of,
    paths,
)


def trained(train=("logits",), dtype=None, alpha=None, **arguments):
    """A model and the weights of its base."""
    model = bert(dtype)
    base = model.get_weights()
    training.add_lora(
        model, rank=R, alpha=alpha, train=train, verbose=False, **arguments
    )
    fit(model, epochs=5)
    return model, base


def fresh(base, dtype=None):
    model = bert(dtype)
    model.set_weights(base)
    return model


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_into_a_fresh_model(dtype, tmp_path, capsys):
    model, base = trained(alpha=3.0, dtype=dtype)
    training.save_lora(model, tmp_path / "adapters.npz")
    other = fresh(base, dtype)
    count = training.load_lora(other, tmp_path / "adapters.npz")
    assert capsys.readouterr().out == f"{count}\n"
    assert_near(other(IDS), model(IDS), atol=0)
    assert sorted(paths(other.trainable_weights)) == sorted(
        paths(model.trainable_weights)
    )
    # And goes on: the base does not move.
    before, first = kernels_of(other), fit(model, epochs=1)
    assert fit(other, epochs=10)[-1] < first[0]
    heads = ["logits/kernel", "logits/bias"]
    assert_equal(before, kernels_of(other), but=heads)


def test_the_file_holds_adapters_and_heads_alone(tmp_path):
    model, _ = trained()
    path = tmp_path / "adapters.npz"
    training.save_lora(model, path)
    with np.load(path) as file:
        names = set(file.files)
        settings = json.loads(str(file["adapters"]))
    layers = [f"block_{i}/attention/{p}" for i in range(L) for p in ("query", "value")]
    factors = {f"{layer}/lora_{one}" for layer in layers for one in "ab"}
    assert names == factors | {"adapters", "logits/kernel", "logits/bias"}
    own = {"rank": R, "alpha": R}
    assert settings == {"version": 1, "layers": dict.fromkeys(layers, own)}
    assert [p.name for p in tmp_path.iterdir()] == ["adapters.npz"]


def test_adapters_are_exchanged(tmp_path):
    model, base = trained(train=())
    training.save_lora(model, tmp_path / "one.npz")
    expected = to_numpy(model(IDS))
    fit(model, epochs=5)
    assert np.max(np.abs(to_numpy(model(IDS)) - expected)) > 1e-4
    training.load_lora(model, tmp_path / "one.npz", verbose=False)
    assert_near(model.predict(IDS, verbose=0), expected, atol=1e-6)


@pytest.mark.long
@pytest.mark.tensorflow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_merged_and_exported(dtype, tmp_path):
    model, base = trained(dtype=dtype)
    training.save_lora(model, tmp_path / "adapters.npz")
    model = fresh(base, dtype)
    training.load_lora(model, tmp_path / "adapters.npz", verbose=False)
    expected = to_numpy(model(IDS))
    training.merge_lora(model)
    inputs = model.backbone.complete(IDS)
    for path in (
        export.to_saved_model(model, tmp_path / "saved_model"),
        export.to_litert(model, tmp_path / "model.tflite"),
    ):
        logits = export.run_file(path, inputs)["logits"]
        assert_near(logits, expected, atol=1e-5 if dtype == "float32" else 0.05)


def test_what_does_not_fit_changes_nothing(tmp_path):
    model, base = trained()
    path = tmp_path / "adapters.npz"
    training.save_lora(model, path)

    def refused(model, words):
        before = kernels_of(model)
        names = paths(model.trainable_weights)
        with pytest.raises(ValueError, match=words) as error:
            training.load_lora(model, path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
        assert_equal(before, kernels_of(model))
        assert paths(model.trainable_weights) == names

    wide = {**SIZES, "hidden_dim": D + 2}
    wide = models.classifier(models.Bert(V, L, max_sequence_length=16, **wide), 4)
    refused(
        wide,
        r"block_0/attention/query/lora_a is \(8, 2\), the model needs \(10, 2\); "
        r"block_0/attention/query/lora_b is \(2, 8\).* \.\.\.",
    )
    shallow = models.classifier(models.Bert(V, 1, max_sequence_length=16, **SIZES), 4)
    refused(shallow, "block_1/attention/query is no projection of the model")
    two = models.classifier(bert().backbone, 2)
    refused(two, r"logits/kernel is \(8, 4\), the model needs \(8, 2\)")
    refused(gpt(), "logits/kernel is no weight of the model")
    other = fresh(base)
    training.add_lora(other, rank=R + 1, targets="query", verbose=False)
    refused(other, "attention/query has {'rank': 3, 'alpha': 3.0} in the model, {'ra")
    merged = trained()[0]
    training.merge_lora(merged)
    with pytest.raises(ValueError, match="`unmerge_lora` first"):
        training.load_lora(merged, path)


def test_unreadable_files(tmp_path):
    model, _ = trained()
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    training.save_lora(model, good)
    content = good.read_bytes()
    np.savez(tmp_path / "other.npz", x=np.zeros(F))
    for made, words in (
        (None, "cannot be read: No such file"),
        (b"", "not an adapter file, or is cut"),
        (content[: len(content) // 2], "not an adapter file, or is cut"),
        ((tmp_path / "other.npz").read_bytes(), "not an adapter file, or is cut"),
    ):
        if made is not None:
            bad.write_bytes(made)
        with pytest.raises(ValueError, match=words):
            training.load_lora(bert(), bad)


def test_nothing_to_save(tmp_path):
    model = bert()
    with pytest.raises(ValueError, match="must have adapters, got none"):
        training.save_lora(model, tmp_path / "x.npz")
    training.add_lora(model, rank=R, verbose=False)
    training.merge_lora(model)
    with pytest.raises(ValueError, match="`unmerge_lora` first"):
        training.save_lora(model, tmp_path / "x.npz")
    assert not list(tmp_path.iterdir())
