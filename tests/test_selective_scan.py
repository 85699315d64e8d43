"""The scan of Mamba-1 against a loop over its tokens."""

import numpy as np
import pytest
from keras import ops

from keras_tfm.layers import selective_scan as scans
from tests.laws import assert_near, compiled, gradients, normal, to_numpy

B, E, N = 2, 5, 3


def arguments(length):
    """Time steps, drive, write, read, rates and a first state."""
    return [
        np.abs(normal(B, length, E)),
        normal(B, length, E, seed=1),
        normal(B, length, N),
        normal(B, length, N, seed=1),
        -np.abs(normal(N, E)),
        normal(B, N, E),
    ]


def loop(time_step, drive, write, read, rates, state):
    """Token after token."""
    outputs = []
    for t in range(drive.shape[1]):
        now = [x[:, t : t + 1] for x in (time_step, drive, write, read)]
        made, state = scans.selective_step(*now, rates, state)
        outputs.append(made)
    return ops.concatenate(outputs, axis=1), state


@pytest.fixture
def segments(monkeypatch):
    """Small ones of two lanes, so that there are several."""
    monkeypatch.setattr(scans, "ENOUGH", 2 * B * E * N)
    monkeypatch.setattr(scans, "STEPS", 3)


def test_one_segment():
    given = [ops.convert_to_tensor(x) for x in arguments(7)]
    assert_near(scans.selective_scan(*given)[0], loop(*given)[0])


@pytest.mark.parametrize("length", [1, 3, 14])
def test_equals_a_loop(length, segments):
    given = [ops.convert_to_tensor(x) for x in arguments(length)]
    outputs, state = scans.selective_scan(*given)
    expected, expected_state = loop(*given)
    assert_near(outputs, expected)
    assert_near(state, expected_state)


@pytest.mark.parametrize("batch, length", [(0, 3), (2, 0)])
def test_nothing_is_nothing(batch, length):  # FAULTS O66
    *sequences, rates, state = arguments(3)
    given = [x[:batch, :length] for x in sequences]
    outputs, last = scans.selective_scan(*given, rates, state[:batch])
    assert outputs.shape == (batch, length, E)
    assert_near(last, state[:batch])
    outputs, last = scans.selective_scan(*given, rates)
    assert outputs.shape == (batch, length, E)
    assert_near(last, 0 * state[:batch])


def flat(tensors):
    return np.concatenate([np.ravel(x) for x in tensors])


def split(vector, like):
    ends = np.cumsum([x.size for x in like])
    parts = ops.split(vector, ends[:-1].tolist())
    return [ops.reshape(part, x.shape) for part, x in zip(parts, like)]


def test_gradients_equal_those_of_a_loop(segments):
    given = arguments(14)
    weights = normal(B, 14, E, seed=2), normal(B, N, E, seed=2)

    def loss_of(run):
        def loss(vector):
            made = run(*split(vector, given))
            return sum(ops.sum(x * y) for x, y in zip(made, weights))

        return loss

    (expected,) = gradients(loss_of(loop), flat(given))
    (found,) = gradients(loss_of(scans.selective_scan), flat(given))
    assert_near(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("jit", [False, True])
def test_graphs(jit, segments):
    given = [ops.convert_to_tensor(x) for x in arguments(14)]
    expected, _ = loop(*given)
    assert_near(compiled(scans.selective_scan, jit)(*given)[0], expected)


@pytest.mark.tensorflow
def test_any_length_in_one_graph(segments):
    import tensorflow as tf

    shapes = [(None, None, width) for width in (E, E, N, N)]
    shapes += [(N, E), (None, N, E)]
    signature = [tf.TensorSpec(shape) for shape in shapes]
    run = tf.function(scans.selective_scan, signature, autograph=False)
    for length in (1, 6, 14):
        given = [ops.convert_to_tensor(x) for x in arguments(length)]
        outputs, state = run(*given)
        expected, expected_state = loop(*given)
        assert_near(outputs, expected)
        assert_near(state, expected_state)


def test_steps_of_any_size(segments):
    """Decays that underflow, and none at all."""
    time_step, *given = [ops.convert_to_tensor(x) for x in arguments(14)]
    for scale in (0.0, 1e4):

        def loss(x):
            made = scans.selective_scan(x, *given)
            return sum(ops.sum(x) for x in made)

        steps = scale * time_step
        assert_near(scans.selective_scan(steps, *given)[0], loop(steps, *given)[0])
        assert np.all(np.isfinite(to_numpy(gradients(loss, steps)[0])))
