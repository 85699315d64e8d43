import keras
import numpy as np
import pytest

from keras_tfm.training import MaskedAccuracy, Perplexity, SmoothedCrossentropy

V = 5
RNG = np.random.default_rng(3)
BATCHES = [  # other sizes, other lengths, other shares of real labels
    (np.array([[1, 4, -100], [3, -100, -100]]), RNG.normal(size=(2, 3, V))),
    (np.array([[0, 1, 2, 3, 4, 0, 1]]), RNG.normal(size=(1, 7, V)) * 3),
    (np.array([[-100, -100]]), RNG.normal(size=(1, 2, V))),
]


def real_tokens():
    """All real labels and their logits, of all batches."""
    labels = np.concatenate([y.reshape(-1) for y, _ in BATCHES])
    logits = np.concatenate([x.reshape(-1, V) for _, x in BATCHES])
    return labels[labels != -100], logits[labels != -100]


def updated(metric):
    for labels, logits in BATCHES:
        metric.update_state(labels, logits)
    return metric


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_perplexity_is_that_of_one_big_batch():
    labels, logits = real_tokens()
    expected = np.exp(-log_softmax(logits)[range(len(labels)), labels].mean())
    metric = updated(Perplexity())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
    once = Perplexity()
    once.update_state(labels, logits)
    assert float(once.result()) == pytest.approx(expected, rel=1e-5)
    loss = SmoothedCrossentropy()(labels, logits)
    assert float(metric.result()) == pytest.approx(np.exp(float(loss)), rel=1e-5)


def test_perplexity_of_a_uniform_guess_and_of_probabilities():
    metric = Perplexity(ignore_id=0)
    metric.update_state(np.array([[1, 2, 0]]), np.zeros((1, 3, V)))
    assert float(metric.result()) == pytest.approx(V)
    metric = Perplexity(from_logits=False)
    metric.update_state(np.array([1, 2]), np.array([[0.5, 0.5, 0], [0, 0, 1]]))
    assert float(metric.result()) == pytest.approx(2**0.5, rel=1e-5)


def test_accuracy_is_that_of_one_big_batch():
    labels, logits = real_tokens()
    expected = (logits.argmax(-1) == labels).mean()
    assert 0 < expected < 1
    assert float(updated(MaskedAccuracy()).result()) == pytest.approx(expected)


def test_sample_weights_per_row_and_per_token():
    labels, logits = BATCHES[0]
    hits = (logits.argmax(-1) == labels) & (labels != -100)
    for weights in (np.array([2.0, 0.5]), np.array([[1, 2, 3], [0.5, 5, 0]])):
        metric = MaskedAccuracy()
        metric.update_state(labels, logits, weights)
        every = np.broadcast_to(weights.reshape((2, -1)), labels.shape)
        expected = (hits * every).sum() / every[labels != -100].sum()
        assert float(metric.result()) == pytest.approx(expected)


@pytest.mark.parametrize(("cls", "empty"), [(Perplexity, 1.0), (MaskedAccuracy, 0.0)])
def test_nothing_counted(cls, empty):
    metric = cls()
    assert float(metric.result()) == empty
    metric.update_state(*BATCHES[2])
    assert float(metric.result()) == empty
    updated(metric).reset_state()
    assert float(metric.result()) == empty


@pytest.mark.parametrize("jit", [False, True])
def test_in_compile_with_a_keras_mask(jit):
    ids = np.array([[1, 2, 0], [4, 0, 0], [3, 3, 2]])
    labels = np.array([[1, -100, 2], [3, 1, 1], [-100, 0, 4]])
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(V, 4, mask_zero=True),
            keras.layers.Dense(V),
        ]
    )
    model.compile(
        loss=SmoothedCrossentropy(),
        metrics=[Perplexity(), MaskedAccuracy()],
        jit_compile=jit,
    )
    logits = keras.ops.convert_to_numpy(model(ids))
    counted = (labels != -100) & (ids != 0)
    losses = -log_softmax(logits)[counted][range(counted.sum()), labels[counted]]
    hits = (logits.argmax(-1) == labels)[counted]
    logs = model.evaluate(ids, labels, batch_size=2, verbose=0, return_dict=True)
    assert logs["perplexity"] == pytest.approx(np.exp(losses.mean()), rel=1e-5)
    assert logs["accuracy"] == pytest.approx(hits.mean(), rel=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_logits(dtype):
    labels, logits = real_tokens()
    low = keras.ops.cast(keras.ops.array(logits), dtype)
    exact = keras.ops.convert_to_numpy(keras.ops.cast(low, "float32"))
    metric = Perplexity()
    metric.update_state(labels, low)
    expected = np.exp(-log_softmax(exact)[range(len(labels)), labels].mean())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "metric",
    [Perplexity(3, False, "p", "float32"), MaskedAccuracy(3, "a", "float32")],
    ids=lambda metric: type(metric).__name__,
)
def test_config(metric):
    again = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    assert metric.get_config()["ignore_id"] == 3


@pytest.mark.parametrize("cls", [Perplexity, MaskedAccuracy])
def test_refuses_labels_of_another_rank(cls):
    with pytest.raises(ValueError, match="`y_true` must be integer labels"):
        cls().update_state(np.array([1]), np.zeros((1, 3, V)))


@pytest.mark.parametrize(
    ("monitor", "better"), [("val_perplexity", 1.0), ("val_accuracy", 9.0)]
)
def test_callbacks_know_what_is_better(monitor, better):
    inputs = keras.Input((3, V))
    model = keras.Model(inputs, keras.layers.Dense(V)(inputs))
    model.compile(loss=SmoothedCrossentropy(), metrics=[Perplexity(), MaskedAccuracy()])
    stop = keras.callbacks.EarlyStopping(monitor=monitor, patience=3)
    labels = np.ones((2, 3), "int32")
    data = (np.zeros((2, 3, V)), labels)
    model.fit(*data, validation_data=data, verbose=0, callbacks=[stop])
    assert bool(stop.monitor_op(better, 5.0))
