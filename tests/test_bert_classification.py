"""The text recipe on slices of real texts: trains, exports, speaks clearly."""

import json
import re

import keras
import numpy as np
import pytest

from keras_tfm import data, export
from recipes import bert_classification, flags

pytestmark = pytest.mark.tensorflow

TINY = {
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "vocabulary_size": 600,
    "max_length": 24,
    "batch_size": 32,
    "jit": "off",
}


def configure(**given):
    recipe = bert_classification
    return flags.configure(recipe.Config, recipe.PRESETS, **{**TINY, **given})


def reviews(path, count=80):
    """Two classes that one word tells apart, in sentences of many lengths."""
    rng = np.random.default_rng(0)
    lines = ["stars,review"]
    for number in range(count):
        words = rng.choice(["the", "film", "was", "so", "very", "long"], 4 + number % 9)
        words[number % 4] = ("bad", "good")[number % 2]
        lines.append(f"{1 + number % 2},{' '.join(words)}")
    path.write_text("\n".join(lines))
    return f"csv:{path}"


def test_python_docs(tmp_path):
    config = configure(
        output_dir=str(tmp_path),
        examples=600,
        epochs=8,
        hidden_dim=64,
        drop_words=0.0,
        dropout=0.0,
        learning_rate=3e-3,
    )
    metrics = bert_classification.run(config)
    record = json.loads((tmp_path / "metrics.json").read_text())
    loss = record["history"]["loss"]
    assert loss[-1] < 0.8 * loss[0]
    assert metrics["validation_accuracy"] > metrics["baseline_majority_class"] + 0.1
    assert record["config"]["examples"] == 600
    assert "examples 600" in record["command"]
    for name in ("attention.png", "curves.png", "README.md"):
        assert (tmp_path / name).stat().st_size > 500


@pytest.mark.long
def test_csv_from_strings_to_labels(tmp_path, capsys):
    config = configure(
        dataset=reviews(tmp_path / "reviews.csv"),
        text_column="review",
        label_column="stars",
        output_dir=str(tmp_path / "out"),
        epochs=12,
        learning_rate=2e-2,
        drop_words=0.0,
        dropout=0.0,
        label_smoothing=0.0,
    )
    metrics = bert_classification.run(config)
    assert metrics["validation_accuracy"] == 1.0
    assert metrics["baseline_majority_class"] == 0.5
    printed = capsys.readouterr().out
    assert "0 of 72 texts are longer than 24 tokens." in printed
    assert len(re.findall(r"\d+% sure\), right", printed)) == 6

    # Strings in, labels out, from the folder alone.
    out = tmp_path / "out"
    texts = ["the film was good", "so so so bad", "very long good film was the film"]
    answers = export.run_file(
        out / "saved_model", {"text": np.array(texts, object)}, "predict_text"
    )
    assert list(answers["label"]) == [b"2", b"1", b"2"]
    # The same from ids, by the tokenizer's file and LiteRT.
    tokenizer = data.load_tokenizer(out / "tokenizer.json")
    features, _ = next(
        iter(data.classification_dataset(texts, [0, 0, 0], tokenizer, 24))
    )
    inputs = {name: np.array(value) for name, value in features.items()}
    logits = export.run_file(out / "model.tflite", inputs)["logits"]
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    np.testing.assert_allclose(answers["probabilities"], probabilities, atol=1e-5)
    model = keras.models.load_model(out / "model.keras")
    np.testing.assert_allclose(model.predict(inputs, verbose=0), logits, atol=1e-4)


def test_slice_of_sst2(tfds_dir):
    config = configure(dataset="glue/sst2", data_dir=str(tfds_dir), examples=500)
    (texts, labels), (held_out, truth), names = bert_classification.load(config)
    assert len(texts) == len(labels) == 500 and len(held_out) == len(truth) == 872
    assert names == ["negative", "positive"] and set(labels) == {0, 1}
    assert data.majority_baseline(labels, truth) == pytest.approx(0.509, abs=1e-3)
    assert config.drop_words == 0.4  # the preset's


def test_imdb_is_evaluated_on_its_test_split(tfds_dir):
    config = configure(dataset="imdb_reviews", data_dir=str(tfds_dir), examples=50)
    assert config.split == "test"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--dataset no_such_set", "no_such_set"),
        ("--dataset csv:no.csv", "no.csv cannot be read: No such file"),
        ("--dataset csv:{csv} --text-column words", "has no column 'words', found:"),
        ("--dataset csv:{empty}", "is empty"),
        ("--num-heads 3 --examples 40", "num_heads"),
        ("--vocabulary-size 3 --examples 40", "`vocabulary_size` must be above"),
        ("--max-length 1 --examples 40", "length"),
    ],
)
def test_wrong_settings_end_in_one_line(argv, words, tmp_path, capsys):
    reviews(tmp_path / "x.csv")
    (tmp_path / "empty.csv").write_text("\n")
    argv = argv.format(csv=tmp_path / "x.csv", empty=tmp_path / "empty.csv").split()
    code = bert_classification.main([*argv, "--output-dir", str(tmp_path / "out")])
    error = capsys.readouterr().err.strip()
    assert code == 2 and words in error and len(error.splitlines()) == 1


def test_empty_and_overlong_texts_are_taken(tmp_path):
    path = tmp_path / "x.csv"
    reviews(path, 40)
    with open(path, "a") as file:
        file.write("\n1,\n2," + "word " * 500)
    config = configure(
        dataset=f"csv:{path}",
        text_column="review",
        label_column="stars",
        output_dir=str(tmp_path / "out"),
        epochs=1,
    )
    (texts, _), (held_out, _), _ = bert_classification.load(config)
    texts = [*texts, *held_out]
    assert "" in texts and max(map(len, texts)) > 2000
    tokenizer = data.train_wordpiece(texts, config.vocabulary_size)
    model = bert_classification.build(config, tokenizer.vocabulary_size(), 2)
    rows = data.classification_dataset(texts, [0] * len(texts), tokenizer, 24)
    assert np.isfinite(model.predict(rows, verbose=0)).all()
