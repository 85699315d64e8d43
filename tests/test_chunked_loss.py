import keras
import numpy as np
import pytest

from keras_tfm import models, training
from tests.laws import EAGER

V, T, B, D = 23, 7, 5, 8
IGNORE = -100


def gpt(**changes):
    keras.utils.set_random_seed(1)
    numbers = {"num_layers": 1, "num_heads": 2, "hidden_dim": D}
    return models.GPT(
        V, intermediate_dim=12, max_sequence_length=T, **{**numbers, **changes}
    )


def batch(share=0.4):
    rng = np.random.default_rng(0)
    ids = rng.integers(0, V, (B, T)).astype("int32")
    labels = rng.integers(0, V, (B, T)).astype("int32")
    labels[rng.random((B, T)) > share] = IGNORE
    return ids, labels, rng.random((B, T)).astype("float32")


def fit(model, loss=None, weights=None, inputs=None, **compiled):
    """The loss of a step of plain gradient descent."""
    model.compile(keras.optimizers.SGD(1.0), loss, **(compiled or EAGER))
    ids, labels, _ = batch()
    inputs = ids if inputs is None else inputs
    labels = {"token_logits": labels} if isinstance(loss, dict) else labels
    history = model.fit(
        inputs, labels, sample_weight=weights, batch_size=B, epochs=2, verbose=0
    )
    return history.history["loss"]


@pytest.mark.parametrize("num_chunks, smoothing", [(1, 0.0), (3, 0.1), (50, 0.0)])
def test_loss_and_gradients_are_the_plain_ones(num_chunks, smoothing):
    plain, chunked = gpt(), gpt()
    loss = training.SmoothedCrossentropy(label_smoothing=smoothing)
    expected = fit(plain, loss)
    actual = fit(training.ChunkedLossModel(chunked, num_chunks, smoothing))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    for one, other in zip(plain.weights, chunked.weights):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("jit", [True, False])
def test_weights_and_xla(jit):
    weights = batch()[2]
    loss = training.SmoothedCrossentropy()
    plain, chunked = gpt(), gpt()
    expected = fit(plain, loss, weights, jit_compile=jit)
    model = training.ChunkedLossModel(chunked, 4)
    actual = fit(model, None, weights, jit_compile=jit)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    for one, other in zip(plain.weights, chunked.weights):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_masked_language_model():
    def pretrainer():
        keras.utils.set_random_seed(1)
        numbers = {"max_sequence_length": T, "dropout": 0.0}
        bert = models.Bert(V, 2, 2, D, 12, pooler_activation=None, **numbers)
        return models.BertPretrainer(bert, next_sentence=False)

    plain, chunked = pretrainer(), pretrainer()
    expected = fit(plain, {"token_logits": training.SmoothedCrossentropy()})
    actual = fit(training.ChunkedLossModel(chunked, 4))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    for one, other in zip(plain.weights, chunked.weights):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False, "logits_bias": 1}])
def test_encoder_decoder(changes):
    def translator():
        keras.utils.set_random_seed(1)
        return models.Seq2SeqTransformer(V, 1, 2, D, 12, T, dropout=0.0, **changes)

    ids = batch()[0]
    inputs = {"source_token_ids": ids[::-1, :4], "target_token_ids": ids}
    plain, chunked = translator(), translator()
    loss = training.SmoothedCrossentropy()
    expected = fit(plain, loss, inputs=inputs)
    actual = fit(training.ChunkedLossModel(chunked, 4), inputs=inputs)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    for one, other in zip(plain.weights, chunked.weights):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_no_label_at_all():
    model = training.ChunkedLossModel(gpt())
    model.compile(keras.optimizers.SGD(1.0))
    before = model.get_weights()
    ids = batch()[0]
    assert model.train_on_batch(ids, np.full((B, T), IGNORE)) == 0
    for one, other in zip(before, model.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_evaluate_save_and_config(tmp_path):
    ids, labels, _ = batch()
    model = training.ChunkedLossModel(gpt(), num_chunks=3, ignore_id=IGNORE)
    model.compile("adam")
    plain = gpt()
    plain.compile("adam", training.SmoothedCrossentropy())
    expected = plain.evaluate(ids, labels, verbose=0)
    np.testing.assert_allclose(
        model.evaluate(ids, labels, verbose=0), expected, rtol=1e-5
    )
    assert len(model.weights) == len(plain.weights)
    model.train_on_batch(ids, labels)
    model.save(tmp_path / "model.keras")
    back = keras.models.load_model(tmp_path / "model.keras")
    assert back.num_chunks == 3
    np.testing.assert_allclose(back(ids), model(ids), atol=1e-6)


def test_mixed_precision_and_dropout():
    model = training.ChunkedLossModel(gpt(dtype="mixed_bfloat16", dropout=0.1), 2)
    losses = fit(model)
    assert losses[1] < losses[0]


def test_refuses():
    with pytest.raises(ValueError, match="must have `hidden` and `output_matrix`"):
        training.ChunkedLossModel(keras.Sequential([keras.Input((3,))]))
    bert = models.Bert(V, 1, 2, D, 12)
    with pytest.raises(ValueError, match="must have one output, got 2"):
        training.ChunkedLossModel(models.BertPretrainer(bert))
    with pytest.raises(ValueError, match="`num_chunks` must be at least 1"):
        training.ChunkedLossModel(gpt(), num_chunks=0)
