"""The recipe from a pretrained model: it talks, fine-tunes, and writes all back."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import checkpoints, layers, models
from recipes import flags, gpt_generation

pytestmark = pytest.mark.tensorflow

# One byte-level token for each letter and "th", and the end of a text.
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.TĠĊ", "th", "<end>"]
DESCRIPTION = {
    "model": {
        "type": "BPE",
        "vocab": {c: i for i, c in enumerate(LETTERS)},
        "merges": ["t h"],
    },
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "decoder": {"type": "ByteLevel"},
    "added_tokens": [
        {"id": len(LETTERS) - 1, "content": "<end>", "special": True},
    ],
    "special_tokens": {"eos_token": "<end>"},
}  # fmt: skip
SMALL = {"context": 16, "batch_size": 4, "steps": 5, "epochs": 1, "new_tokens": 4}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    keras.utils.set_random_seed(0)
    model = models.GPT(
        len(LETTERS), 2, 2, 16, 24, 32, position=None, norm="rms",
        tie_embeddings=False,
        attention=layers.MultiHeadAttention(
            2, rotary=layers.RotaryEmbedding(), use_bias=False
        ),
        feed_forward=layers.GatedFeedForward(24),
    )  # fmt: skip
    checkpoints.save_pretrained(model, folder)
    checkpoints.save_tokenizer(checkpoints.PretrainedTokenizer(DESCRIPTION), folder)
    (folder / "book.txt").write_text("the cat sat on the mat.\n" * 60, "utf-8")
    return folder


def config(checkpoint, folder, **given):
    given = {
        **SMALL, "output_dir": str(folder), "init": str(checkpoint),
        "dataset": f"text:{checkpoint / 'book.txt'}", "learning_rate": 1e-2, **given,
    }  # fmt: skip
    return flags.configure(gpt_generation.Config, gpt_generation.PRESETS, **given)


def talk(settings, capsys, monkeypatch):
    """What is written after "the"."""
    lines = iter(["the", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    gpt_generation.run(settings)
    return capsys.readouterr().out.split("ends.\n")[1].removesuffix("\n")


def greedy(folder, settings):
    """The same from what lies in a folder."""
    model = checkpoints.load_pretrained(folder)
    tokenizer = checkpoints.load_tokenizer(folder)
    return gpt_generation.sample(model, tokenizer, settings, 1)[0].removeprefix("the")


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 2])
def test_fine_tunes_and_talks(rank, checkpoint, tmp_path, capsys, monkeypatch):
    settings = config(
        checkpoint, tmp_path / "run", lora=rank, prompt="the", temperature=0.0
    )
    talking = config(
        checkpoint, tmp_path / "run", prompt="the", temperature=0.0, mode="talk"
    )
    # Before: the checkpoint itself.
    said = talk(talking, capsys, monkeypatch)
    assert said == greedy(checkpoint, settings)

    metrics = gpt_generation.run(settings)
    out = capsys.readouterr().out
    assert metrics["validation_loss"] < metrics["baseline_pretrained_loss"]
    record = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for name in ("generator", "generator.tflite"):
        assert record["parity"][name]["agreement"] == 1
    before = checkpoints.load_pretrained(checkpoint).get_weights()
    after = checkpoints.load_pretrained(tmp_path / "run" / "checkpoint").get_weights()
    changed = [not np.array_equal(one, two) for one, two in zip(before, after)]
    assert sum(changed) == (4 if rank else len(changed))
    assert (tmp_path / "run" / "adapters.npz").exists() == bool(rank)
    assert ("parameters are trained" in out) == bool(rank)

    # After: the finished run.
    said = talk(talking, capsys, monkeypatch)
    assert said == greedy(tmp_path / "run" / "checkpoint", settings)
    keras.models.load_model(tmp_path / "run" / "model.keras")


@pytest.mark.parametrize(
    "given, message",
    [
        (["--lora", "2"], "--lora needs --init"),
        (["--init", "{}", "--context", "64"], "--context may be 32 at most"),
        (["--init", "missing-folder"], "missing-folder"),
    ],
)
def test_errors_are_one_line(given, message, checkpoint, tmp_path, capsys):
    words = [word.format(checkpoint) for word in given]
    words += ["--dataset", f"text:{checkpoint / 'book.txt'}"]
    assert gpt_generation.main([*words, "--output-dir", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error


def test_presets_of_init_come_on_top():
    """What is given still wins."""
    both = gpt_generation.Config, gpt_generation.PRESETS
    made = flags.configure(*both, init="a", batch_size=3)
    assert (made.learning_rate, made.context, made.batch_size) == (5e-5, 128, 3)
    assert flags.configure(*both, init="a", lora=2).learning_rate == 5e-4
    assert flags.configure(*both).learning_rate == 2e-3
