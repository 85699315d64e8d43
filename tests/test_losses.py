import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_tfm.training import SmoothedCrossentropy

B, T, V = 2, 3, 5
LABELS = np.array([[1, 4, 0], [3, 2, 2]])
LOGITS = np.random.default_rng(0).normal(size=(B, T, V)).astype("float32") * 2
KEEP = np.array([[True, False, True], [True, False, False]])
SOME = np.where(KEEP, LABELS, -100)


def reference(labels, logits, smoothing=0.0):
    """One loss per label, by the definition, in float64."""
    logits = logits.astype("float64")
    log_q = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    p = np.eye(V)[labels] * (1 - smoothing) + smoothing / V
    return -(p * log_q).sum(-1)


class Table(keras.layers.Layer):
    """Gives its weights, whatever comes in: their gradient is that of the logits."""

    def __init__(self, values):
        super().__init__()
        self.table = self.add_weight(shape=values.shape, initializer="zeros")
        self.table.assign(values)

    def call(self, inputs):
        return self.table + 0.0 * inputs


def loss_and_gradient(loss, labels, sample_weight=None, jit=False):
    """Through `compile` and one step of plain descent with rate 1."""
    inputs = keras.Input(batch_shape=(B, T, 1))
    layer = Table(LOGITS)
    model = keras.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.SGD(1.0), loss, jit_compile=jit)
    value = model.train_on_batch(np.zeros((B, T, 1)), labels, sample_weight)
    after = keras.ops.convert_to_numpy(layer.table)
    return float(np.squeeze(value)), LOGITS - after


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_equals_keras_dense_and_numpy(smoothing):
    loss = SmoothedCrossentropy(label_smoothing=smoothing)
    dense = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing
    )
    actual = float(loss(LABELS, LOGITS))
    assert actual == pytest.approx(float(dense(np.eye(V)[LABELS], LOGITS)), abs=1e-6)
    expected = reference(LABELS, LOGITS, smoothing)
    assert actual == pytest.approx(expected.mean(), abs=1e-6)
    each = SmoothedCrossentropy(label_smoothing=smoothing, reduction=None)
    np.testing.assert_allclose(each(LABELS, LOGITS), expected, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_probabilities(smoothing):
    q = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    loss = SmoothedCrossentropy(from_logits=False, label_smoothing=smoothing)
    expected = reference(LABELS, LOGITS, smoothing).mean()
    assert float(loss(LABELS, q)) == pytest.approx(expected, abs=1e-5)
    assert float(loss(LABELS, 3 * q)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("shape", [(B, T), (B, T, 1), (B * T,), (B * T, 1)])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_label_shapes_and_types(shape, dtype):
    logits = LOGITS if len(shape) > 2 or shape == (B, T) else LOGITS.reshape((-1, V))
    actual = SmoothedCrossentropy()(LABELS.reshape(shape).astype(dtype), logits)
    assert float(actual) == pytest.approx(reference(LABELS, LOGITS).mean(), abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mean_is_over_the_real_positions(smoothing):
    loss = SmoothedCrossentropy(label_smoothing=smoothing)
    expected = reference(LABELS, LOGITS, smoothing)
    assert float(loss(SOME, LOGITS)) == pytest.approx(expected[KEEP].mean(), abs=1e-6)
    total = SmoothedCrossentropy(label_smoothing=smoothing, reduction="sum")
    assert float(total(SOME, LOGITS)) == pytest.approx(expected[KEEP].sum(), abs=1e-5)
    each = SmoothedCrossentropy(label_smoothing=smoothing, reduction="none")
    np.testing.assert_allclose(each(SOME, LOGITS), expected * KEEP, atol=1e-6)
    zero = SmoothedCrossentropy(label_smoothing=smoothing, ignore_id=2)
    assert float(zero(LABELS, LOGITS)) == pytest.approx(
        expected[LABELS != 2].mean(), abs=1e-6
    )
    nothing = SmoothedCrossentropy(label_smoothing=smoothing, ignore_id=None)
    assert float(nothing(LABELS, LOGITS)) == pytest.approx(expected.mean(), abs=1e-6)


# FAULTS O59
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, "ones", "zeros"])
def test_all_ignored_is_zero_with_zero_gradients(jit, smoothing, weights):
    loss = SmoothedCrossentropy(label_smoothing=smoothing)
    if weights is not None:
        weights = getattr(np, weights)((B, T), "float32")
    nothing = np.full((B, T), -100)
    value, gradient = loss_and_gradient(loss, nothing, weights, jit)
    assert value == 0.0
    np.testing.assert_array_equal(gradient, np.zeros_like(LOGITS))


# FAULTS O59
@pytest.mark.parametrize("jit", [False, True])
def test_single_real_label(jit):
    labels = np.full((B, T), -100)
    labels[1, 0] = 3
    value, gradient = loss_and_gradient(SmoothedCrossentropy(), labels, None, jit)
    assert value == pytest.approx(reference(LABELS, LOGITS)[1, 0], abs=1e-6)
    q = np.exp(LOGITS[1, 0]) / np.exp(LOGITS[1, 0]).sum()
    expected = np.zeros_like(LOGITS)
    expected[1, 0] = q - np.eye(V)[3]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_gradient_with_smoothing():
    loss = SmoothedCrossentropy(label_smoothing=0.1)
    _, gradient = loss_and_gradient(loss, SOME)
    q = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    expected = (q - 0.9 * np.eye(V)[LABELS] - 0.1 / V) * KEEP[..., None] / KEEP.sum()
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_sample_weights():
    weights = np.array([[1.0, 2.0, 0.5], [3.0, 0.0, 1.0]])
    expected = (reference(LABELS, LOGITS) * weights)[KEEP]
    actual = SmoothedCrossentropy()(SOME, LOGITS, weights)
    assert float(actual) == pytest.approx(expected.sum() / KEEP.sum(), abs=1e-6)
    weighted = SmoothedCrossentropy(reduction="mean_with_sample_weight")
    assert float(weighted(SOME, LOGITS, weights)) == pytest.approx(
        expected.sum() / weights[KEEP].sum(), abs=1e-6
    )


@pytest.mark.parametrize("shape", [(B,), (B, 1)])
@pytest.mark.parametrize("reduction", ["mean", "mean_with_sample_weight", "sum"])
def test_a_weight_per_row(shape, reduction):
    loss = SmoothedCrossentropy(reduction=reduction)
    rows = np.array([2.0, 0.25])
    every = np.repeat(rows[:, None], T, axis=1)
    assert float(loss(SOME, LOGITS, rows.reshape(shape))) == pytest.approx(
        float(loss(SOME, LOGITS, every)), abs=1e-6
    )
    value, _ = loss_and_gradient(SmoothedCrossentropy(), SOME, rows)
    expected = (reference(LABELS, LOGITS) * every)[KEEP].sum() / KEEP.sum()
    assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean"])
def test_keras_mask_is_counted_once(reduction):
    ids = np.array([[1, 2, 0], [4, 0, 0]])  # the mask: ids != 0
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(V, 4, mask_zero=True),
            keras.layers.Dense(V),
        ]
    )
    model.compile(loss=SmoothedCrossentropy(reduction=reduction, label_smoothing=0.1))
    losses = reference(LABELS, keras.ops.convert_to_numpy(model(ids)), 0.1)
    for labels, real in ((SOME, KEEP), (LABELS, np.ones_like(KEEP))):
        chosen = losses[real & (ids != 0)]
        expected = chosen.sum() if reduction == "sum" else chosen.mean()
        actual = model.evaluate(ids, labels, verbose=0)
        assert actual == pytest.approx(expected, abs=1e-5)
    assert model.evaluate(ids, np.full((B, T), -100), verbose=0) == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_logits_are_computed_in_float32(dtype):
    low = keras.ops.cast(20 * LOGITS, dtype)
    exact = keras.ops.convert_to_numpy(keras.ops.cast(low, "float32"))
    loss = SmoothedCrossentropy(label_smoothing=0.1)(SOME, low)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    expected = reference(LABELS, exact, 0.1)[KEEP].mean()
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_large_logits_stay_finite():
    logits = np.array([[1e4, -1e4, 0.0]], "float32")
    each = SmoothedCrossentropy(reduction=None)
    np.testing.assert_allclose(each(np.array([1]), logits), [2e4])
    np.testing.assert_allclose(each(np.array([0]), logits), [0.0])


