"""score: the same log-probabilities as full passes."""

import numpy as np
import pytest

from keras_tfm.generation import Greedy, generate_with_scores, score
from tests.test_generate import PROMPTS, learned, padded, rotary, seq2seq

LABELS = [[5], [7, 8, 9], [1, 30]]


def by_full_pass(model, prompt, label, source=None):
    inputs = np.array([[*prompt, *label]])
    if source is not None:
        inputs = {"source_token_ids": source, "target_token_ids": inputs}
    logits = np.asarray(model(inputs), "float64")[0, len(prompt) - 1 : -1]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_probs[np.arange(len(label)), label].sum()


@pytest.mark.parametrize("make", [learned, rotary])
@pytest.mark.parametrize("side", ["left", "right"])
def test_equals_full_passes(make, side):
    model = make()
    ids, mask = padded(side)
    found = score(model, ids, LABELS, mask)
    expected = [[by_full_pass(model, p, label) for label in LABELS] for p in PROMPTS]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_encoder_decoder():
    model = seq2seq()
    source = np.random.default_rng(0).integers(1, 31, (2, 6)).astype("int32")
    source[0, 4:] = 0
    ids = {"source_token_ids": source, "target_token_ids": [[1, 2], [1, 4]]}
    found = score(model, ids, LABELS)
    expected = [
        [by_full_pass(model, p, label, source[i : i + 1]) for label in LABELS]
        for i, p in enumerate([[1, 2], [1, 4]])
    ]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_one_token_each():
    found = score(learned(), [[5, 3]], [[i] for i in range(31)])
    np.testing.assert_allclose(np.exp(found).sum(), 1, atol=1e-5)


def test_scores_of_generated_rows_are_theirs():
    model = learned()
    made = generate_with_scores(model, [[5, 3]], 4, Greedy())
    new = made.token_ids[0, 0, 2:].tolist()
    np.testing.assert_allclose(made.scores, score(model, [[5, 3]], [new]), atol=1e-5)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([], "not empty"),
        ([[1], []], "not empty"),
        ([[31]], "ids below 31"),
        ([[-1]], "ids below 31"),
    ],
)
def test_bad_continuations_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        score(learned(), [[1]], rows)
