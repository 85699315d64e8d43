"""Processors on known logits and histories, and inside the loop."""

import numpy as np
import pytest
from keras import ops

from keras_tfm.generation import (
    BeamSearch,
    ForcedToken,
    Greedy,
    MinLength,
    NoRepeatNGram,
    OneOf,
    RepetitionPenalty,
    Sample,
    SuppressTokens,
    generate,
    generate_with_scores,
    score,
)
from keras_tfm.generation.decoder import History
from tests.test_generate import learned

NEVER = -np.inf


def history(rows, length=2, step=None, limit=9, stops=(3,), room=12):
    """Rows of real tokens; None is padding."""
    ids, mask = np.zeros((len(rows), room), "int32"), np.zeros((len(rows), room), bool)
    for i, row in enumerate(rows):
        for j, token in enumerate(row):
            ids[i, j], mask[i, j] = token or 0, token is not None
    step = len(rows[0]) - length if step is None else step
    return History(
        ops.convert_to_tensor(ids), ops.convert_to_tensor(mask),
        ops.convert_to_tensor(length, "int32"),
        ops.convert_to_tensor(step, "int32"), ops.convert_to_tensor(limit, "int32"),
        ops.zeros((len(rows),), "bool"), stops,
    )  # fmt: skip


def apply(processor, logits, past):
    logits = ops.convert_to_tensor(np.asarray(logits, "float32"))
    return ops.convert_to_numpy(processor(logits, past)).tolist()


def test_repetition_penalty():
    """FAULTS O41: sign and count; padding (id 0 here) is no repetition."""
    past = history([[0, 1, 1, 1], [None, None, 1, 2]])
    logits = [[2.0, -2.0, 1.0], [2.0, -2.0, 1.0]]
    found = apply(RepetitionPenalty(2.0), logits, past)
    assert found == [[1, -4, 1], [2, -4, 0.5]]


def banned(row, size):
    row = [token for token in row if token is not None]
    end = tuple(row[len(row) - size + 1 :])
    runs = [tuple(row[i : i + size]) for i in range(len(row) - size + 1)]
    return {run[-1] for run in runs if run[:-1] == end}


@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_no_repeat_n_gram(size):
    rng = np.random.default_rng(0)
    rows = [[None] * pad + rng.integers(0, 3, 9 - pad).tolist() for pad in (0, 4, 8)]
    found = apply(NoRepeatNGram(size), np.zeros((3, 5)), history(rows))
    for row, logits in zip(rows, found):
        forbidden = {i for i, value in enumerate(logits) if value == NEVER}
        assert forbidden == banned(row, size)


def test_min_length():
    logits = [[1.0, 2.0, 3.0, 4.0]]
    early, late = (history([[1, 1] + [1] * n]) for n in (2, 3))
    assert apply(MinLength(3), logits, early) == [[1, 2, 3, NEVER]]
    assert apply(MinLength(3), logits, late) == logits


def test_forced_and_suppressed_tokens():
    logits = [[1.0, 2.0, 3.0, 4.0]]
    first, later, last = (history([[1, 1]], step=n) for n in (0, 1, 8))
    only = [[NEVER, 0, NEVER, NEVER]]
    assert apply(ForcedToken(1), logits, first) == only
    assert apply(ForcedToken(1), logits, later) == logits
    assert apply(ForcedToken(1, step=-1), logits, last) == only
    assert apply(ForcedToken(1, step=-1), logits, later) == logits
    assert apply(SuppressTokens([0, 3]), logits, later) == [[NEVER, 2, 3, NEVER]]


@pytest.mark.parametrize("strategy", [Greedy(), Sample(seed=2), BeamSearch(3)])
def test_one_of_gives_one_of_them(strategy):
    model, choices = learned(), [[5, 7, 2], [5, 8, 9, 2], [6, 2]]
    rows = generate(
        model, [[4, 4], [11, 9], [1, 30]], 6, strategy, [OneOf(choices)],
        stop_token_ids=[2],
    )  # fmt: skip
    for row in rows[:, 2:].tolist():
        assert row[: row.index(2) + 1] in choices


def test_the_most_probable_choice_wins_with_enough_beams():
    model, choices = learned(), [[5, 7, 2], [5, 8, 2], [6, 9, 2], [30, 1, 2]]
    strategy = BeamSearch(4, length_penalty=0.0, num_return_sequences=4)
    found = generate_with_scores(
        model, [[4, 4]], 3, strategy, [OneOf(choices)], stop_token_ids=[2]
    )
    scores = score(model, [[4, 4]], choices)[0]
    order = np.argsort(-scores)
    assert found.token_ids[0, :, 2:].tolist() == [choices[i] for i in order]
    np.testing.assert_allclose(found.scores[0], scores[order], atol=1e-5)


def test_processors_in_the_loop():
    model = learned()
    free = generate(model, [[5, 3]], 12)[0, 2:].tolist()
    once = generate(model, [[5, 3]], 12, processors=[NoRepeatNGram(1)])[0].tolist()
    assert len(set(once)) == 14
    assert free[0] not in generate(
        model, [[5, 3]], 12, processors=[SuppressTokens([free[0]])]
    )[0, 2:]  # fmt: skip
    ends = [ForcedToken(9), ForcedToken(8, step=-1)]
    row = generate(model, [[5, 3]], 5, processors=ends)[0, 2:].tolist()
    assert row[0] == 9 and row[-1] == 8
    stop = free[1]
    cut = generate(model, [[5, 3]], 12, stop_token_ids=[stop])[0, 2:].tolist()
    assert cut[2:] == [0] * 10
    kept = generate(
        model, [[5, 3]], 12, processors=[MinLength(6)], stop_token_ids=[stop]
    )[0, 2:].tolist()  # fmt: skip
    assert stop not in kept[:6]


def test_a_function_is_a_processor():
    def even(logits, history):
        odd = ops.mod(ops.arange(logits.shape[-1]), 2) == 1
        return ops.where(odd, NEVER, logits)

    rows = generate(learned(), [[5, 3]], 8, Sample(seed=1), [even])
    assert (rows[0, 2:] % 2 == 0).all()


@pytest.mark.parametrize("strategy", [Greedy(), Sample(temperature=0)])
def test_nothing_left_falls_back_and_warns(strategy):
    model = learned()
    free = generate(model, [[5, 3], [1, 2]], 4)
    with pytest.warns(UserWarning, match=r"no token at some step of the rows \[0, 1\]"):
        rows = generate(
            model, [[5, 3], [1, 2]], 4, strategy, [SuppressTokens(range(31))]
        )
    np.testing.assert_array_equal(rows, free)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: RepetitionPenalty(0), "`penalty` must be positive"),
        (lambda: NoRepeatNGram(0), "`size` must be at least 1"),
        (lambda: OneOf([]), "`choices` must be token rows"),
        (lambda: OneOf([[1], []]), "`choices` must be token rows"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
