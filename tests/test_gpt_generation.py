"""The recipe on tiny slices: it learns, leaves its files, and fails in one line."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_tfm import data, export
from recipes import flags, gpt_generation, session

pytestmark = pytest.mark.tensorflow

TINY = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "context": 16,
    "batch_size": 8,
    "steps": 20,
    "epochs": 2,
    "new_tokens": 8,
    "learning_rate": 1e-2,
}
FILES = {
    "README.md",
    "attention.png",
    "curves.png",
    "generator",
    "generator.tflite",
    "metrics.json",
    "model.keras",
    "model.tflite",
    "saved_model",
    "tokenizer.json",
}


def config(folder, **given):
    given = {**TINY, "output_dir": str(folder), **given}
    return flags.configure(gpt_generation.Config, gpt_generation.PRESETS, **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run on a book of the user's own, in characters."""
    folder = tmp_path_factory.mktemp("gpt")
    text = "the cat sat on the mat. a dog ate the hat. " * 60
    (folder / "book.txt").write_text(text, encoding="utf-8")
    settings = config(
        folder / "run",
        dataset=f"text:{folder / 'book.txt'}",
        tokenizer="characters",
        prompt="the ",
        remat=1,
    )
    return folder / "run", gpt_generation.run(settings)


def test_learns_and_leaves_its_files(done):
    folder, metrics = done
    record = json.loads((folder / "metrics.json").read_text())
    history = record["history"]
    assert len(history["loss"]) == 2 and history["loss"][1] < history["loss"][0]
    assert metrics["validation_loss"] == pytest.approx(history["val_loss"][-1])
    assert metrics["validation_loss"] < metrics["baseline_unigram_loss"]
    assert metrics["validation_perplexity"] == pytest.approx(
        np.exp(metrics["validation_loss"])
    )
    # One token is one character, so only the unit differs.
    assert metrics["validation_bits_per_character"] == pytest.approx(
        metrics["validation_loss"] / np.log(2)
    )
    assert record["parity"]["litert"]["agreement"] == 1
    for name in ("generator", "generator.tflite"):
        assert record["parity"][name] == {"agreement": 1, "prompts": 1}
    assert FILES <= {path.name for path in folder.iterdir()}


def test_files_alone_go_on_with_a_text(done):
    folder, _ = done
    model = keras.models.load_model(folder / "model.keras")
    tokenizer = data.load_tokenizer(folder / "tokenizer.json")
    settings = config(folder, prompt="the ", seed=3)
    texts = gpt_generation.sample(model, tokenizer, settings)
    assert len(texts) == 3
    # Padding and unknown characters, drawn now and then, are no text.
    assert all(text.startswith("the ") and len(text) in range(8, 13) for text in texts)
    assert texts == gpt_generation.sample(model, tokenizer, settings)


