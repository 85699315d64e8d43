"""SavedModel folders: signatures, sizes, strings, and readers without this library."""

import os
import shutil

import keras
import numpy as np
import pytest

from keras_tfm.export import check_parity, run_file, to_saved_model
from tests import export_models
from tests.export_models import LONGEST, feed
from tests.exports import Reader

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    reader = Reader(tmp_path_factory.mktemp("reader"))
    yield reader
    reader.close()


@pytest.fixture(
    scope="module",
    params=["bert", "gpt", "translator", "vision"],
)
def exported(request, tmp_path_factory):
    """(model, its folder, a copy of it elsewhere)."""
    keras.utils.set_random_seed(1)
    model = getattr(export_models, request.param)()
    folder = to_saved_model(model, tmp_path_factory.mktemp("saved") / request.param)
    moved = tmp_path_factory.mktemp("moved") / "model"
    shutil.copytree(folder, moved)
    return model, folder, moved


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 7), (3, LONGEST), (0, 4)])
def test_same_numbers_at_every_size(exported, batch, length):  # FAULTS O48
    model, folder, _ = exported
    parity = check_parity(model, folder, feed(model, batch, length))
    assert parity.max_difference < 1e-5
    assert parity.agreement == 1.0


def test_reads_without_keras_and_elsewhere(exported, reader):  # FAULTS O46
    model, _, moved = exported
    inputs = feed(model, 3, 7)
    outputs = reader.run(
        moved, inputs if isinstance(inputs, dict) else {"images": inputs}
    )
    expected = model(inputs)
    expected = expected if isinstance(expected, dict) else {"logits": expected}
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, atol=1e-5)


def test_too_long_is_refused_after_export_too(exported):  # FAULTS O48, O25
    model, folder, _ = exported
    inputs = feed(model, 2, LONGEST + 1)
    if not {"token_ids"} & set(model.input if isinstance(model.input, dict) else ()):
        pytest.skip("no position table")
    with pytest.raises(ValueError, match=f"refused by .*{folder.name}.*{LONGEST}"):
        run_file(folder, inputs)


def test_readme_names_every_signature(exported):
    model, folder, _ = exported
    text = (folder / "README.md").read_text("utf-8")
    assert "needs nothing but TensorFlow" in text
    inputs = model.input if isinstance(model.input, dict) else {"images": model.input}
    for name, tensor in inputs.items():
        row = f"| serving_default | input | {name} | {tensor.dtype} | {tensor.shape} |"
        assert row in text
    outputs = model.output if isinstance(model.output, dict) else {"logits": 0}
    for name in outputs:
        assert f"| serving_default | output | {name} | float32 | (None, " in text


def test_explicit_sizes_are_kept(tmp_path):  # FAULTS O48
    model = export_models.bert()
    folder = to_saved_model(model, tmp_path / "fixed", batch_size=4, length=16)
    assert "| token_ids | int32 | (4, 16) |" in (folder / "README.md").read_text()
    assert check_parity(model, folder, feed(model, 4, 16)).max_difference < 1e-5
    for sizes in ((3, 16), (4, 15)):
        with pytest.raises(ValueError, match=r"of shape \(4, 16\)"):
            check_parity(model, folder, feed(model, *sizes))


def test_is_a_keras_layer_again(tmp_path):
    model = export_models.gpt()
    folder = to_saved_model(model, tmp_path / "gpt")
    layer = keras.layers.TFSMLayer(str(folder), call_endpoint="serving_default")
    inputs = feed(model, 2, 5)
    np.testing.assert_allclose(layer(inputs)["logits"], model(inputs), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_mixed_and_quantized_models_as_they_are(tmp_path):
    mixed = export_models.gpt("mixed_bfloat16")
    quantized = keras.Sequential(
        [keras.Input((4,), name="x"), keras.layers.Dense(3, name="logits")]
    )
    quantized.quantize("int8")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    for model, inputs in ((mixed, feed(mixed, 2, 5)), (quantized, x)):
        folder = to_saved_model(model, tmp_path / model.name)
        assert check_parity(model, folder, inputs).max_difference == 0.0


def test_an_export_replaces_the_one_before(tmp_path):
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        model = export_models.gpt()
        to_saved_model(model, tmp_path / "gpt")
        parity = check_parity(model, tmp_path / "gpt", feed(model, 2, 5))
        assert parity.max_difference < 1e-5
    assert os.listdir(tmp_path) == ["gpt"]


def test_a_failure_leaves_nothing_and_keeps_the_old(tmp_path, monkeypatch):
    model = export_models.gpt()
    folder = to_saved_model(model, tmp_path / "gpt")

    def full_disk(archive, path, **_):
        import tensorflow as tf

        with open(os.path.join(path, "saved_model.pb"), "wb") as file:
            file.write(b"half")
        reason = f"{path}/saved_model.pb; No space left on device"
        raise tf.errors.ResourceExhaustedError(None, None, reason)

    monkeypatch.setattr(type(keras.export.ExportArchive()), "write_out", full_disk)
    for path in (folder, tmp_path / "other"):
        with pytest.raises(OSError, match=f"Could not write {path}: No space left"):
            to_saved_model(model, path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["gpt"]
    assert check_parity(model, folder, feed(model, 2, 5)).max_difference < 1e-5


def test_a_path_with_other_files_is_refused(tmp_path):
    (tmp_path / "letter.txt").touch()
    with pytest.raises(ValueError, match="holds other files"):
        to_saved_model(export_models.gpt(), tmp_path)
