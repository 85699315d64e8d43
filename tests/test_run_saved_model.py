"""A C program of ours runs a SavedModel through TensorFlow's C library."""

import pathlib
import shutil
import subprocess

import keras
import numpy as np
import pytest

from keras_tfm.export import to_saved_model
from tests import export_models

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
SOURCE = pathlib.Path(__file__).parent / "c" / "run_saved_model.c"
LIBRARIES = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    import tensorflow as tf

    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    home = pathlib.Path(tf.sysconfig.get_lib())
    libraries = [home / name for name in LIBRARIES]
    if not all(path.exists() for path in libraries):
        pytest.skip(f"this TensorFlow does not carry {' and '.join(LIBRARIES)}")
    made = tmp_path_factory.mktemp("c") / "run_saved_model"
    subprocess.run(
        [
            compiler,
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            f"-I{home}/include",
        ]
        + [SOURCE, "-o", made, *libraries, f"-Wl,-rpath,{home}"],
        check=True,
    )
    return made


def argument(name, array):
    shape = "x".join(map(str, array.shape))
    numbers = ",".join(str(number) for number in array.ravel().tolist())
    numbers = numbers.replace("True", "1").replace("False", "0")
    return f"{name}={shape}:{numbers}"


def run(program, folder, inputs, signature="serving_default"):
    """Run the program; what it printed, as a dict of arrays."""
    result = subprocess.run(
        [program, folder, signature, *(argument(k, v) for k, v in inputs.items())],
        capture_output=True,
        text=True,
    )
    assert not result.returncode, result.stderr[-500:]
    outputs = {}
    for line in result.stdout.splitlines():
        name, shape, *numbers = line.split()
        shape = [int(size) for size in shape.split("x")]
        outputs[name] = np.array(numbers, "float32").reshape(shape)
    return outputs


@pytest.mark.parametrize("kind", ["bert", "gpt", "translator", "vision"])
def test_same_numbers_as_keras(program, kind, tmp_path):
    model = getattr(export_models, kind)()
    folder = to_saved_model(model, tmp_path / kind)
    inputs = export_models.feed(model, 2, 7)
    named = inputs if isinstance(inputs, dict) else {"images": inputs}
    outputs = run(program, folder, named)
    expected = model(inputs)
    expected = expected if isinstance(expected, dict) else {"logits": expected}
    assert set(outputs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, atol=1e-5)


def test_int64_and_bool_come_out(program, tmp_path):
    x = keras.Input((3,), dtype="int64", name="x")
    model = keras.Model(x, {"double": x * 2, "odd": keras.ops.equal(x % 2, 1)})
    folder = to_saved_model(model, tmp_path / "numbers")
    outputs = run(program, folder, {"x": np.array([[1, 2, -3]], "int64")})
    np.testing.assert_array_equal(outputs["double"], [[2, 4, -6]])
    np.testing.assert_array_equal(outputs["odd"], [[1, 0, 1]])


def test_says_what_is_wrong(program, tmp_path):
    model = export_models.gpt()
    folder = to_saved_model(model, tmp_path / "gpt")
    inputs = export_models.feed(model, 2, 7)
    both = [argument(name, value) for name, value in inputs.items()]
    for arguments, message in (
        ([], "usage"),
        ([tmp_path / "nothing", "serving_default"], "load: Could not find SavedModel"),
        ([folder, "other", *both], "no such signature: other"),
        ([folder, "serving_default", both[0]], "missing input: "),
        ([folder, "serving_default", *both, "token_ids"], None),
        (
            [folder, "serving_default", "token_ids=1x2:1", "padding_mask=1x2:1,1"],
            "differ",
        ),
        (
            [folder, "serving_default", "token_ids=1x1:99", "padding_mask=1x1:1"],
            "run: ",
        ),
    ):
        result = subprocess.run([program, *arguments], capture_output=True, text=True)
        assert bool(result.returncode) == (message is not None), message
        assert message is None or message in result.stderr
