"""generate: cached decoding equals full passes, row by row."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_tfm
from keras_tfm import layers, models
from keras_tfm.generation import BeamSearch, Greedy, Sample, Speculative, generate

NUMBERS = {
    "vocabulary_size": 31,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 20,
    "max_sequence_length": 24,
}
PROMPTS = [[5, 3], [7, 8, 9, 1, 2], [4] * 9]


def spread(model):
    """Give every weight values that make the best token depend on the prompt."""
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


def learned():
    return spread(models.GPT(**NUMBERS))


def sinusoidal():
    return spread(models.GPT(**NUMBERS, position="sinusoidal"))


def rotary():
    attention = layers.MultiHeadAttention(
        4, num_key_value_heads=2, rotary=layers.RotaryEmbedding()
    )
    return spread(models.GPT(**NUMBERS, position=None, attention=attention))


def alibi():
    attention = layers.MultiHeadAttention(2, relative_bias=layers.AlibiBias(2))
    return spread(models.GPT(**NUMBERS, position=None, attention=attention))


def seq2seq():
    return spread(models.Seq2SeqTransformer(**NUMBERS))


def by_full_passes(model, row, new, source=None):
    row = list(row)
    for _ in range(new):
        inputs = np.array([row])
        if source is not None:
            inputs = {"source_token_ids": source, "target_token_ids": inputs}
        logits = ops.convert_to_numpy(model(inputs))
        row.append(int(logits[0, -1].argmax()))
    return row


def padded(side):
    length = max(len(p) for p in PROMPTS)
    ids = np.zeros((len(PROMPTS), length), "int32")
    mask = np.zeros(ids.shape, bool)
    for i, prompt in enumerate(PROMPTS):
        place = slice(length - len(prompt), None) if side == "left" else len(prompt)
        place = place if isinstance(place, slice) else slice(0, place)
        ids[i, place], mask[i, place] = prompt, True
    return ids, mask


@pytest.mark.parametrize("make", [learned, sinusoidal, rotary, alibi])
@pytest.mark.parametrize("side", ["left", "right"])
def test_each_row_is_its_own_single_run(make, side):
    """FAULTS O22, O23, O29."""
    model = make()
    ids, mask = padded(side)
    rows = generate(model, ids, max_new_tokens=6, padding_mask=mask)
    assert rows.shape == (3, 15) and rows.dtype == "int32"
    for row, prompt in zip(rows, PROMPTS):
        expected = by_full_passes(model, prompt, 6)
        assert row[-len(expected) :].tolist() == expected
        assert not row[: -len(expected)].any()


def test_room_in_the_cache_changes_nothing():
    """FAULTS O30."""
    model = learned()
    runs = [generate(model, [[5, 3, 8]], new)[0].tolist() for new in (1, 4, 9, 20)]
    for shorter, longer in zip(runs, runs[1:]):
        assert longer[: len(shorter)] == shorter


def test_encoder_decoder_equals_full_passes():
    """FAULTS O28: padded sources, cross-attention computed once."""
    model = seq2seq()
    source = np.random.default_rng(0).integers(1, 31, (3, 6)).astype("int32")
    source[0, 4:] = 0
    ids = {"source_token_ids": source, "target_token_ids": [[1, 4]] * 3}
    rows = generate(model, ids, 7)
    for i, row in enumerate(rows):
        assert row.tolist() == by_full_passes(model, [1, 4], 7, source[i : i + 1])


def test_only_a_generated_stop_token_stops():
    """FAULTS O33, O37: nothing but 0 after it; the prompt is kept whole."""
    model = learned()
    free = generate(model, [[5, 3]], 8)[0].tolist()
    stop = free[4]
    cut = generate(model, [[stop, 5, 3]], 8, stop_token_ids=[stop])[0].tolist()
    assert cut[:3] == [stop, 5, 3]
    row = generate(model, [[5, 3]], 8, stop_token_ids=[stop])[0].tolist()
    first = free.index(stop, 2)
    assert row == free[: first + 1] + [0] * (len(free) - first - 1)


def test_rows_stop_one_by_one():
    model = learned()
    ids, mask = padded("right")
    free = generate(model, ids, 8, padding_mask=mask)
    stop = int(free[0, -6])
    rows = generate(model, ids, 8, padding_mask=mask, stop_token_ids=[stop])
    for row, whole in zip(rows[:, -8:], free[:, -8:].tolist()):
        end = whole.index(stop) + 1 if stop in whole else 8
        assert row.tolist() == whole[:end] + [0] * (8 - end)


def test_sampling_is_reproducible_and_seeded():
    model = learned()
    strategy = Sample(temperature=1.5, seed=3)
    one, two = (generate(model, [[5, 3]] * 4, 10, strategy) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = generate(model, [[5, 3]] * 4, 10, Sample(temperature=1.5, seed=4))
    assert (one != other).any()
    assert len({tuple(row) for row in one.tolist()}) == 4  # rows draw on their own


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "strategy",
    [
        Greedy(),
        Sample(seed=3),
        Sample(temperature=0.0),
        Sample(top_p=0.0, top_k=999),
        BeamSearch(3),
        BeamSearch(40),  # more than there are tokens
        Speculative(num_guesses=2),
    ],
)
@pytest.mark.xla
def test_xla_changes_nothing(strategy):
    (ids, mask), model = padded("left"), learned()
    rows = [
        generate(model, ids, 5, strategy, padding_mask=mask, jit_compile=jit)
        for jit in (False, True)
    ]
    kept = vars(model)["_keras_tfm_generators"].values()
    assert [generator.jit_compile for generator in kept] == [False, True]
    np.testing.assert_array_equal(*rows)


def test_mixed_precision_generates():
    """FAULTS O15."""
    model = models.GPT(**NUMBERS, dtype="mixed_bfloat16")
    assert generate(model, [[5, 3]], 4).shape == (1, 6)


def test_the_compiled_loop_is_kept_and_is_no_part_of_the_model(tmp_path):
    model = learned()
    before = len(model.weights), model.get_config()
    generate(model, [[5, 3]], 4)
    generator = next(iter(vars(model)["_keras_tfm_generators"].values()))
    generate(model, [[6, 2]], 4)
    assert list(vars(model)["_keras_tfm_generators"].values()) == [generator]
    assert (len(model.weights), model.get_config()) == before
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        generate(loaded, [[5, 3]], 4), generate(model, [[5, 3]], 4)
    )


def test_like_lengths_share_a_loop():
    """FAULTS O52: one trace a batch size and length bucket."""
    model = learned()
    for length, new in ((2, 4), (9, 3), (16, 8)):
        row = generate(model, [[5] * length], new)[0].tolist()
        assert row == by_full_passes(model, [5] * length, new)
    assert len(vars(model)["_keras_tfm_generators"]) == 1
    generate(model, [[5], [6]], 4)
    assert len(vars(model)["_keras_tfm_generators"]) == 2


def test_weights_are_read_anew_at_each_call():
    model = learned()
    before = generate(model, [[5, 3]], 6)
    for weight in model.weights:
        weight.assign(np.random.default_rng(7).normal(0, 0.3, weight.shape))
    after = generate(model, [[5, 3]], 6)
    assert after[0].tolist() == by_full_passes(model, [5, 3], 6)
    assert (before != after).any()


def test_bad_input_is_one_clear_line():
    """FAULTS O31 among them."""
    model = models.GPT(**NUMBERS)
    with pytest.raises(ValueError, match="20 new tokens are more than the 24"):
        generate(model, [[1] * 5], 20)
    with pytest.raises(ValueError, match="`max_new_tokens` must be at least 1"):
        generate(model, [[1]], 0)
    with pytest.raises(ValueError, match=r"shape \(B, T\) with T > 0"):
        generate(model, np.zeros((2, 0), "int32"), 3)
    with pytest.raises(ValueError, match="a real token in every row"):
        generate(model, [[1, 2], [0, 0]], 3, padding_mask=[[1, 1], [0, 0]])
    with pytest.raises(ValueError, match="a dict with"):
        generate(seq2seq(), {"source_token_ids": [[1]]}, 3)


def test_public_names():
    assert keras_tfm.generation.Greedy is Greedy


def test_another_seed_needs_no_other_loop():
    model = learned()
    for seed in (1, 2):
        generate(model, [[5, 3]], 4, Sample(temperature=1.5, seed=seed))
    assert len(vars(model)["_keras_tfm_generators"]) == 1
