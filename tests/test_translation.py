"""The recipe on tiny slices: it learns, leaves its files, and fails in one line."""

import dataclasses
import json

import keras
import pytest

from keras_tfm import data
from recipes import flags, translation

pytestmark = pytest.mark.tensorflow

TINY = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "vocabulary_size": 100,
    "batch_size": 16,
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
    return flags.configure(translation.Config, translation.PRESETS, **given)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished run on 120 pairs of the user's own."""
    folder = tmp_path_factory.mktemp("translation")
    pairs = data.number_word_pairs(120, kinds=("cardinal",))
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "pairs.tsv").write_text(lines, encoding="utf-8")
    settings = config(folder / "run", dataset=f"tsv:{folder / 'pairs.tsv'}", epochs=3)
    return folder / "run", translation.run(settings)


def test_learns_and_leaves_its_files(done):
    folder, metrics = done
    record = json.loads((folder / "metrics.json").read_text())
    assert record["history"]["loss"][-1] < record["history"]["loss"][0]
    assert record["metrics"] == metrics
    assert 0 <= metrics["test_exact_match"] <= 1
    assert metrics["baseline_copy_exact_match"] == 0
    assert record["parity"]["litert"]["agreement"] == 1
    for name in ("generator", "generator.tflite"):
        assert record["parity"][name] == {"agreement": 1, "prompts": 8}
    assert FILES <= {path.name for path in folder.iterdir()}


def test_files_alone_translate(done):
    folder, _ = done
    model = keras.models.load_model(folder / "model.keras")
    tokenizer = data.load_tokenizer(folder / "tokenizer.json")
    texts = ["one", "seventy-two thousand and five", ""]
    outputs = translation.translate(model, tokenizer, texts, 64)
    assert len(outputs) == 3 and all(isinstance(text, str) for text in outputs)
    # The order of the texts and what they are batched with change nothing.
    one_by_one = [
        translation.translate(model, tokenizer, [text], 64)[0] for text in texts[::-1]
    ]
    assert outputs == one_by_one[::-1]


def test_scores_of_right_and_copied_texts():
    references = ["ein hund läuft schnell", "zwei", "drei katzen sitzen still"]
    sources = ["a dog runs fast", "zwei", "three cats sit still"]
    metrics = translation.score("test", references, references, lowercase=False)
    assert metrics["test_exact_match"] == 1
    assert metrics["test_chrf"] == pytest.approx(100)
    metrics = translation.score("copy", sources, references, lowercase=False)
    assert metrics["copy_exact_match"] == pytest.approx(1 / 3)
    assert metrics["copy_chrf"] < 40


def test_a_finished_run_is_evaluated_and_talks(done, capsys, monkeypatch):
    folder, metrics = done
    settings = config(folder, dataset=f"tsv:{folder.parent / 'pairs.tsv'}", epochs=3)
    again = translation.run(dataclasses.replace(settings, mode="evaluate"))
    assert again == {name: metrics[name] for name in again}
    lines = iter(["seventy-two", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    capsys.readouterr()
    translation.run(dataclasses.replace(settings, mode="talk"))
    model = keras.models.load_model(folder / "model.keras")
    tokenizer = data.load_tokenizer(folder / "tokenizer.json")
    expected = translation.translate(model, tokenizer, ["seventy-two"], 64)[0]
    assert capsys.readouterr().out.splitlines()[1:] == [expected]


def test_load_cuts_the_users_pairs_in_three(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"A{i}\tB{i}\n" for i in range(100)), encoding="utf-8")
    given = {"dataset": f"tsv:{path}", "lowercase": 1, "examples": 50}
    pairs = translation.load(config(tmp_path / "run", **given))
    assert [len(part) for part in pairs.values()] == [50, 9, 10]
    assert len({pair for part in pairs.values() for pair in part}) == 69
    source, target = pairs["test"][0]
    assert source.startswith("a") and target == source.replace("a", "b")


def test_real_pairs(tfds_dir, tmp_path):
    given = {"dataset": "multi30k/en-de", "data_dir": str(tfds_dir)}
    settings = config(tmp_path, **given)
    assert (settings.lowercase, settings.max_length) == (1, 48)  # the preset's
    assert settings.hidden_dim == 16  # the user's
    pairs = translation.load(settings)
    assert [len(part) for part in pairs.values()] == [29_000, 1_014, 1_000]
    assert pairs["test"][0][0] == pairs["test"][0][0].lower()


@pytest.mark.parametrize(
    "flag, message",
    [
        (["--dataset", "tsv:missing.tsv"], "missing.tsv"),
        (["--dataset", "tsv:"], "names no file"),
        (["--dataset", "nonsense"], "nonsense"),
        (["--num-heads", "3"], "16"),
        (["--norm-position", "middle"], "norm-position"),
    ],
)
def test_errors_are_one_line(tmp_path, capsys, flag, message):
    small = [f"{flags.flag(name)}={value}" for name, value in TINY.items()]
    small += ["--examples=64", f"--output-dir={tmp_path / 'run'}"]
    try:
        code = translation.main([*small, *flag])
    except SystemExit as stopped:
        code = stopped.code
    error = capsys.readouterr().err.strip()
    assert code == 2
    assert message in error and "\n" not in error


def test_help_names_the_presets(capsys):
    with pytest.raises(SystemExit) as stopped:
        translation.main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "multi30k/en-de" in shown and "--label-smoothing" in shown


def test_full_presets_build():
    for dataset in translation.PRESETS:
        settings = flags.configure(
            translation.Config, translation.PRESETS, dataset=dataset
        )
        assert settings.hidden_dim % settings.num_heads == 0
    transformer_tiny = flags.configure(
        translation.Config, translation.PRESETS, dataset="multi30k/en-de"
    )
    model = translation.build(transformer_tiny, 6000)
    tables = 6000 * 128
    norms = 4 * 2 * 256 + 4 * 3 * 256 + 2 * 256
    attention = 4 * (128 * 128 + 128)
    feed_forward = 2 * 128 * 256 + 256 + 128
    blocks = 4 * (attention + feed_forward) + 4 * (2 * attention + feed_forward)
    assert model.count_params() == tables + norms + blocks
