"""Another length is not another trace, under a signature of free sizes."""

import numpy as np
import pytest

from keras_tfm import export, models

pytestmark = pytest.mark.tensorflow
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}


def ids(length, batch=2):
    return np.ones((batch, length), "int32")


def pairs(length, batch=2):
    return {
        "source_token_ids": ids(length, batch),
        "target_token_ids": ids(length + 1, batch),
    }


MODELS = {
    "bert": (lambda: models.Bert(20, **SIZES), ids),
    "classifier": (lambda: models.classifier(models.Bert(20, **SIZES), 3), ids),
    "pretrainer": (lambda: models.BertPretrainer(models.Bert(20, **SIZES)), ids),
    "gpt": (lambda: models.GPT(20, max_sequence_length=32, **SIZES), ids),
    "seq2seq": (
        lambda: models.Seq2SeqTransformer(20, max_sequence_length=32, **SIZES),
        pairs,
    ),
}


def complete(model, inputs):
    return getattr(model, "complete", lambda inputs: inputs)(inputs)


@pytest.mark.parametrize("name", MODELS)
def test_a_function_with_free_sizes_is_traced_once(name):
    import tensorflow as tf

    make, inputs_of = MODELS[name]
    model, traces = make(), []
    free = {
        key: tf.TensorSpec([None] * x.ndim, x.dtype)
        for key, x in {
            key: np.asarray(x) for key, x in complete_dict(model, inputs_of(5)).items()
        }.items()
    }

    @tf.function(input_signature=[free])
    def forward(inputs):
        traces.append(1)
        return model(inputs, training=False)

    for length, batch in ((5, 2), (7, 2), (11, 3), (5, 1)):
        inputs = complete_dict(model, inputs_of(length, batch))
        forward({key: tf.constant(np.asarray(x)) for key, x in inputs.items()})
    assert len(traces) == 1


def complete_dict(model, inputs):
    """All inputs of a model, as a dict."""
    completed = complete(getattr(model, "backbone", model), inputs)
    return completed if isinstance(completed, dict) else {"token_ids": completed}


@pytest.mark.parametrize("name", MODELS)
def test_predict_settles_after_two_lengths(name):
    # Keras's own functions take the second length for free sizes, and stay there.
    make, inputs_of = MODELS[name]
    model = make()
    traces = []
    call = type(model).call

    class Counting(type(model)):
        def call(self, inputs, training=None, mask=None):
            traces.append(1)
            return call(self, inputs, training=training, mask=mask)

    model.__class__ = Counting
    for length in (5, 6, 7, 9, 11):
        model.predict_on_batch(inputs_of(length))
    assert 1 <= len(traces) <= 2


@pytest.mark.parametrize("name", ["bert", "gpt", "seq2seq"])
def test_exported_files_take_every_length(name, tmp_path):
    make, inputs_of = MODELS[name]
    model = make()
    path = export.to_saved_model(model, tmp_path / "model")
    import tensorflow as tf

    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    assert all(
        None in x.shape.as_list() for x in serve.inputs if x.dtype != tf.resource
    )
    for length in (4, 9):
        inputs = complete_dict(model, inputs_of(length))
        inputs = {k: tf.constant(np.asarray(v)) for k, v in inputs.items()}
        expected = model(inputs)
        if isinstance(expected, dict):
            expected = expected["sequence_output"]
        outputs = serve(**inputs)
        actual = outputs.get("sequence_output", next(iter(outputs.values())))
        np.testing.assert_allclose(actual, expected, atol=1e-5)
