"""Speculative decoding: the tokens, or the distribution, of the model alone."""

import numpy as np
import pytest

from keras_tfm import layers, models
from keras_tfm.generation import (
    Greedy,
    MinLength,
    Sample,
    Speculative,
    generate,
    generate_with_scores,
    stream,
)
from tests.tables import TableModel, TrigramModel
from tests.test_generate import NUMBERS, learned, padded, rotary, seq2seq, spread


def nearly(model, seed=3):
    """A draft that is often right: the same weights with some noise."""
    draft = type(model).from_config(model.get_config())
    rng = np.random.default_rng(seed)
    for mine, theirs in zip(draft.weights, model.weights):
        mine.assign(theirs + 0.03 * rng.normal(size=theirs.shape))
    return draft


@pytest.mark.parametrize(
    "make, guesses",
    [
        (rotary, "itself"),
        (rotary, "draft"),
        (learned, "stranger"),
        (learned, "look-up"),
    ],
)
def test_greedy_tokens_are_the_same(make, guesses):
    """Rows of other lengths keep other numbers of guesses, and stop elsewhere."""
    model = make()
    draft = {
        "itself": lambda: model,
        "draft": lambda: nearly(model),
        "stranger": lambda: models.GPT(**NUMBERS),
        "look-up": lambda: None,
    }[guesses]()
    ids, mask = padded("right")
    free = generate(model, ids, 9, padding_mask=mask)
    stops = [int(free[0, -6]), int(free[1, -3])]
    for stop in ((), stops):
        options = {"stop_token_ids": stop, "padding_mask": mask}
        expected = generate_with_scores(model, ids, 9, Greedy(), **options)
        strategy = Speculative(draft, num_guesses=3)
        found = generate_with_scores(model, ids, 9, strategy, **options)
        np.testing.assert_array_equal(found.token_ids, expected.token_ids)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


def test_encoder_decoder():
    model = seq2seq()
    source = np.random.default_rng(0).integers(1, 31, (3, 6)).astype("int32")
    source[0, 4:] = 0
    ids = {"source_token_ids": source, "target_token_ids": [[1]] * 3}
    expected = generate(model, ids, 8)
    for draft in (None, nearly(model)):
        found = generate(model, ids, 8, Speculative(draft, num_guesses=2))
        np.testing.assert_array_equal(found, expected)


def joint(tokens, vocabulary):
    """Shares of each run of tokens, flat."""
    numbers = np.zeros(len(tokens), int)
    for column in tokens.T:
        numbers = numbers * vocabulary + column
    return np.bincount(numbers, minlength=vocabulary ** tokens.shape[1]) / len(tokens)


@pytest.mark.parametrize("guesses", ["draft", "look-up"])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_k": 3}])
def test_samples_follow_the_model(guesses, settings):
    """Chi-square over all runs of three tokens, 20,000 rows."""
    rng, size, rows = np.random.default_rng(0), 4, 20_000
    table = rng.normal(0, 1.2, (size,) * 3).astype("float32")
    model = TrigramModel(table)
    other = table + rng.normal(0, 1.0, table.shape).astype("float32")
    draft = TrigramModel(other) if guesses == "draft" else None
    sample = Sample(seed=5, **settings)
    strategy = Speculative(draft, num_guesses=2, strategy=sample, ngram_size=1)
    prompt = np.tile([[2, 1, 2, 3, 2]], (rows, 1))
    found = joint(generate(model, prompt, 3, strategy)[:, 5:], size)

    logits = table / settings.get("temperature", 1.0)
    if "top_k" in settings:
        least = np.sort(logits, axis=-1)[..., -settings["top_k"], None]
        logits = np.where(logits >= least, logits, -np.inf)
    chance = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    exact = np.einsum("a,ab,abc->abc", chance[3, 2], chance[2], chance).reshape(-1)
    assert not found[exact == 0].any()
    possible = exact > 0
    chi_square = rows * ((found - exact)[possible] ** 2 / exact[possible]).sum()
    degrees = possible.sum() - 1
    assert chi_square < degrees + 3.3 * np.sqrt(2 * degrees) + 5


def test_look_up_finds_what_followed():
    from keras import ops

    rows = np.zeros((3, 12), "int32")
    rows[0, 2:9] = [5, 6, 7, 8, 1, 5, 6]  # 5 6 was followed by 7 8 1
    rows[1, 1:9] = [5, 6, 1, 5, 6, 2, 5, 6]  # the newest counts: 2 5 6
    rows[2, 4:9] = [1, 2, 3, 4, 5]  # nothing is there
    mask = np.arange(12) >= [[2], [1], [4]]
    found = Speculative(num_guesses=3).look_up(
        ops.convert_to_tensor(rows), ops.convert_to_tensor(mask), 9
    )
    assert ops.convert_to_numpy(found)[:2].tolist() == [[7, 8, 1], [2, 5, 6]]


def test_what_cannot_work_is_refused():
    model, banded = learned(), layers.MultiHeadAttention(2, window=4)
    strategy = Speculative(num_guesses=2)
    with pytest.raises(ValueError, match="`processors` do not work"):
        generate(model, [[5, 3]], 3, strategy, [MinLength(2)])
    with pytest.raises(ValueError, match="one token after the other"):
        stream(model, [[5, 3]], 3, strategy)
    with pytest.raises(ValueError, match="4 to try are more than the 24"):
        generate(model, [[5, 3]], 19, strategy)
    table = np.zeros((5, 4), "float32")
    for one in (
        TableModel(table),
        spread(models.GPT(**NUMBERS, position="sinusoidal", attention=banded)),
    ):
        with pytest.raises(ValueError, match="must hold every position"):
            generate(one, [[1, 3]], 3, strategy)
    with pytest.raises(ValueError, match="`num_guesses` must be at least 1"):
        Speculative(num_guesses=0)