def test_config_and_saving():
    loss = SmoothedCrossentropy(False, 0.3, 7, "sum", "mine")
    assert loss.get_config() == {
        "from_logits": False,
        "label_smoothing": 0.3,
        "ignore_id": 7,
        "reduction": "sum",
        "name": "mine",
    }
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(again) is SmoothedCrossentropy
    assert again.get_config() == loss.get_config()
    assert SmoothedCrossentropy().name == "smoothed_crossentropy"


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 2])
def test_refuses_smoothing(smoothing):
    with pytest.raises(ValueError, match=r"`label_smoothing`.*\[0, 1\)"):
        SmoothedCrossentropy(label_smoothing=smoothing)


def test_refuses_labels_of_another_rank():
    with pytest.raises(ValueError, match=r"`y_true`.*\(2, 3, 5\) and \(2, 3, 5\)"):
        SmoothedCrossentropy()(np.eye(V)[LABELS], LOGITS)
    with pytest.raises(ValueError, match=r"`y_true`.*\(2,\) and \(2, 3, 5\)"):
        SmoothedCrossentropy()(np.array([1, 2]), LOGITS)


TWO_REPLICAS = """
import keras
import numpy as np
import tensorflow as tf

from keras_tfm.training import SmoothedCrossentropy

cpu = tf.config.list_physical_devices("CPU")[0]
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, halves)
x = np.random.default_rng(0).normal(size=(4, 3, 2)).astype("float32")
y = np.array([[1, 0, -100], [-100, 2, 1], [0, -100, 1], [1, -100, 2]])
kernels = []
for strategy in (
    tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
):
    with strategy.scope():
        dense = keras.layers.Dense(5, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((3, 2)), dense])
        loss = SmoothedCrossentropy(label_smoothing=0.1)
        model.compile(keras.optimizers.SGD(1.0), loss)
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    kernels.append(model.get_weights()[0])
np.testing.assert_allclose(*kernels, atol=1e-6)
assert not np.allclose(kernels[0], 1.0)
print("equal")
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_two_replicas_take_the_step_of_one():
    run = subprocess.run(
        [sys.executable, "-c", TWO_REPLICAS], capture_output=True, text=True
    )
    assert run.stdout.strip().endswith("equal"), run.stderr[-2000:]
