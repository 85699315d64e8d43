"""Contrastive search against its definition by full passes."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import models
from keras_tfm.generation import Contrastive, Greedy, SuppressTokens, generate
from tests.tables import TableModel
from tests.test_generate import NUMBERS, PROMPTS, learned, padded, rotary, seq2seq


def hidden_states(model, tokens):
    """Unit hidden states (T, D) and the next token's logits, from nothing."""
    ids = np.array([tokens], "int32")
    cache = model.init_cache(1, len(tokens))
    index = ops.convert_to_tensor(0, "int32")
    hidden, _ = model.hidden_with_cache(ids, cache, index)
    logits = ops.convert_to_numpy(model.logits_of(hidden))[0, -1].astype("float64")
    hidden = ops.convert_to_numpy(hidden)[0].astype("float64")
    return hidden / np.linalg.norm(hidden, axis=-1, keepdims=True), logits


def by_full_passes(model, prompt, new, count, penalty):
    row = list(prompt)
    for _ in range(new):
        _, logits = hidden_states(model, row)
        chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        merits = {}
        for token in np.argsort(-chances)[:count]:
            states, _ = hidden_states(model, [*row, int(token)])
            likeness = (states[:-1] @ states[-1]).max()
            merits[int(token)] = (1 - penalty) * chances[token] - penalty * likeness
        row.append(max(merits, key=merits.get))
    return row


@pytest.mark.parametrize("make", [learned, rotary])
def test_equals_its_definition(make):
    model = make()
    ids, mask = padded("right")
    strategy = Contrastive(num_candidates=3, penalty=0.6)
    rows = generate(model, ids, 4, strategy, padding_mask=mask)
    for row, prompt in zip(rows, PROMPTS):
        expected = by_full_passes(model, prompt, 4, 3, 0.6)
        assert row[-len(expected) :].tolist() == expected


def test_without_penalty_it_is_greedy():
    model = learned()
    free = generate(model, [[5, 3], [1, 2]], 6, Greedy())
    rows = generate(model, [[5, 3], [1, 2]], 6, Contrastive(penalty=0.0))
    np.testing.assert_array_equal(rows, free)
    source = {"source_token_ids": [[3, 4, 0]], "target_token_ids": [[1]]}
    model = seq2seq()
    rows = generate(model, source, 6, Contrastive(penalty=0.0))
    np.testing.assert_array_equal(rows, generate(model, source, 6))


def test_stops_and_processors():
    model, strategy = learned(), Contrastive(3, 0.5)
    free = generate(model, [[5, 3]], 8, strategy)[0, 2:].tolist()
    stopped = generate(model, [[5, 3]], 8, strategy, stop_token_ids=[free[2]])
    end = free.index(free[2]) + 1
    assert stopped[0, 2:].tolist() == free[:end] + [0] * (8 - end)
    never = SuppressTokens([free[0]])
    assert free[0] not in generate(model, [[5, 3]], 8, strategy, [never])[0, 2:]


def test_what_cannot_work_is_refused():
    with pytest.raises(ValueError, match="needs a model with `hidden_with_cache`"):
        generate(TableModel(np.zeros((5, 4), "float32")), [[1]], 2, Contrastive())
    with pytest.raises(ValueError, match="`num_candidates` must be positive"):
        Contrastive(0)
    with pytest.raises(ValueError, match="`penalty` must be from 0 to 1"):
        Contrastive(penalty=1.5)
    model = models.GPT(**NUMBERS)
    with pytest.raises(ValueError, match="more than the 24"):
        generate(model, [[1] * 5], 19, Contrastive())
