import keras
import numpy as np
import pytest

from keras_tfm.export import signatures
from tests import export_models

pytestmark = pytest.mark.tensorflow
B, T, D = 2, 5, 3


def dense_model(inputs, name="scores"):
    return keras.Model(inputs, keras.layers.Dense(4, name=name)(inputs))


def test_dict_inputs_are_named_by_key():
    ids = keras.Input((None,), dtype="int32", name="ids")
    other = keras.Input((D,), name="other")
    model = keras.Model({"ids": ids, "other": other}, [ids, other])
    specs = signatures.input_specs(model)
    assert set(specs) == {"ids", "other"}
    assert specs["ids"].shape.as_list() == [None, None]
    assert specs["ids"].dtype.name == "int32"
    assert specs["other"].shape.as_list() == [None, D]
    tensors = {"ids": 1, "other": 2}
    assert signatures.pack_inputs(model, tensors) == tensors


def test_other_inputs_are_named_by_keras_input():
    one, two = keras.Input((D,), name="one"), keras.Input((D,), name="two")
    model = keras.Model([two, one], keras.layers.Add(name="sum")([one, two]))
    assert signatures.input_names(model) == ["two", "one"]
    assert signatures.pack_inputs(model, {"one": 1, "two": 2}) == [2, 1]


def test_unnamed_inputs_have_names_that_last():
    for _ in range(2):  # Keras counts on: input_layer, input_layer_1 ...
        model = dense_model(keras.Input((D,)))
        assert signatures.input_names(model) == ["inputs"]
    pair = [keras.Input((D,)), keras.Input((D,))]
    model = keras.Model(pair, keras.layers.Add()(pair))
    assert signatures.input_names(model) == ["inputs_0", "inputs_1"]


def test_sequential():
    layers = [keras.Input((D,), name="x"), keras.layers.Dense(4, name="y")]
    model = keras.Sequential(layers)
    assert signatures.input_names(model) == ["x"]
    assert signatures.pack_inputs(model, {"x": 7}) == 7
    assert set(signatures.name_outputs(model, model(np.ones((B, D))))) == {"y"}


def test_a_model_that_completes_its_inputs_lists_them_all():
    model = export_models.bert()
    assert set(signatures.input_specs(model)) == {
        "token_ids",
        "segment_ids",
        "padding_mask",
    }


def test_sizes():
    model = export_models.translator()
    specs = signatures.input_specs(model, batch_size=4, length=16)
    assert [s.shape.as_list() for s in specs.values()] == [[4, 16], [4, 16]]
    specs = signatures.input_specs(model, length={"source_token_ids": 16})
    assert specs["source_token_ids"].shape.as_list() == [None, 16]
    assert specs["target_token_ids"].shape.as_list() == [None, None]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be a positive int or None, got 0"),
        ({"length": "7"}, "`length` must be a positive int or None, got '7'"),
        ({"length": {"ids": 7}}, r"keyed by \['images'\], got 'ids'"),
        ({"length": 7}, r"free axis 1, got 7 for {'images': \(None, 8, 12, 3\)}"),
    ],
)
def test_sizes_that_do_not_fit(sizes, message):
    with pytest.raises(ValueError, match=message):
        signatures.input_specs(export_models.vision(), **sizes)


def test_a_batch_size_that_the_model_fixes():
    model = dense_model(keras.Input(batch_shape=(B, D), name="x"))
    assert signatures.input_specs(model, batch_size=B)["x"].shape.as_list() == [B, D]
    with pytest.raises(ValueError, match="`batch_size` must be 2.*'x', got 3"):
        signatures.input_specs(model, batch_size=3)


def test_outputs_are_named_by_key_layer_or_position():
    inputs = keras.Input((D,), name="x")
    scores = keras.layers.Dense(4, name="scores")(inputs)
    named = keras.Model(inputs, {"a": scores, "b": scores * 2})
    listed = keras.Model(inputs, [scores, scores * 2, scores * 3])
    x = np.ones((B, D), "float32")
    assert list(signatures.name_outputs(named, named(x))) == ["a", "b"]
    outputs = signatures.name_outputs(listed, listed(x))
    assert list(outputs) == ["scores", "outputs_1", "outputs_2"]
    np.testing.assert_allclose(outputs["outputs_2"], 3 * outputs["scores"], rtol=1e-6)


def test_inputs_of_one_name_are_refused():
    one, two = keras.Input((D,), name="x"), keras.Input((D,), name="a_b")
    model = keras.Model({"a": {"b": one}, "a_b": two}, keras.layers.Add()([one, two]))
    with pytest.raises(ValueError, match="inputs of different names"):
        signatures.input_names(model)


def test_a_subclassed_model_is_refused():
    class Plain(keras.Model):
        def call(self, inputs):
            return inputs

    model = Plain(name="plain")
    model(np.ones((B, D)))
    with pytest.raises(ValueError, match="must be functional.*'plain'"):
        signatures.input_specs(model)


def test_unpack_inputs_is_the_inverse_and_keeps_dtypes():
    model = export_models.bert()
    inputs = export_models.feed(model, B, T)
    named = signatures.unpack_inputs(model, {k: v.tolist() for k, v in inputs.items()})
    assert {k: v.dtype.name for k, v in named.items()} == {
        "token_ids": "int32",
        "segment_ids": "int32",
        "padding_mask": "bool",
    }
    for name in inputs:
        np.testing.assert_array_equal(named[name], inputs[name])
    del inputs["segment_ids"]
    with pytest.raises(ValueError, match="must have the keys .*segment_ids"):
        signatures.unpack_inputs(model, inputs)
    with pytest.raises(ValueError, match="must hold 3 arrays .*got 1"):
        signatures.unpack_inputs(model, np.ones((B, T)))


def test_other_backends_are_refused(monkeypatch):
    signatures.require_tensorflow()
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="KERAS_BACKEND=tensorflow, got 'jax'"):
        signatures.require_tensorflow()
