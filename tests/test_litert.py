"""LiteRT files: built-in operations, sizes, 16 and 8 bits, accuracy kept."""

import os

import keras
import numpy as np
import pytest

from keras_tfm import models
from keras_tfm.export import check_parity, run_file, to_litert
from tests import export_models
from tests.export_models import LONGEST, feed

pytestmark = pytest.mark.tensorflow
KINDS = ["bert", "gpt", "translator", "vision"]
LENGTH = 16


def interpreter(path):
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(str(path))


def operations(path):
    return {op["op_name"] for op in interpreter(path)._get_ops_details()}


@pytest.fixture(scope="module", params=KINDS)
def converted(request, tmp_path_factory):
    keras.utils.set_random_seed(1)
    model = getattr(export_models, request.param)()
    path = tmp_path_factory.mktemp("litert") / "model.tflite"
    return model, to_litert(model, path)


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 64), (2, 73)])
def test_same_numbers_at_every_size(converted, batch, length):  # FAULTS O50
    model, path = converted
    parity = check_parity(model, path, feed(model, batch, length))
    assert parity.max_difference < 1e-4
    assert parity.agreement == 1.0


def test_signature_has_names(converted):  # FAULTS O50
    model, path = converted
    signature = interpreter(path).get_signature_list()["serving_default"]
    inputs = model.input if isinstance(model.input, dict) else ["images"]
    outputs = model.output if isinstance(model.output, dict) else ["logits"]
    assert sorted(signature["inputs"]) == sorted(inputs)
    assert sorted(signature["outputs"]) == sorted(outputs)


def test_built_in_operations_only(converted):
    _, path = converted
    assert not {op for op in operations(path) if op.startswith(("Flex", "CUSTOM"))}


def test_too_long_is_refused(converted):  # FAULTS O25
    model, path = converted
    if not isinstance(model.input, dict) or "token_ids" not in model.input:
        pytest.skip("no position table")
    with pytest.raises(ValueError, match=f"refused by {path}"):
        run_file(path, feed(model, 2, LONGEST + 1))


def parts_of_xnnpack(path):
    """How many pieces of the graph XNNPACK took."""
    runner = interpreter(path)
    runner.allocate_tensors()
    names = [op["op_name"] for op in runner._get_ops_details()]
    return names.count("DELEGATE")


@pytest.mark.parametrize("kind", KINDS)
def test_fixed_sizes(kind, tmp_path):
    model = getattr(export_models, kind)()
    sizes = {"batch_size": 2, "length": LENGTH}
    if kind == "vision":
        del sizes["length"]
    if kind == "translator":
        short = LENGTH // 2 + 1
        sizes["length"] = {"source_token_ids": LENGTH, "target_token_ids": short}
    path = to_litert(model, tmp_path / "fixed.tflite", **sizes)
    assert check_parity(model, path, feed(model, 2, LENGTH)).max_difference < 1e-4
    with pytest.raises(ValueError, match=r"of shape \(2, "):
        check_parity(model, path, feed(model, 3, LENGTH))
    # Only masks and look-ups stay outside, one or two cuts for each attention.
    attentions = 3 if kind == "translator" else 1
    cuts = 0 if kind == "vision" else 2 * attentions
    assert 1 <= parts_of_xnnpack(path) <= cuts + 2


def test_fixed_sizes_are_what_xnnpack_takes_whole(converted, tmp_path):
    model, free = converted
    if "vision" not in model.name:
        pytest.skip("one kind is enough")
    fixed = to_litert(model, tmp_path / "fixed.tflite", batch_size=1)
    assert parts_of_xnnpack(fixed) == 1 < parts_of_xnnpack(free)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_goes_through_its_twin(dtype, tmp_path):
    model = export_models.bert(dtype)
    path = to_litert(model, tmp_path / "mixed.tflite")
    parity = check_parity(model, path, feed(model, 3, 7))
    assert parity.agreement == 1.0
    assert 0 < parity.max_difference < 0.02


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_model_quantized_by_keras_is_refused(tmp_path):
    model = export_models.gpt()
    model.quantize("int8")
    with pytest.raises(ValueError, match="not be quantized by Keras.*`quantize=` here"):
        to_litert(model, tmp_path / "no.tflite")
    assert not os.listdir(tmp_path)


def test_quantized_files_are_smaller(tmp_path):
    x = keras.Input((None, 64), name="x")
    model = keras.Model(x, keras.layers.Dense(256, name="y")(x))
    batches = [np.random.default_rng(i).normal(size=(2, 5, 64)) for i in range(8)]
    sizes = {}
    for quantize in (None, "float16", "dynamic", "int8"):
        calibration = batches if quantize == "int8" else None
        path = tmp_path / f"{quantize}.tflite"
        to_litert(model, path, quantize, calibration)
        sizes[quantize] = path.stat().st_size
        parity = check_parity(model, path, batches[0])
        assert parity.max_difference < {None: 1e-5, "float16": 5e-3}.get(quantize, 0.1)
        if quantize is not None:
            assert parity.max_difference > 0
    weights = 64 * 256
    assert sizes[None] > 4 * weights > sizes["float16"] > 2 * weights
    assert 2 * weights > sizes["dynamic"] > weights
    assert 2 * weights > sizes["int8"] > weights


# Accuracy after quantization: a classifier of padded sentences, trained first.


