import shutil

import keras
import numpy as np
import pytest

from keras_tfm.export import Parity, check_parity, run_file, to_litert, to_saved_model

pytestmark = pytest.mark.tensorflow
B, T, D = 2, 5, 4


def make(shift=0.0, name="scores"):
    """Scores and twice the scores; `shift` moves the first of three classes."""
    x = keras.Input((None, D), name="x")
    dense = keras.layers.Dense(3, name=name, bias_initializer=_shift(shift))
    keras.utils.set_random_seed(3)
    scores = dense(x)
    return keras.Model(x, {name: scores, "twice": scores * 2})


def _shift(value):
    return lambda shape, dtype=None: keras.ops.convert_to_tensor([value, 0.0, 0.0])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parity")
    model = make()
    return model, [
        to_saved_model(model, folder / "saved"),
        to_litert(model, folder / "model.tflite"),
    ]


def inputs(batch=B, length=T):
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(batch, length, D)).astype("float32")}


def test_equal(files):
    model, paths = files
    for path in paths:
        for x in (inputs(), inputs(1, 1), inputs()["x"]):
            parity = check_parity(model, path, x)
            assert parity.agreement == 1.0
            assert parity.max_difference < 1e-5
            assert set(parity.outputs) == {"scores", "twice"}


def test_differences_are_measured(files):
    """Class 0 is raised by 0.5 in the model and not in the file."""
    model, paths = files
    raised = make(0.5)
    x = inputs()["x"]
    before = np.argmax(model(x)["scores"], -1)
    after = np.argmax(raised(x)["scores"], -1)
    agreement = np.mean(before == after)
    assert 0 < agreement < 1
    for path in paths:
        parity = check_parity(raised, path, {"x": x})
        assert parity.outputs["scores"] == pytest.approx(0.5, abs=1e-5)
        assert parity.outputs["twice"] == parity.max_difference
        assert parity.max_difference == pytest.approx(1.0, abs=1e-5)
        assert parity.agreement == pytest.approx(agreement)


def test_a_number_that_is_none_is_not_hidden(files):
    model, paths = files
    x = inputs()["x"]
    x[0, 0, 0] = np.nan
    for path in paths:
        assert np.isnan(check_parity(model, path, x).max_difference)


def test_one_line():
    parity = Parity(0.25, 0.5, {"a": 0.25, "b": 1e-7}, "some/where/model.tflite")
    assert str(parity) == (
        "model.tflite: predictions agree 50.00%, largest difference 0.25 "
        "(a 0.25, b 1e-07)"
    )


def test_run_file_gives_outputs_by_name(files):
    model, paths = files
    for path in paths:
        outputs = run_file(path, inputs())
        np.testing.assert_allclose(outputs["twice"], 2 * outputs["scores"], rtol=1e-6)
        np.testing.assert_allclose(
            outputs["scores"], model(inputs()["x"])["scores"], atol=1e-5
        )


def test_wrong_inputs(files):
    model, paths = files
    for path in paths:
        with pytest.raises(ValueError, match=r"must be \['x'\].*got \['y'\]"):
            run_file(path, {"y": inputs()["x"]})
        with pytest.raises(ValueError, match=r"'x' of shape \(None, None, 4\)"):
            run_file(path, {"x": np.ones((B, T, D + 1), "float32")})
        with pytest.raises(ValueError, match="must be one of .*serving_default"):
            run_file(path, inputs(), "nothing")
        with pytest.raises(ValueError, match="must have the keys"):
            check_parity(model, path, {"y": inputs()["x"]})
        with pytest.raises(ValueError, match="must hold the model's outputs"):
            check_parity(make(name="others"), path, inputs())


def test_missing_cut_and_foreign_files(files, tmp_path):
    model, (folder, file) = files
    text = tmp_path / "letter.tflite"
    text.write_text("Dear reader, this is no model.")
    (tmp_path / "empty.tflite").touch()
    cut = tmp_path / "cut.tflite"
    cut.write_bytes(file.read_bytes()[:600])
    (tmp_path / "folder").mkdir()
    no_weights = tmp_path / "no_weights"
    shutil.copytree(folder, no_weights)
    shutil.rmtree(no_weights / "variables")
    cut_graph = tmp_path / "cut_graph"
    shutil.copytree(folder, cut_graph)
    graph = cut_graph / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:2000])
    for path, message in (
        (tmp_path / "nothing", "is missing"),
        (text, "is not one"),
        (tmp_path / "empty.tflite", "is not one"),
        (cut, "cannot be read"),
        (tmp_path / "folder", "must hold saved_model.pb"),
        (no_weights, "cannot be read"),
        (cut_graph, "cannot be read"),
    ):
        with pytest.raises(ValueError, match=message) as info:
            check_parity(model, path, inputs())
        assert str(path) in str(info.value)
        assert "\n" not in str(info.value)
