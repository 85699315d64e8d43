"""Exported generators make the tokens of generate."""

import numpy as np
import pytest

from keras_tfm import data, export, layers, models
from keras_tfm.export import check_generation, generation_to_litert, run_file
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
)
from keras_tfm.layers.projection import PARTS
from tests.test_generate import NUMBERS, padded, spread

pytestmark = pytest.mark.tensorflow

PROCESSORS = (
    RepetitionPenalty(1.3),
    NoRepeatNGram(2),
    MinLength(2),
    ForcedToken(4, step=1),
    SuppressTokens((9,)),
)
STRATEGIES = {
    "greedy": Greedy(),
    "sample": Sample(temperature=1.3, top_k=20, top_p=0.9, min_p=0.01, seed=3),
    "plain sample": Sample(seed=1),
    "beams": BeamSearch(3, 0.7, num_return_sequences=2),
    "groups": BeamSearch(4, num_groups=2, diversity_penalty=0.5),
    "no temperature": Sample(temperature=0.0),
    "no share, more than there is": Sample(top_p=0.0, top_k=999),
    "more beams than tokens": BeamSearch(40),
}


ONE_LAYER = {**NUMBERS, "num_layers": 1}  # converts in half the time


def learned():
    return spread(models.GPT(**ONE_LAYER))


def seq2seq():
    return spread(models.Seq2SeqTransformer(**ONE_LAYER))


def banded():
    attention = [
        layers.MultiHeadAttention(
            4, num_key_value_heads=2, window=3, rotary=layers.RotaryEmbedding()
        ),
        layers.MultiHeadAttention(2, relative_bias=layers.AlibiBias(2)),
    ]
    return spread(models.GPT(**NUMBERS, position=None, attention=attention))


@pytest.mark.parametrize("name", STRATEGIES)
def test_litert_makes_the_same_tokens(name, tmp_path):
    model, strategy = learned(), STRATEGIES[name]
    settings = {"strategy": strategy, "max_length": 16, "stop_token_ids": (7,)}
    path = generation_to_litert(model, tmp_path / "model.tflite", **settings)
    ids, mask = padded("left")
    parity = check_generation(model, path, ids, padding_mask=mask, **settings)
    assert str(parity) == "model.tflite: the same tokens for 3 of 3 prompts"
    one = check_generation(model, path, [[5]], **settings)  # another B and T
    assert one.agreeing == one.prompts == 1


