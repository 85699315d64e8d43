"""What docs/serving.md says of TensorFlow Serving, with its official messages."""

import re
from concurrent import futures

import numpy as np
import pytest

from keras_tfm import data, export, models
from keras_tfm.generation import Sample
from tests.sources import ROOT
from tests.test_generate import NUMBERS, spread

pytestmark = pytest.mark.tensorflow
PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A generator as version 1 of a model named "writer"."""
    tokenizer = data.train_characters("to be or not to be, that is the question")
    size = tokenizer.vocabulary_size()
    model = spread(models.GPT(**{**NUMBERS, "vocabulary_size": size}))
    folder = tmp_path_factory.mktemp("models") / "writer"
    return export.generation_to_saved_model(
        model, folder / "1", tokenizer, Sample(top_k=9, seed=3), max_length=16
    )


def answer(folder, request):
    """A PredictResponse from a SavedModel, as the server makes it."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    name = request.model_spec.signature_name or "serving_default"
    loaded = tf.saved_model.load(str(folder))
    signature = loaded.signatures[name]
    _, specs = signature.structured_input_signature
    assert set(request.inputs) == set(specs)
    tensors = {}
    for key, proto in request.inputs.items():
        array = tf.make_ndarray(proto)
        assert tf.as_dtype(proto.dtype) == specs[key].dtype
        assert specs[key].shape.is_compatible_with(array.shape)
        tensors[key] = tf.constant(array, specs[key].dtype)
    response = predict_pb2.PredictResponse()
    response.model_spec.CopyFrom(request.model_spec)
    for key, value in signature(**tensors).items():
        response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
    return response


def test_messages_carry_all_inputs_and_outputs(exported):
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    texts, seed = ["to be", "not"], np.array(7, "int32")
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "writer", "with_seed"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
    request.inputs["seed"].CopyFrom(tf.make_tensor_proto(seed))
    sent = predict_pb2.PredictRequest.FromString(request.SerializeToString())
    received = predict_pb2.PredictResponse.FromString(
        answer(exported, sent).SerializeToString()
    )
    expected = export.run_file(exported, {"text": texts, "seed": seed}, "with_seed")
    assert set(received.outputs) == set(expected) == {"text", "token_ids", "scores"}
    for key, value in expected.items():
        np.testing.assert_array_equal(tf.make_ndarray(received.outputs[key]), value)


def test_metadata_names_the_signatures(exported):
    from tensorflow.core.protobuf import saved_model_pb2
    from tensorflow_serving.apis import get_model_metadata_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((exported / "saved_model.pb").read_bytes())
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name, definition in message.meta_graphs[0].signature_def.items():
        signatures.signature_def[name].CopyFrom(definition)
    read = get_model_metadata_pb2.SignatureDefMap.FromString(
        signatures.SerializeToString()
    ).signature_def
    assert {"serving_default", "with_seed"} <= set(read)
    assert set(read["serving_default"].inputs) == {"text"}
    assert set(read["with_seed"].inputs) == {"text", "seed"}
    assert {d.method_name for n, d in read.items() if not n.startswith("__")} == {
        "tensorflow/serving/predict"
    }
    assert read["serving_default"].inputs["text"].tensor_shape.dim[0].size == -1


def test_the_page_s_grpc_example(exported):
    """The code of the page against a server of the official service."""
    import grpc
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            return answer(exported, request)

    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("localhost:0")
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Service(), server
    )
    server.start()
    try:
        code = re.search(r"```\n(import grpc.*?)```", PAGE, re.S).group(1)
        names = {}
        exec(code.replace("localhost:8500", f"localhost:{port}"), names)
    finally:
        server.stop(None)
    expected = export.run_file(exported, {"text": ["to be", "not"]})["text"]
    assert names["texts"].tolist() == expected.tolist()


def test_the_page_s_model_config():
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    text = re.search(r"```\n(model_config_list.*?)```", PAGE, re.S).group(1)
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("writer", "/models/writer")
    assert list(model.model_version_policy.specific.versions) == [1, 2]


def test_the_page_s_rest_bodies(exported):
    """In the columnar form each input is a JSON value of the input's own shape."""
    import json

    bodies = [json.loads(b) for b in re.findall(r"-d '(\{.*?\})' ", PAGE)]
    assert len(bodies) == 2
    for body in bodies:
        name = body.get("signature_name", "serving_default")
        outputs = export.run_file(exported, body["inputs"], name)
        assert outputs["text"].shape == (len(body["inputs"]["text"]),)
