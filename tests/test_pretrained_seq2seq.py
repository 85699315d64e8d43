"""Marian and BART checkpoints against the reference library's numbers."""

import functools
import json

import numpy as np
import pytest
from keras import ops

from keras_tfm import checkpoints, export, generation, layers, models
from keras_tfm.checkpoints.safetensors_arrays import read_safetensors
from tests import laws
from tests.laws import assert_near, to_numpy
from tests.sources import ROOT

PATH = ROOT / "tests" / "golden" / "pretrained" / "seq2seq.npz"
CASES = ("marian", "marian_apart", "bart", "mbart")
cases = pytest.mark.parametrize("name", CASES)
T, PADDING, NEW = 6, 3, 8


@functools.cache
def recorded():
    with np.load(PATH) as file:
        return dict(file)


def files_of(name):
    """The files of a folder that the reference library wrote, as bytes."""
    start = f"{name}/files/"
    found = {k: v for k, v in recorded().items() if k.startswith(start)}
    return {k.removeprefix(start): v.tobytes() for k, v in found.items()}


def fields_of(name):
    return json.loads(files_of(name)["config.json"])


def write_folder(folder, name, config=None):
    """A golden checkpoint as the reference library wrote it, or with other fields."""
    folder.mkdir()
    for file, content in files_of(name).items():
        (folder / file).write_bytes(content)
    if config is not None:
        (folder / "config.json").write_text(json.dumps({**fields_of(name), **config}))
    return folder


def inputs_of(name, padding=0):
    pad_id = fields_of(name)["pad_token_id"]
    return {
        f"{side}_token_ids": np.pad(
            recorded()[f"{name}/{side}"].astype("int32"),
            ((0, 0), (0, padding)),
            constant_values=pad_id,
        )
        for side in ("source", "target")
    }


def load_with_options(folder):
    """The model of a folder, and what the folder asks of generation."""
    model = checkpoints.load_pretrained(folder)
    return model, checkpoints.generation_options(folder)


def prompt_of(name, start_token_id):
    """Sources, and targets that only begin."""
    source = inputs_of(name)["source_token_ids"]
    start = np.full((len(source), 1), start_token_id, "int32")
    return {"source_token_ids": source, "target_token_ids": start}


@cases
def test_against_the_reference_library(tmp_path, name):
    folder = write_folder(tmp_path / name, name)
    report = checkpoints.pretrained_report(folder)
    assert not report.missing and not report.unused
    model = checkpoints.load_pretrained(folder)
    for kind, padding in (("plain", 0), ("padded", PADDING)):
        logits = to_numpy(model(inputs_of(name, padding)))[:, :T]
        assert_near(logits, recorded()[f"{name}/{kind}/logits"], atol=1e-4)


@cases
def test_generation(tmp_path, name):
    folder = write_folder(tmp_path / name, name)
    model, options = load_with_options(folder)
    assert options["start_token_id"] == fields_of(name)["decoder_start_token_id"]
    prompt = prompt_of(name, options.pop("start_token_id"))
    for kind, strategy in (
        ("greedy", generation.Greedy()),
        ("beam", generation.BeamSearch(num_beams=3)),
    ):
        made = generation.generate(model, prompt, NEW, strategy, **options)
        expected = recorded()[f"{name}/{kind}"].copy()
        for row in expected:  # after the end we have 0, not the id of padding
            ends = np.flatnonzero(row[1:] == options["stop_token_ids"][0])
            row[ends[0] + 2 if ends.size else len(row) :] = 0
        np.testing.assert_array_equal(made, expected)


@cases
def test_cached_equals_full(tmp_path, name):
    model = checkpoints.load_pretrained(write_folder(tmp_path / name, name))
    given = inputs_of(name)
    context, mask = model.encode(given["source_token_ids"])
    laws.cached_equals_full(
        model,
        given["target_token_ids"],
        to_numpy(model(given)),
        T + 2,
        context,
        chunks=([1] * T, [2, T - 2]),
        atol=1e-4,
        context_padding_mask=mask,
    )