def test_a_file_for_one_row_has_whole_products(tmp_path):
    """Weights cut in parts are not quantized and not fused."""
    from ai_edge_litert.interpreter import Interpreter

    path = generation_to_litert(
        learned(), tmp_path / "one.tflite", max_length=16, batch_size=1, length=8
    )
    runner = Interpreter(str(path))
    shapes = [
        tuple(tensor["shape"])
        for graph in range(runner.num_subgraphs())
        for tensor in runner.get_tensor_details(graph)
    ]
    width = NUMBERS["hidden_dim"]
    assert any(shape == (31, width) for shape in shapes)
    assert not [s for s in shapes if s[:2] == (PARTS, width // PARTS) and len(s) == 3]


@pytest.mark.parametrize(
    "name", ["greedy", pytest.param("beams", marks=pytest.mark.long)]
)
def test_litert_has_the_processors(name, tmp_path):
    model = banded()
    settings = {"strategy": STRATEGIES[name], "processors": PROCESSORS}
    settings |= {"max_length": 16, "stop_token_ids": (7,)}
    path = generation_to_litert(model, tmp_path / "model.tflite", **settings)
    ids, mask = padded("left")
    assert (
        check_generation(model, path, ids, padding_mask=mask, **settings).agreeing == 3
    )
    choices = {**settings, "processors": [OneOf([[5, 8, 7], [6, 7], [5, 9, 7]])]}
    path = generation_to_litert(model, path, **choices)
    assert (
        check_generation(model, path, ids, padding_mask=mask, **choices).agreeing == 3
    )


@pytest.mark.parametrize("name", ["greedy", "sample", "beams"])
def test_litert_of_an_encoder_decoder(name, tmp_path):
    model, strategy = seq2seq(), STRATEGIES[name]
    settings = {"strategy": strategy, "max_length": 12, "stop_token_ids": (7,)}
    path = generation_to_litert(
        model, tmp_path / "model.tflite", start_token_id=2, **settings
    )
    source = np.random.default_rng(0).integers(1, 31, (3, 6)).astype("int32")
    source[0, 4:] = 0
    ids = {"source_token_ids": source, "target_token_ids": [[2]] * 3}
    assert check_generation(model, path, ids, **settings).agreeing == 3


def test_scores_and_seeds(tmp_path):
    model, strategy = learned(), Sample(temperature=1.5, seed=3)
    path = generation_to_litert(model, tmp_path / "model.tflite", strategy, 12)
    inputs = {"token_ids": [[5, 3]], "padding_mask": [[True, True]]}
    found = {}
    for seed in (3, 4):
        made = run_file(path, {**inputs, "seed": np.array(seed, "int32")})
        same = Sample(temperature=1.5, seed=seed)
        expected = generate_with_scores(model, [[5, 3]], 10, same)
        np.testing.assert_array_equal(made["token_ids"], expected.token_ids)
        np.testing.assert_allclose(made["scores"], expected.scores, atol=1e-4)
        found[seed] = made["token_ids"].tolist()
    assert found[3] != found[4]


@pytest.mark.parametrize(
    "quantize", [pytest.param("float16", marks=pytest.mark.long), "dynamic"]
)
def test_quantized_files_generate(quantize, tmp_path):
    model = spread(
        models.GPT(31, 2, 2, 64, 128, max_sequence_length=24, dtype="mixed_bfloat16")
    )
    plain, small = (
        generation_to_litert(model, tmp_path / f"{q}.tflite", max_length=16, quantize=q)
        for q in (None, quantize)
    )
    assert small.stat().st_size < 0.75 * plain.stat().st_size
    assert check_generation(model, small, [[5, 3]], max_length=16).prompts == 1


TEXTS = ["to be", "be", "not to"]


@pytest.mark.parametrize(
    "name", [pytest.param("greedy", marks=pytest.mark.long), "sample", "beams"]
)
def test_saved_model_takes_and_gives_strings(name, tmp_path):
    """Read by a process without keras_tfm in test_saved_model_text."""
    strategy = STRATEGIES[name]
    tokenizer = data.train_characters("to be or not to be, that is the question")
    size = tokenizer.vocabulary_size()
    model = spread(models.GPT(**{**ONE_LAYER, "vocabulary_size": size}))
    settings = {"strategy": strategy, "stop_token_ids": (5,)}
    folder = export.generation_to_saved_model(
        model, tmp_path / "writer", tokenizer, max_length=16, **settings
    )
    made = run_file(folder, {"text": TEXTS})
    rows = data.encode(tokenizer, TEXTS)
    ids, mask = np.zeros((3, 6), "int32"), np.zeros((3, 6), bool)
    for i, row in enumerate(rows):
        ids[i, -len(row) :], mask[i, -len(row) :] = row, True
    expected = generate_with_scores(model, ids, 10, padding_mask=mask, **settings)
    np.testing.assert_array_equal(made["token_ids"], expected.token_ids)
    np.testing.assert_allclose(made["scores"], expected.scores, atol=1e-4)
    for texts, new in zip(made["text"], expected.token_ids[:, :, 6:]):
        for text, row in zip(np.atleast_1d(texts), new.tolist()):
            row = row[: row.index(5)] if 5 in row else row
            assert text.decode() == data.decode(tokenizer, [row])[0]
    if name != "sample":  # draws depend on the row's place
        alone = run_file(folder, {"text": TEXTS[2:]})
        np.testing.assert_array_equal(alone["token_ids"], made["token_ids"][2:])
    else:
        seed = np.array(9, "int32")
        other = run_file(folder, {"text": TEXTS, "seed": seed}, "with_seed")
        assert (other["token_ids"] != made["token_ids"]).any()


def test_saved_model_of_a_translator(tmp_path):
    tokenizer = data.train_sentencepiece(["eins zwei drei", "one two three"] * 9, 30)
    ids = data.special_ids(tokenizer)
    size = tokenizer.vocabulary_size()
    model = spread(models.Seq2SeqTransformer(**{**ONE_LAYER, "vocabulary_size": size}))
    strategy = BeamSearch(3)
    folder = export.generation_to_saved_model(
        model, tmp_path / "translator", tokenizer, strategy, max_length=12,
        stop_token_ids=[ids["end"]], start_token_id=ids["start"],
    )  # fmt: skip
    texts = ["one two", "three"]
    made = run_file(folder, {"text": texts})
    source = data.pad_rows(data.encode_for_translation(texts, tokenizer), 12)
    prompt = {"source_token_ids": source, "target_token_ids": [[ids["start"]]] * 2}
    expected = generate(model, prompt, 11, strategy, stop_token_ids=[ids["end"]])
    np.testing.assert_array_equal(made["token_ids"][:, 0], expected)
    texts = [text.decode() for text in made["text"].tolist()]
    assert texts == data.decode(tokenizer, expected[:, 1:])


def test_bad_prompts_end_with_one_line(tmp_path):
    tokenizer = data.train_characters("to be")
    size = tokenizer.vocabulary_size()
    model = models.GPT(**{**ONE_LAYER, "vocabulary_size": size})
    folder = export.generation_to_saved_model(
        model, tmp_path / "writer", tokenizer, max_length=8
    )
    with pytest.raises(ValueError, match="as many tokens as the row, 8"):
        run_file(folder, {"text": ["to be to be"]})
    with pytest.raises(ValueError, match="no token to go on from"):
        run_file(folder, {"text": ["to", ""]})


def test_bad_settings_are_refused(tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(ValueError, match="`max_length` must be from 2 to 24"):
        generation_to_litert(learned(), path, max_length=25)
    with pytest.raises(ValueError, match="`quantize` must be one of"):
        generation_to_litert(learned(), path, max_length=8, quantize="int8")
    with pytest.raises(ValueError, match="needs `start_token_id` and `stop_token_ids`"):
        generation_to_litert(seq2seq(), path, max_length=8)
    assert not path.exists()
