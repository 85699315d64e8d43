"""The recipe of long documents: classes and books, one table, clear errors."""

import json

import numpy as np
import pytest

from recipes import flags, long_documents
from recipes.long_attention import ATTENTIONS, CAUSAL

pytestmark = pytest.mark.tensorflow

TINY = "--num-layers 1 --num-heads 2 --hidden-dim 16 --intermediate-dim 32 --window 4"
TINY += " --max-length 32 --batch-size 16 --vocabulary-size 300 --jit off"


def reviews(path, count=60):
    """Two classes that one word tells apart, far from the beginning."""
    rng = np.random.default_rng(0)
    lines = ["label,text"]
    for number in range(count):
        words = list(rng.choice(["the", "film", "was", "so", "very", "long"], 20))
        words[number % 20] = ("bad", "good")[number % 2]
        lines.append(f"{number % 2},{' '.join(words)}")
    path.write_text("\n".join(lines))
    return f"csv:{path}"


def test_documents_are_sorted(tmp_path, capsys):
    argv = f"--dataset {reviews(tmp_path / 'x.csv')} --attention window --epochs 3"
    argv += f" --output-dir {tmp_path / 'runs' / 'window'} --learning-rate 1e-2 {TINY}"
    assert long_documents.main(argv.split()) == 0
    record = json.loads((tmp_path / "runs/window/metrics.json").read_text())
    assert record["history"]["loss"][-1] < record["history"]["loss"][0]
    assert record["metrics"]["seconds_a_step"] > 0 and record["metrics"]["peak_mib"] > 0
    assert record["parity"]["litert"]["max_difference"] < 1e-4
    rows = capsys.readouterr().out.strip().splitlines()[-3:]
    assert rows[0].startswith("| attention | validation_accuracy ")
    assert rows[2].startswith("| window | ")


@pytest.mark.long
def test_books_are_gone_on_with(tmp_path):
    text = "the quick brown fox jumps over the lazy dog\n" * 60
    (tmp_path / "book.txt").write_text(text)
    argv = f"--dataset text:{tmp_path / 'book.txt'} --attention blockwise --epochs 2"
    argv += f" --steps 60 --output-dir {tmp_path / 'out'} --learning-rate 1e-2 {TINY}"
    assert long_documents.main(argv.split()) == 0
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())["metrics"]
    assert metrics["validation_loss"] < metrics["baseline_unigram_loss"]


def test_each_attention_in_turn(tmp_path, monkeypatch):
    commands = []

    class Finished:
        returncode = 0

    def start(words):
        commands.append(words)
        return Finished()

    monkeypatch.setattr(long_documents.subprocess, "run", start)
    config = flags.configure(
        long_documents.Config, {}, attention="dense,mamba", output_dir=str(tmp_path)
    )
    long_documents.run(config)
    assert [c[c.index("--attention") + 1] for c in commands] == ["dense", "mamba"]
    assert [c[c.index("--output-dir") + 1] for c in commands] == [
        str(tmp_path / name) for name in ("dense", "mamba")
    ]


def test_pages_speak_of_one_class_most():
    texts, labels = ["a", "b", "c", "d"], np.array([0, 1, 0, 1])
    made, classes = long_documents.pages(texts, labels, 1, 7, seed=0)
    assert sorted(classes) == [0, 0, 0, 0, 1, 1, 1]
    assert all(page in ("ac", "bd")[label] for page, label in zip(made, classes))
    made, _ = long_documents.pages(texts, labels, 20, 50, seed=0)
    assert {len(page.split("\n")) for page in made} == {20}
    assert {text for page in made for text in page.split("\n")} == set(texts)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_name_makes_an_attention(name):
    attention = ATTENTIONS[name](2, 32, 4)
    x = np.random.default_rng(0).normal(size=(1, 32, 8)).astype("float32")
    assert tuple(attention(x).shape) == (1, 32, 8)
    if name in CAUSAL:
        before = np.array(attention(x, use_causal_mask=True))[:, :20]
        x[:, 20:] = 1.0
        after = np.array(attention(x, use_causal_mask=True))[:, :20]
        np.testing.assert_allclose(before, after, atol=1e-5)


def test_refused(capsys):
    assert long_documents.main(["--attention", "window,fast"]) == 2
    assert "--attention must be of dense, " in capsys.readouterr().err
    argv = ["--attention", "linformer", "--dataset", "gutenberg_books"]
    assert long_documents.main(argv) == 2
    assert "for gutenberg_books, got 'linformer'" in capsys.readouterr().err
