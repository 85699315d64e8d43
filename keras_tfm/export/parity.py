"""Compare a model with the file that was exported from it."""

import dataclasses
import pathlib
import re

import keras
import numpy as np

from keras_tfm.export import signatures
from keras_tfm.export.saved_model import MARKER


@dataclasses.dataclass(frozen=True)
class Parity:
    """How near a file's outputs are to the model's.

    Args:
        max_difference: float, the largest absolute difference of any output.
        agreement: float in [0, 1], share of equal predictions: of the places where
            the largest entry of the last axis is the same one.
        outputs: dict from output names to their largest differences.
        path: str, the file or folder.
    """

    max_difference: float
    agreement: float
    outputs: dict
    path: str

    def __str__(self):
        """One line for a person."""
        parts = ", ".join(f"{name} {value:.2g}" for name, value in self.outputs.items())
        return (
            f"{pathlib.Path(self.path).name}: predictions agree {self.agreement:.2%}, "
            f"largest difference {self.max_difference:.2g} ({parts})"
        )


def check_parity(model, path, inputs):
    """Run a model and its exported file on the same inputs and compare.

    Args:
        model: the `keras.Model` that was exported.
        path: str or path of a SavedModel folder or a .tflite file.
        inputs: what the model is called with, all inputs of it. Sizes that the
            file leaves free are resized to them.

    Returns: `Parity`.

    Raises:
        ValueError: the file is missing, cut, of another kind or of another model,
            or does not accept these inputs.

    Example:
        >>> inputs = keras.Input((None, 4), name="features")
        >>> logits = keras.layers.Dense(3, name="logits")(inputs)
        >>> model = keras.Model(inputs, logits)
        >>> path = keras_tfm.export.to_litert(model, "scores.tflite")
        >>> parity = keras_tfm.export.check_parity(model, path, np.ones((2, 5, 4)))
        >>> parity.agreement, parity.max_difference < 1e-5
        (1.0, True)
    """
    named = signatures.unpack_inputs(model, inputs)
    actual = run_file(path, named)
    expected = _run_model(model, named)
    if set(expected) != set(actual):
        raise ValueError(
            f"`path` must hold the model's outputs {sorted(expected)}, got "
            f"{sorted(actual)} in {path}."
        )
    differences, equal, places = {}, 0, 0
    for name, tensor in expected.items():
        one, other = _to_numpy(tensor), _to_numpy(actual[name])
        if one.shape != other.shape:
            raise ValueError(
                f"`path` must give '{name}' of shape {one.shape}, got {other.shape} in "
                f"{path}."
            )
        differences[name] = float(np.max(np.abs(one - other), initial=0.0))
        same = _predictions(one) == _predictions(other)
        equal, places = equal + int(same.sum()), places + same.size
    return Parity(
        max_difference=float(np.max(list(differences.values()))),
        agreement=equal / places if places else 1.0,
        outputs=differences,
        path=str(path),
    )


def run_file(path, inputs, signature="serving_default"):
    """Run an exported file on named inputs.

    Args:
        path: str or path of a SavedModel folder or a .tflite file.
        inputs: dict from input names to arrays, all inputs of the signature.
        signature: str, the signature's name.

    Returns: dict from output names to NumPy arrays.

    Raises:
        ValueError: the file is missing, cut or foreign, or does not accept them.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise ValueError(
            f"`path` must be a SavedModel or .tflite file, {path} is missing."
        )
    run = _run_saved_model if path.is_dir() else _run_litert
    return run(path, inputs, signature)


def _run_model(model, inputs):
    """The model's own outputs by name, from a graph with its free sizes."""
    import tensorflow as tf

    def call(named):
        outputs = model(signatures.pack_inputs(model, named), training=False)
        return signatures.name_outputs(model, outputs)

    specs = signatures.input_specs(model)
    function = tf.function(call, input_signature=[specs], autograph=False)
    tensors = {key: tf.constant(value) for key, value in inputs.items()}
    return function.get_concrete_function()(tensors)


def _run_saved_model(path, inputs, signature):
    import tensorflow as tf

    if not (path / MARKER).exists():
        raise ValueError(f"`path` must hold {MARKER}, got the folder {path}.")
    try:
        loaded = tf.saved_model.load(str(path))
    except Exception as error:  # cut files raise anything from KeyError to OpError
        raise ValueError(f"`path` cannot be read, {path}: {_reason(error)}") from error
    function = _pick(loaded.signatures, signature, path)
    _, specs = function.structured_input_signature
    _check_inputs(path, inputs, {k: tuple(v.shape) for k, v in specs.items()})
    tensors = {k: tf.constant(v, specs[k].dtype) for k, v in inputs.items()}
    try:
        return {name: value.numpy() for name, value in function(**tensors).items()}
    except tf.errors.OpError as error:
        raise ValueError(f"`inputs` are refused by {path}: {_reason(error)}") from error


def _run_litert(path, inputs, signature):
    content = path.read_bytes()
    if content[4:8] != b"TFL3":
        raise ValueError(f"`path` must be a .tflite file, {path} is not one.")
    try:
        interpreter = _interpreter()(model_content=content)
        runners = {k: k for k in interpreter.get_signature_list()}
    except Exception as error:
        raise ValueError(f"`path` cannot be read, {path}: {_reason(error)}") from error
    runner = interpreter.get_signature_runner(_pick(runners, signature, path))
    details = runner.get_input_details()
    shapes = {
        name: tuple(None if size < 0 else int(size) for size in _free_shape(detail))
        for name, detail in details.items()
    }
    _check_inputs(path, inputs, shapes)
    arrays = {k: np.asarray(v, details[k]["dtype"]) for k, v in inputs.items()}
    try:
        return runner(**arrays)
    except RuntimeError as error:
        raise ValueError(f"`inputs` are refused by {path}: {_reason(error)}") from error


def _free_shape(detail):
    """The shape with -1 for free sizes; a scalar's signature may be empty."""
    free = detail["shape_signature"]
    return free if len(free) else detail["shape"]


def _interpreter():
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        try:
            from tensorflow.lite import Interpreter
        except ImportError:
            raise ImportError(
                "Running a .tflite file needs `pip install ai-edge-litert`."
            ) from None
    return Interpreter


def _pick(signatures_, name, path):
    if name not in signatures_:
        raise ValueError(
            f"`signature` must be one of {sorted(signatures_)} of {path}, got '{name}'."
        )
    return signatures_[name]


def _check_inputs(path, inputs, shapes):
    if set(inputs) != set(shapes):
        raise ValueError(
            f"`inputs` must be {sorted(shapes)} for {path}, got {sorted(inputs)}."
        )
    for name, shape in shapes.items():
        given = np.shape(inputs[name])
        fits = len(given) == len(shape) and all(
            size in (None, actual) for size, actual in zip(shape, given)
        )
        if not fits:
            raise ValueError(
                f"`inputs` must have '{name}' of shape {shape} for {path}, got {given}."
            )


def _reason(error):
    """The line of what TensorFlow says that matters, without the nodes it names."""
    lines = str(error).strip().splitlines() or [repr(error)]
    asserted = [line for line in lines if "assertion failed" in line]
    return re.sub(r"\{\{.*?\}\}\s*", "", (asserted or lines)[0])


def _to_numpy(tensor):
    array = keras.ops.convert_to_numpy(tensor)
    return array.astype("float64") if array.dtype.kind != "O" else array


def _predictions(array):
    """Index of the largest entry of the last axis; a lone number as it is."""
    if array.ndim and array.shape[-1] > 1:
        return np.argmax(array, axis=-1)
    return array > 0