@pytest.mark.parametrize("name", ["marian", "marian_apart"])
def test_round_trip(tmp_path, name):
    one = write_folder(tmp_path / "one", name)
    checkpoints.save_pretrained(checkpoints.load_pretrained(one), tmp_path / "two")
    expected, written = (
        dict(read_safetensors(tmp_path / folder / "model.safetensors"))
        for folder in ("one", "two")
    )
    assert set(written) == set(expected)
    for key, array in expected.items():
        np.testing.assert_array_equal(written[key], array)
    config = json.loads((tmp_path / "two" / "config.json").read_text())
    theirs = {**fields_of(name), "activation_function": "silu"}
    assert config == {key: theirs[key] for key in config}


def test_what_cannot_be_written(tmp_path):
    model = models.Seq2SeqTransformer(11, 1, 2, 8, 16, 9)
    with pytest.raises(checkpoints.CheckpointError, match="can be written"):
        checkpoints.save_pretrained(model, tmp_path)


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("marian", {"normalize_before": True}, "normalize_before=True"),
        ("marian", {"decoder_attention_heads": 2}, "decoder_attention_heads=2"),
        ("marian", {"decoder_vocab_size": 36, **{"vocab_size": 36}}, "shared.weight"),
        ("bart", {"normalize_embedding": False}, "normalize_embedding=False"),
        ("bart", {"max_position_embeddings": 25}, "embed_positions.weight has shape"),
    ],
)
def test_checkpoints_that_do_not_fit(tmp_path, name, config, message):
    folder = write_folder(tmp_path / name, name, config)
    with pytest.raises(checkpoints.CheckpointError, match=message):
        checkpoints.load_pretrained(folder)


def test_a_target_that_begins_with_padding_reads_its_first_token(tmp_path):
    model = checkpoints.load_pretrained(write_folder(tmp_path / "marian", "marian"))
    given = inputs_of("marian")
    before = to_numpy(model(given))
    table = to_numpy(model.token_embedding.embeddings).copy()
    table[36] += 1.0
    model.token_embedding.embeddings.assign(table)
    after = to_numpy(model(given))
    assert np.abs(after - before)[..., :36].max() > 1e-3  # it is looked at ...
    given["source_token_ids"][1, -2:] = 36
    other = {**given, "source_token_ids": given["source_token_ids"][:, :7]}
    assert_near(model(other)[1:], after[1:], atol=1e-4)  # ... and the source's is not


def test_marian_as_litert(tmp_path):
    folder = write_folder(tmp_path / "marian", "marian")
    model, options = load_with_options(folder)
    path, length = tmp_path / "model.tflite", {"max_length": 1 + NEW}
    export.generation_to_litert(model, path, **length, **options)
    prompt = prompt_of("marian", options.pop("start_token_id"))
    parity = export.check_generation(model, path, prompt, **length, **options)
    assert (parity.agreeing, parity.prompts) == (2, 2)


def test_sines_before_cosines():
    layer = layers.SinusoidalPositionEncoding(interleaved=False)
    plain = to_numpy(layers.sinusoidal_table(7, 5))
    found = to_numpy(layer(ops.zeros((1, 7, 5))))[0]
    assert_near(found, np.concatenate([plain[:, 0::2], plain[:, 1::2]], axis=1))


def test_generation_options_of_old_configs(tmp_path):
    """Without a generation_config.json the config of the model says it all."""
    config = {
        "decoder_start_token_id": None,
        "bos_token_id": 5,
        "eos_token_id": [0, 2],
        "repetition_penalty": 1.3,
        "min_length": 3,
        "bad_words_ids": [[36], [1, 2]],
        "forced_eos_token_id": 2,
    }
    folder = write_folder(tmp_path / "marian", "marian", config)
    (folder / "generation_config.json").unlink()
    assert checkpoints.generation_options(folder) == {
        "start_token_id": 5,
        "stop_token_ids": (0, 2),
        "processors": (
            generation.RepetitionPenalty(1.3),
            generation.MinLength(2),
            generation.SuppressTokens((36,)),
            generation.ForcedToken(2, step=-1),
        ),
    }
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(checkpoints.CheckpointError, match="config.json is not JSON"):
        checkpoints.generation_options(folder)
