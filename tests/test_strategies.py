"""Strategies against exact distributions."""

import numpy as np
import pytest
from keras import ops

from keras_tfm.generation.strategies import (
    Greedy,
    Sample,
    next_uniform,
    seed_generators,
)


def pick(strategy, logits):
    logits = np.asarray(logits, "float32")
    state = seed_generators(getattr(strategy, "seed", 0), len(logits))
    token, state = strategy.pick(ops.convert_to_tensor(logits), state)
    return ops.convert_to_numpy(token), ops.convert_to_numpy(state)


def shares(strategy, logits, draws=20000):
    """How often each token is drawn, one row per draw."""
    tokens, _ = pick(strategy, np.tile(np.asarray(logits, "float32"), (draws, 1)))
    return np.bincount(tokens, minlength=len(logits)) / draws


def softmax(logits):
    weights = np.exp(np.asarray(logits) - np.max(logits))
    return weights / weights.sum()


def test_greedy_takes_the_best():
    tokens, _ = pick(Greedy(), [[1, 3, 2], [-np.inf, -5, -7]])
    assert tokens.tolist() == [1, 1]


LOGITS = [2.0, 1.0, 0.0, -1.0, 0.5]


@pytest.mark.parametrize(
    "settings, kept",
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.6}, [0, 1]),  # .561 alone is below .6, with .206 above
        ({"min_p": 0.2}, [0, 1, 4]),  # ratios to the best: .368, .223, .135, .05
        ({"top_k": 3, "top_p": 0.5}, [0]),
    ],
)
def test_draws_follow_the_filtered_distribution(settings, kept):
    expected = np.zeros(5)
    expected[kept] = softmax(np.array(LOGITS)[kept])
    found = shares(Sample(seed=1, **settings), LOGITS)
    assert not found[expected == 0].any()
    chi_square = 20000 * ((found - expected)[kept] ** 2 / expected[kept]).sum()
    assert chi_square < 18.5  # 0.1 % for 4 degrees of freedom


def test_temperature_sharpens():
    found = shares(Sample(temperature=0.5, seed=2), LOGITS)
    np.testing.assert_allclose(found, softmax(np.array(LOGITS) * 2), atol=0.015)


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0}, {"temperature": 1e-8}, {"top_p": 0.0}, {"top_p": 1e-9}],
)
def test_the_edges_are_greedy(settings):
    """FAULTS O40."""
    tokens, _ = pick(Sample(**settings), [[1, 3, 2]] * 50)
    assert set(tokens.tolist()) == {1}


def test_impossible_tokens_and_peaks_give_valid_ids():
    """FAULTS O40: -inf logits, and a peak that float16 can hold."""
    tokens, _ = pick(Sample(top_p=1.0), [[-np.inf, 0.0, -np.inf]] * 50)
    assert set(tokens.tolist()) == {1}
    tokens, _ = pick(Sample(), [[60000.0, 0.0, 0.0]] * 50)
    assert set(tokens.tolist()) == {0}


def test_generator_is_uniform_and_moves_on():
    state = seed_generators(5, 20000)
    first, state = next_uniform(ops.convert_to_tensor(state))
    second, _ = next_uniform(state)
    first, second = (ops.convert_to_numpy(x)[:, 0] for x in (first, second))
    for numbers in (first, second):
        assert 0 <= numbers.min() and numbers.max() < 1
        counts = np.histogram(numbers, 10, (0, 1))[0]
        assert ((counts - 2000) ** 2 / 2000).sum() < 27.9  # 0.1 %, 9 degrees
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"temperature": -1}, "`temperature` must not be negative"),
        ({"top_k": 0}, "`top_k` must be positive"),
        ({"top_p": 1.5}, "`top_p` must be between 0 and 1"),
        ({"min_p": -0.1}, "`min_p` must be between 0 and 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sample(**settings)
