"""Beam search: against every possible answer, and by its laws."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import models
from keras_tfm.generation import BeamSearch, Greedy, generate, generate_with_scores
from tests.tables import TableModel, all_answers, log_table
from tests.test_generate import NUMBERS, PROMPTS, learned, padded, rotary, seq2seq

EOS = 3


def random_table(seed, size=11, vocabulary=4):
    table = np.random.default_rng(seed).normal(0, 2, (size, vocabulary))
    return TableModel(table.astype("float32"))


def random_tables(count, **sizes):
    """The same model with one table after the other: its loops are kept."""
    model = random_table(0, **sizes)
    for seed in range(count):
        model.table.assign(random_table(seed, **sizes).table)
        yield model


def answers_of(model, prompt, new, strategy, stops=(EOS,)):
    """The new tokens, up to the stop token, and the scores of one prompt."""
    found = generate_with_scores(model, [prompt], new, strategy, stop_token_ids=stops)
    rows, scores = found.token_ids[0, :, len(prompt) :], found.scores[0]
    cut = []
    for row, score in zip(rows.tolist(), scores.tolist()):
        ends = [i for i, token in enumerate(row) if token in stops]
        cut.append((tuple(row[: ends[0] + 1] if ends else row), score))
        assert not any(row[ends[0] + 1 :] if ends else ())
    return cut


@pytest.mark.parametrize("penalty", [-1.0, -0.5, 0.0, 0.6, 1.0, 2.0])
def test_wide_search_is_exhaustive(penalty):
    """FAULTS O35, O36: each answer's own length, EOS counted, divided once."""
    prompt, strategy = [1, 2], BeamSearch(64, penalty, num_return_sequences=64)
    for model in random_tables(3):
        totals = all_answers(model, prompt, 4, (EOS,))
        expected = {row: total / len(row) ** penalty for row, total in totals.items()}
        expected = sorted(expected.items(), key=lambda item: -item[1])[:64]
        check_answers(answers_of(model, prompt, 4, strategy), expected)


def check_answers(found, expected):
    """The same rows in the same order, with the same scores."""
    assert [row for row, _ in found] == [row for row, _ in expected]
    np.testing.assert_allclose(
        [s for _, s in found], [s for _, s in expected], rtol=1e-5, atol=1e-5
    )


def reference(model, prompt, new, width, penalty, stops, early=False):
    """Beam search from its definition, recomputed from scratch at each step."""
    live, pool = [((), 0.0)], []
    for step in range(1, new + 1):
        grown = [
            ((*row, token), total + value)
            for row, total in live
            for token, value in enumerate(model.log_probs([*prompt, *row]))
        ]
        grown = sorted(grown, key=lambda item: -item[1])
        pool += [
            (row, total / step**penalty) for row, total in grown[:width]
            if row[-1] in stops
        ]  # fmt: skip
        live = [item for item in grown if item[0][-1] not in stops][:width]
        if step == new:
            pool += [(row, total / step**penalty) for row, total in live]
        pool = sorted(pool, key=lambda item: -item[1])[:width]
        farthest = new if penalty > 0 else step + 1
        bound = live[0][1] / farthest**penalty
        if len(pool) == width and (early or pool[-1][1] >= bound):
            break
    return pool


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_narrow_search_equals_its_definition(width, early):
    """FAULTS O39: the state goes with its beam; O42: two stop tokens, all beams."""
    strategy = BeamSearch(width, 0.7, early, num_return_sequences=width)
    for model in random_tables(3, vocabulary=7):
        expected = reference(model, [2, 4], 8, width, 0.7, (EOS, 5), early)
        check_answers(answers_of(model, [2, 4], 8, strategy, (EOS, 5)), expected)


class Chain(TableModel):
    """States 0, 1 after an a, 2 to 6 after a b and more and more c."""

    def call_with_cache(self, token_ids, cache, cache_index, **_):
        state = ops.where(token_ids == 2, cache["state"] + 1, token_ids + 1)
        state = ops.where(cache_index == 0, 0, state)
        return ops.take(self.table, state, axis=0), {"state": state}


def test_search_does_not_stop_too_early():
    """FAULTS O34."""
    a, b, c = 0, 1, 2
    table = np.zeros((8, 4))
    table[0, [a, b]] = 0.6, 0.4
    table[1, [EOS, c]] = 0.9, 0.1
    table[2:7, c] = 1
    table[7, EOS] = 1
    model = Chain(log_table(table))
    short, long = (a, EOS), (b, c, c, c, c, c, EOS)
    for penalty, expected, score in [(0.0, short, -0.616), (1.0, long, -0.131)]:
        best = answers_of(model, [a], 8, BeamSearch(2, penalty))[0]
        assert best[0] == expected
        assert best[1] == pytest.approx(score, abs=1e-3)


