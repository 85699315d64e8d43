"""stream: the tokens of generate, one step at a time."""

import numpy as np
import pytest

from keras_tfm import data
from keras_tfm.generation import BeamSearch, NoRepeatNGram, Sample, generate, stream
from tests.test_generate import learned, padded, seq2seq


@pytest.mark.parametrize("strategy", [None, Sample(temperature=1.5, seed=3)])
def test_the_same_tokens_as_generate(strategy):
    model = learned()
    ids, mask = padded("right")
    options = {"strategy": strategy, "processors": (NoRepeatNGram(2),)}
    options["padding_mask"] = mask
    steps = list(stream(model, ids, 6, **options))
    rows = generate(model, ids, 6, **options)[:, -6:]
    assert all(step.dtype == "int32" for step in steps)
    np.testing.assert_array_equal(np.stack(steps, axis=1), rows)


def test_it_ends_when_all_rows_have():
    model = learned()
    free = generate(model, [[5, 3]], 8)[0, 2:].tolist()
    steps = list(stream(model, [[5, 3]], 8, stop_token_ids=[free[2]]))
    assert [step.item() for step in steps] == free[: free.index(free[2]) + 1]


def test_encoder_decoder():
    model = seq2seq()
    ids = {"source_token_ids": [[3, 4, 5]], "target_token_ids": [[1]]}
    steps = list(stream(model, ids, 5))
    assert [s.item() for s in steps] == generate(model, ids, 5)[0, 1:].tolist()


def test_text_comes_in_whole_characters():
    """The letter é has two bytes, each a token."""
    tokenizer = data.byte_tokenizer()
    row = data.encode(tokenizer, ["né!"])[0]
    assert len(row) == 4

    from keras_tfm.generation.stream import _texts

    steps = ([token] for token in [*row.tolist(), 7, 9])
    steps = (np.array(step, "int32") for step in steps)
    texts = list(_texts(steps, lambda rows: data.decode(tokenizer, rows), {7}))
    assert texts == [["n"], [""], ["é"], ["!"], [""], [""]]


def test_other_strategies_are_refused():
    with pytest.raises(ValueError, match="one token after the other"):
        stream(learned(), [[5]], 3, BeamSearch(2))
    with pytest.raises(ValueError, match="at least 1"):
        stream(learned(), [[5]], 0)
