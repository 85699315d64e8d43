import keras
import numpy as np
import pytest

from keras_tfm.training import (
    InverseSquareRoot,
    LinearWarmup,
    ScaledSchedule,
    cosine_warmup,
    noam,
)

STEPS = np.array([0, 1, 5, 9, 10, 11, 40, 109, 110, 111, 100000])
W, TOTAL, PEAK, END = 10, 110, 0.4, 0.1


def rates(schedule):
    return np.array([float(schedule(keras.ops.array(int(s)))) for s in STEPS])


def test_noam_is_the_papers_formula():
    n = STEPS + 1.0
    expected = 512**-0.5 * np.minimum(n**-0.5, n * W**-1.5)
    np.testing.assert_allclose(rates(noam(512, W)), expected, rtol=1e-5)
    np.testing.assert_allclose(rates(noam(512, W, scale=2.0)), 2 * expected, rtol=1e-5)
    assert type(noam(512, W)) is InverseSquareRoot
    assert noam(512).warmup_steps == 4000


def test_inverse_square_root_peaks_at_the_last_warmup_step():
    values = rates(InverseSquareRoot(PEAK, W))
    n = STEPS + 1.0
    expected = PEAK * np.minimum(n / W, np.sqrt(W / n))
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert values.argmax() == list(STEPS).index(W - 1)
    assert values.max() == pytest.approx(PEAK)
    assert np.isfinite(values).all() and values.min() > 0


def test_linear():
    expected = np.interp(STEPS, [0, W, TOTAL], [0.0, PEAK, END])
    np.testing.assert_allclose(
        rates(LinearWarmup(PEAK, W, TOTAL, END)), expected, rtol=1e-5, atol=1e-7
    )
    to_zero = rates(LinearWarmup(PEAK, W, TOTAL))
    assert to_zero[-1] == 0.0 and to_zero.min() == 0.0


def test_cosine():
    part = np.clip((STEPS - W) / (TOTAL - W), 0, 1)
    expected = np.where(
        STEPS < W,
        PEAK * STEPS / W,
        END + (PEAK - END) * (1 + np.cos(np.pi * part)) / 2,
    )
    schedule = cosine_warmup(PEAK, W, TOTAL, END)
    assert type(schedule) is keras.optimizers.schedules.CosineDecay
    np.testing.assert_allclose(rates(schedule), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("make", [LinearWarmup, cosine_warmup])
def test_without_warmup_starts_at_the_peak(make):
    values = rates(make(PEAK, 0, TOTAL, END))
    assert values[0] == pytest.approx(PEAK)
    assert values[-1] == pytest.approx(END)
    assert (np.diff(values) <= 1e-9).all()


def test_scaled():
    inner = LinearWarmup(PEAK, W, TOTAL, END)
    np.testing.assert_allclose(
        rates(ScaledSchedule(inner, 0.25)), 0.25 * rates(inner), rtol=1e-6
    )


ALL = [
    InverseSquareRoot(PEAK, W),
    LinearWarmup(PEAK, W, TOTAL, END),
    cosine_warmup(PEAK, W, TOTAL, END),
    ScaledSchedule(cosine_warmup(PEAK, W, TOTAL), 0.5),
]


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
def test_config_survives_json(schedule):
    serialized = keras.saving.serialize_keras_object(schedule)
    again = keras.saving.deserialize_keras_object(serialized)
    assert type(again) is type(schedule)
    np.testing.assert_array_equal(rates(again), rates(schedule))


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("schedule", ALL, ids=lambda s: type(s).__name__)
def test_drives_an_optimizer(schedule, jit, tmp_path):
    """With a gradient of 1, plain descent moves by the sum of the rates."""
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), dense])
    model.compile(keras.optimizers.SGD(schedule), "mae", jit_compile=jit)
    model.fit(np.ones((12, 1)), np.full((12, 1), -1e6), batch_size=1, verbose=0)
    expected = -sum(float(schedule(step)) for step in range(12))
    assert float(dense.kernel[0, 0]) == pytest.approx(expected, rel=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert float(again.optimizer.learning_rate) == pytest.approx(float(schedule(12)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InverseSquareRoot(0.0, 10), "`peak` must be positive, got 0.0"),
        (lambda: InverseSquareRoot(1.0, 0), "`warmup_steps` must be positive, got 0"),
        (lambda: noam(-1), "`hidden_dim` must be positive, got -1"),
        (lambda: LinearWarmup(1.0, 10, 10), "`warmup_steps`.*10 and 10"),
        (lambda: LinearWarmup(1.0, -1, 10), "`warmup_steps`.*-1 and 10"),
        (lambda: cosine_warmup(1.0, 20, 10), "`warmup_steps`.*20 and 10"),
        (lambda: LinearWarmup(1.0, 1, 10, 2.0), "`end`.*2.0 and 1.0"),
        (lambda: cosine_warmup(-1.0, 1, 10), "`peak` must be positive"),
        (lambda: ScaledSchedule(ALL[0], 0), "`factor` must be positive"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()