def test_one_beam_is_greedy():
    """FAULTS O36."""
    for model in random_tables(4, vocabulary=6):
        prompt = [1]
        for strategy in (BeamSearch(1, 0.0), BeamSearch(1, early_stopping=True)):
            one = generate(model, [prompt], 7, strategy, stop_token_ids=[EOS])
            two = generate(model, [prompt], 7, Greedy(), stop_token_ids=[EOS])
            np.testing.assert_array_equal(one, two)


def test_all_beams_differ():
    """FAULTS O37: one start, one end, no answer twice."""
    table = np.full((11, 4), 0.2 / 3, "float32")
    table[:, EOS] = 0.8
    model = TableModel(log_table(table))
    found = answers_of(model, [1], 6, BeamSearch(5, num_return_sequences=5))
    assert len({row for row, _ in found}) == 5
    assert all(row.count(EOS) <= 1 for row, _ in found)


def test_more_beams_than_answers():
    found = generate_with_scores(
        random_table(0), [[1]], 1, BeamSearch(9, num_return_sequences=9),
        stop_token_ids=[EOS],
    )  # fmt: skip
    assert np.isneginf(found.scores[0, 4:]).all()
    assert not found.token_ids[0, 4:].any()
    assert sorted(found.token_ids[0, :4, 1].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("make, side", [(learned, "left"), (rotary, "right")])
def test_each_row_is_its_own_single_run(make, side):
    """Rows of other lengths and ends change nothing."""
    model = make()
    ids, mask = padded(side)
    strategy = BeamSearch(3, num_return_sequences=2)
    free = generate(model, ids, 6, strategy, padding_mask=mask)
    stops = [int(free[0, 0, -4]), int(free[1, 0, -2])]
    options = {"strategy": strategy, "stop_token_ids": stops}
    rows = generate_with_scores(model, ids, 6, padding_mask=mask, **options)
    for i, prompt in enumerate(PROMPTS):
        alone = generate_with_scores(model, [prompt], 6, **options)
        length = alone.token_ids.shape[2]
        np.testing.assert_array_equal(
            rows.token_ids[i, :, -length:], alone.token_ids[0]
        )
        np.testing.assert_allclose(rows.scores[i], alone.scores[0], atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_encoder_decoder(batch):
    """FAULTS O38: beams and batch of one size; padded sources."""
    model = seq2seq()
    source = np.random.default_rng(0).integers(1, 31, (batch, 6)).astype("int32")
    source[0, 4:] = 0
    strategy = BeamSearch(3, num_return_sequences=3)
    ids = {"source_token_ids": source, "target_token_ids": [[1]] * batch}
    rows = generate_with_scores(model, ids, 5, strategy, stop_token_ids=[7])
    for i in range(batch):
        ids = {"source_token_ids": source[i : i + 1], "target_token_ids": [[1]]}
        alone = generate_with_scores(model, ids, 5, strategy, stop_token_ids=[7])
        np.testing.assert_array_equal(rows.token_ids[i], alone.token_ids[0])
        np.testing.assert_allclose(rows.scores[i], alone.scores[0], atol=1e-5)


def test_scores_are_those_of_full_passes():
    model = learned()
    strategy = BeamSearch(4, length_penalty=0.0, num_return_sequences=4)
    found = generate_with_scores(model, [[5, 3]], 5, strategy)
    logits = model.predict(found.token_ids[0], verbose=0)[:, 1:-1].astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    new = found.token_ids[0][:, 2:, None]
    totals = np.take_along_axis(log_probs, new, axis=2).sum((1, 2))
    np.testing.assert_allclose(found.scores[0], totals, atol=1e-4)
    assert (np.diff(found.scores[0]) <= 0).all()


def test_groups_differ_and_one_group_is_plain():
    model = random_table(5, vocabulary=9)
    plain = answers_of(model, [1], 5, BeamSearch(4, num_return_sequences=4))
    same = BeamSearch(4, num_return_sequences=4, num_groups=1, diversity_penalty=3.0)
    assert answers_of(model, [1], 5, same) == plain
    # Without a penalty all groups find the same.
    alike = BeamSearch(4, num_return_sequences=4, num_groups=2)
    rows = [row for row, _ in answers_of(model, [1], 5, alike)]
    assert rows[0] == rows[1] and rows[2] == rows[3]
    apart = BeamSearch(4, num_return_sequences=4, num_groups=4, diversity_penalty=9.0)
    rows = [row for row, _ in answers_of(model, [1], 5, apart)]
    assert len({row[0] for row in rows}) == 4


def test_mixed_precision_searches():
    model = models.GPT(**NUMBERS, dtype="mixed_bfloat16")
    assert generate(model, [[5, 3]], 4, BeamSearch(3)).shape == (1, 6)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"num_beams": 0}, "`num_beams` must be positive"),
        ({"num_return_sequences": 5}, "from 1 to `num_beams`"),
        ({"num_groups": 3}, "`num_groups` must divide"),
        ({"diversity_penalty": -1.0}, "must not be negative"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**settings)