def sentences(count, seed):
    """Rows that hold one word of class 0 or one of class 1, padded to LENGTH."""
    rng = np.random.default_rng(seed)
    ids, classes = np.zeros((count, LENGTH), "int32"), rng.integers(0, 2, count)
    for row, label in zip(ids, classes):
        length = rng.integers(3, LENGTH + 1)
        row[:length] = rng.integers(2, 25, length)
        row[rng.integers(1, length)] = 25 + 2 * label + rng.integers(0, 2)
        row[0] = 1
    return ids, classes


def as_inputs(ids):
    return {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": ids > 0,
    }


@pytest.fixture(scope="module")
def trained():
    keras.utils.set_random_seed(0)
    backbone = models.Bert(30, 1, 2, 32, 64, max_sequence_length=LENGTH, dropout=0.0)
    model = models.classifier(backbone, 2)
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    ids, classes = sentences(1500, 1)
    model.fit(as_inputs(ids), classes, epochs=4, batch_size=50, verbose=0)
    ids, classes = sentences(300, 2)
    accuracy = model.evaluate(as_inputs(ids), classes, verbose=0, return_dict=True)
    assert accuracy["accuracy"] > 0.95
    return model, ids, classes, accuracy["accuracy"]


def calibration():
    """Padded rows and full rows."""
    ids, _ = sentences(160, 3)
    full = np.where(ids == 0, 2, ids)
    return [as_inputs(rows) for rows in (*np.split(ids, 20), *np.split(full, 20))]


@pytest.mark.parametrize("quantize", ["float16", "dynamic", "int8"])
def test_accuracy_after_quantization(trained, quantize, tmp_path):  # FAULTS O51
    model, ids, classes, accuracy = trained
    path = to_litert(
        model,
        tmp_path / "model.tflite",
        quantize,
        calibration() if quantize == "int8" else None,
    )
    logits = run_file(path, as_inputs(ids))["logits"]
    assert np.mean(np.argmax(logits, -1) == classes) >= accuracy - 0.03
    for row in range(20):  # a sentence says the same without its padding
        alone = ids[row : row + 1, : np.sum(ids[row] > 0)]
        shorter = run_file(path, as_inputs(alone))["logits"][0]
        assert np.argmax(shorter) == np.argmax(logits[row])
        np.testing.assert_allclose(shorter, logits[row], atol=0.5)


def test_int8_at_fixed_sizes(trained, tmp_path):  # FAULTS O51
    model, ids, classes, accuracy = trained
    path = to_litert(
        model, tmp_path / "8.tflite", "int8", calibration(), batch_size=4, length=LENGTH
    )
    parts = [run_file(path, as_inputs(part)) for part in np.split(ids, 75)]
    logits = np.concatenate([part["logits"] for part in parts])
    assert np.mean(np.argmax(logits, -1) == classes) >= accuracy - 0.03


def test_int8_products_are_integer_and_softmax_is_not(trained, tmp_path):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    model, *_ = trained
    path = to_litert(
        model, tmp_path / "8.tflite", "int8", calibration(), batch_size=1, length=LENGTH
    )
    # The graph as it is in the file, before a delegate takes its part.
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    plain = Interpreter(str(path), experimental_op_resolver_type=resolver)
    dtypes = {d["index"]: d["dtype"] for d in plain.get_tensor_details()}
    of = {}
    for op in plain._get_ops_details():
        of.setdefault(op["op_name"], set()).add(dtypes[op["inputs"][0]])
    assert of["FULLY_CONNECTED"] == {np.int8}
    assert of["SOFTMAX"] == of["BATCH_MATMUL"] == {np.float32}


def test_calibration_from_tf_data_with_targets(trained, tmp_path):
    import tensorflow as tf

    model, ids, classes, _ = trained
    dataset = tf.data.Dataset.from_tensor_slices((as_inputs(ids), classes)).batch(30)
    path = to_litert(model, tmp_path / "8.tflite", "int8", dataset.take(4))
    assert check_parity(model, path, as_inputs(ids)).agreement > 0.95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quantize": "int4"}, "`quantize` must be one of .*got 'int4'"),
        ({"quantize": "int8"}, "`calibration` must be given with quantize='int8'"),
        ({"calibration": [1]}, "and only then, got quantize=None"),
        ({"quantize": "int8", "calibration": []}, "batches of one shape .*got none"),
        (
            {
                "quantize": "int8",
                "calibration": [np.ones((2, 3, 4)), np.ones((2, 5, 4))],
            },
            "batches of one shape",
        ),
        (
            {"quantize": "int8", "calibration": [np.ones((2, 3, 4))], "length": 5},
            r"must fit 'x' \(None, 5, 4\), got \(2, 3, 4\)",
        ),
        ({"batch_size": 1.5}, "`batch_size` must be a positive int"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path):
    x = keras.Input((None, 4), name="x")
    model = keras.Model(x, keras.layers.Dense(3, name="y")(x))
    with pytest.raises(ValueError, match=message):
        to_litert(model, tmp_path / "no.tflite", **arguments)
    assert not os.listdir(tmp_path)


def test_an_operation_that_litert_lacks_is_named(tmp_path):
    x = keras.Input((None, 4), name="x")
    model = keras.Model(x, keras.ops.erf(x))
    with pytest.raises(
        ValueError, match="operations that LiteRT has: .*[Ee]rf"
    ) as info:
        to_litert(model, tmp_path / "no.tflite")
    assert "\n" not in str(info.value)
    assert not os.listdir(tmp_path)