def test_a_finished_run_talks(done, capsys, monkeypatch):
    folder, _ = done
    lines = iter(["the cat", "far too long a text to go on with", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    settings = config(folder, mode="talk", temperature=0.0, tokenizer="characters")
    gpt_generation.run(settings)
    _, written, error = capsys.readouterr().out.splitlines()
    model = keras.models.load_model(folder / "model.keras")
    tokenizer = data.load_tokenizer(folder / "tokenizer.json")
    greedy = dataclasses.replace(settings, prompt="the cat")
    assert "the cat" + written == gpt_generation.sample(model, tokenizer, greedy, 1)[0]
    assert error.startswith("error: --prompt must be")
    with pytest.raises(ValueError, match="holds no finished run"):
        gpt_generation.run(dataclasses.replace(settings, output_dir="nowhere"))


def test_the_generator_takes_texts(done):
    folder, _ = done
    both = export.run_file(folder / "generator", {"text": ["a dog at", "th"]})["text"]
    assert all(0 < len(text) <= 8 for text in both.tolist())  # 16 less the longest


def test_unigram_loss():
    train, validation = np.array([0, 0, 1]), np.array([0, 1, 2])
    probabilities = np.array([3, 2, 1]) / 6  # counts and one
    expected = -np.log(probabilities).mean()
    actual = gpt_generation.unigram_loss(train, validation, 3)
    assert actual == pytest.approx(expected)


def test_tiny_shakespeare_is_cut_as_nanogpt_cuts_it(tfds_dir, tmp_path):
    given = {"preset": "nanogpt-cpu", "data_dir": str(tfds_dir)}
    settings = flags.configure(
        gpt_generation.Config,
        gpt_generation.PRESETS,
        output_dir=str(tmp_path),
        **given,
    )
    assert settings.dataset == "tiny_shakespeare"
    assert settings.steps * settings.epochs == 2000
    train, validation = gpt_generation.load(settings)
    assert (len(train), len(validation)) == (1_003_854, 111_540)
    assert train.startswith("First Citizen:")
    tokenizer = gpt_generation.make_tokenizer(settings, train)
    assert tokenizer.vocabulary_size() == 65 + 2
    # 4 layers of 128 with biases, characters and 64 positions.
    blocks = 4 * (12 * 128**2 + 13 * 128)
    model = gpt_generation.build(settings, 65)
    assert model.count_params() == blocks + (65 + 64 + 2) * 128


def test_two_blocks_of_mamba_have_the_size_of_one_of_gpt(tmp_path):
    sizes = {"num_heads": 4, "hidden_dim": 128, "context": 64}
    gpt = config(tmp_path, num_layers=1, **sizes)
    mamba = config(tmp_path, num_layers=2, attention="mamba", **sizes)
    gpt, mamba = (gpt_generation.build(c, 65).count_params() for c in (gpt, mamba))
    assert mamba == pytest.approx(gpt, rel=0.2)


@pytest.mark.long
@pytest.mark.parametrize("attention", ["mamba", "mamba2"])
def test_mamba_leaves_its_files(tmp_path, attention):
    (tmp_path / "book.txt").write_text("to be or not to be. " * 40, encoding="utf-8")
    source = {"dataset": f"text:{tmp_path / 'book.txt'}", "tokenizer": "characters"}
    settings = config(tmp_path / "run", attention=attention, prompt="to ", **source)
    metrics = gpt_generation.run(settings)
    assert metrics["validation_loss"] < metrics["baseline_unigram_loss"]
    record = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for name in ("generator", "generator.tflite"):
        assert record["parity"][name] == {"agreement": 1, "prompts": 1}
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert FILES - {"attention.png"} <= names


@pytest.mark.long
def test_resumes_where_it_stopped(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("to be or not to be. " * 40, encoding="utf-8")
    given = {
        "dataset": f"text:{tmp_path / 'book.txt'}",
        "tokenizer": "bytes",
        "prompt": "to ",
    }

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    settings = config(tmp_path / "run", **given)
    real_fit = session.fit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "fit", lambda *args: real_fit(*args, [Stop()]))
        words = [f"{flags.flag(k)}={v}" for k, v in {**TINY, **given}.items()]
        words.append(f"--output-dir={tmp_path / 'run'}")
        assert gpt_generation.main(words) == 130
    assert "after epoch 1" in capsys.readouterr().err
    gpt_generation.run(settings)
    record = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert len(record["history"]["loss"]) == 2
    # A finished run is not overwritten.
    assert gpt_generation.main(words) == 2
    assert "finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flag, message",
    [
        (["--dataset", "text:missing.txt"], "missing.txt"),
        (["--dataset", "nonsense"], "nonsense"),
        (["--examples", "5"], "at least 17"),
        (["--num-heads", "3"], "16"),
        (["--prompt", ""], "--prompt"),
        (["--prompt", "far too long a prompt"], "--prompt"),
        (["--tokenizer", "words"], "tokenizer"),
        (["--preset", "huge"], "nanogpt-cpu"),
    ],
)
def test_errors_are_one_line(tmp_path, capsys, flag, message):
    small = [f"{flags.flag(name)}={value}" for name, value in TINY.items()]
    small += ["--tokenizer=bytes", f"--output-dir={tmp_path / 'run'}"]
    try:
        code = gpt_generation.main([*small, *flag])
    except SystemExit as stopped:
        code = stopped.code
    error = capsys.readouterr().err.strip()
    assert code == 2
    assert message in error and "\n" not in error


def test_an_empty_file_is_one_line(tmp_path, capsys):
    (tmp_path / "empty.txt").write_text("")
    path = f"text:{tmp_path / 'empty.txt'}"
    code = gpt_generation.main(["--dataset", path, f"--output-dir={tmp_path / 'run'}"])
    error = capsys.readouterr().err.strip()
    assert code == 2 and "empty" in error and "\n" not in error
