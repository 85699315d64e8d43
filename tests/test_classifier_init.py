"""bert_classification from a checkpoint: pairs, adapters, strings with its own ids."""

import json

import numpy as np
import pytest

from keras_tfm import checkpoints, data, export, models, training
from recipes import bert_classification, classifiers, flags

pytestmark = pytest.mark.tensorflow

WORDS = "the quick brown fox jumps over a lazy dog and then it runs away".split()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder in the reference library's layout, with random weights."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = data.train_wordpiece([" ".join([*WORDS, "bad good"])] * 3, 120)
    backbone = models.Bert(
        tokenizer.vocabulary_size(), 2, 2, 16, 32, max_sequence_length=24
    )
    checkpoints.save_pretrained(backbone, folder)
    (folder / "vocab.txt").write_text("\n".join(tokenizer.get_vocabulary()))
    return folder


def reviews(path, count=80):
    rng = np.random.default_rng(0)
    lines = ["label,text"]
    for number in range(count):
        words = list(rng.choice(WORDS, 4 + number % 9))
        words[number % 4] = ("bad", "good")[number % 2]
        lines.append(f"{number % 2},{' '.join(words)}")
    path.write_text("\n".join(lines))
    return f"csv:{path}"


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 2])
def test_fine_tuned(rank, checkpoint, tmp_path, capsys):
    out = tmp_path / "out"
    argv = f"--dataset {reviews(tmp_path / 'x.csv')} --init {checkpoint} --epochs 12"
    argv += f" --max-length 24 --learning-rate 2e-2 --lora {rank} --output-dir {out}"
    assert bert_classification.main([*argv.split(), "--dropout", "0.0"]) == 0
    record = json.loads((out / "metrics.json").read_text())
    loss = record["history"]["loss"]
    assert loss[-1] < (0.98 if rank else 0.2) * loss[0]  # a frozen random base
    assert record["parity"]["saved_model"]["max_difference"] < 1e-5
    texts = ["the good fox runs over a dog", "the bad fox runs over a dog"]
    strings = {"text": np.array(texts, object)}
    answers = export.run_file(out / "saved_model", strings, "predict_text")
    assert rank or list(answers["label"]) == [b"1", b"0"]
    tokenizer = checkpoints.load_tokenizer(out)
    inputs = classifiers.text_reader(tokenizer, 24)(np.array(texts, object))
    inputs = {name: value.numpy() for name, value in inputs.items()}
    logits = export.run_file(out / "saved_model", inputs)["logits"]
    shares = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)
    np.testing.assert_allclose(answers["probabilities"], shares, atol=1e-5)
    if not rank:
        return
    # The adapters on the checkpoint again: the same model.
    assert 0 < record["metrics"]["trained_percent"] < 20
    assert "parameters are trained" in capsys.readouterr().out
    base = checkpoints.load_pretrained(checkpoint, task="backbone")
    again = models.classifier(base, 2, pooling="mean")
    training.load_lora(again, out / "adapters.npz", verbose=False)
    np.testing.assert_allclose(again.predict(inputs, verbose=0), logits, atol=1e-4)


def test_presets_of_pretrained_models():
    def configure(**given):
        recipe = bert_classification
        return flags.configure(recipe.Config, recipe.PRESETS, **given)

    small = configure(dataset="glue/sst2")
    full = configure(dataset="glue/sst2", init="folder")
    lora = configure(dataset="glue/sst2", init="folder", lora=8)
    assert small.drop_words == 0.4 and small.learning_rate == 5e-4
    assert (full.drop_words, full.ema, full.learning_rate) == (0.15, 0.998, 1e-4)
    assert lora.learning_rate == 1e-3
    assert (lora.epochs, lora.ema) == (full.epochs, full.ema)
    other = configure(dataset="imdb_reviews", init="folder", epochs=9)
    assert (other.split, other.learning_rate, other.epochs) == ("test", 5e-5, 9)
    assert (other.drop_words, other.ema) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["glue/mrpc", "glue/rte"])
def test_sentence_pairs(name, tfds_dir, checkpoint):
    recipe = bert_classification
    config = flags.configure(
        recipe.Config, recipe.PRESETS,
        dataset=name, data_dir=str(tfds_dir), init=str(checkpoint), examples=40,
        max_length=24,
    )  # fmt: skip
    (texts, labels), (held_out, truth), names = recipe.load(config)
    assert len(texts) == len(labels) == 40 and len(names) == 2
    assert len(held_out) == len(truth) == {"glue/mrpc": 408, "glue/rte": 277}[name]
    assert all(len(pair) == 2 for pair in texts)
    tokenizer = checkpoints.load_tokenizer(checkpoint)
    dataset = data.classification_dataset(texts[:8], labels[:8], tokenizer, 24)
    features = {k: v.numpy() for k, v in next(iter(dataset))[0].items()}
    assert set(features["segment_ids"][0]) == {0, 1}
    strings = np.array([recipe.as_line(pair) for pair in texts[:8]], object)
    read = classifiers.text_reader(tokenizer, 24, pairs=True)(strings)
    for key, value in features.items():
        np.testing.assert_array_equal(read[key], value)


@pytest.mark.parametrize(
    "length", [4, 9, *(pytest.param(n, marks=pytest.mark.long) for n in (7, 8, 30))]
)
def test_strings_and_data_sets_give_the_same_ids(length):
    tokenizer = data.train_wordpiece([" ".join(WORDS)] * 3, 200)
    rng = np.random.default_rng(0)
    first, second = (
        [" ".join(rng.choice(WORDS, n)) for n in order]
        for order in (np.repeat(range(9), 8), np.tile(range(1, 9), 9))
    )
    strings = [f"{a}\t{b}" for a, b in zip(first, second)]
    for texts, pairs in ((list(zip(first, second)), True), (strings, False)):
        dataset = data.classification_dataset(texts, [0] * 72, tokenizer, length, 72)
        features, _ = next(iter(dataset))
        read = classifiers.text_reader(tokenizer, length, pairs)
        for key, value in read(np.array(strings, object)).items():
            width = value.shape[1]
            np.testing.assert_array_equal(features[key][:, :width], value)
            assert not np.any(features["padding_mask"][:, width:])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--init no_such_folder", "no_such_folder"),
        ("--init {checkpoint} --max-length 64", "--max-length may be 24 at most"),
        ("--init {checkpoint} --max-length 24 --lora 99", "`rank` must be an int from"),
        ("--init {checkpoint} --max-length 24 --lora 2 --lora-targets x", "called 'x'"),
    ],
)
def test_wrong_settings_end_in_one_line(argv, words, checkpoint, tmp_path, capsys):
    source = reviews(tmp_path / "x.csv")
    argv = f"{argv.format(checkpoint=checkpoint)} --dataset {source}".split()
    code = bert_classification.main([*argv, "--output-dir", str(tmp_path / "out")])
    error = capsys.readouterr().err.strip()
    assert code == 2 and words in error and len(error.splitlines()) == 1
