"""Standard sets through `tfds.load`: real slices, and the lines mistakes end in."""

import numpy as np
import pytest

from keras_tfm.data import (
    DataError,
    load_images,
    load_pair_classification,
    load_text,
    load_text_classification,
    load_tfds,
    load_translation,
    tfds_sets,
)

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def folder(tfds_dir):
    return str(tfds_dir)


@pytest.fixture
def no_network(monkeypatch):
    """No host has an address, and a download fails the test."""

    def fail(*args, **kwargs):
        raise OSError("Name or service not known")

    monkeypatch.setattr(tfds_sets.socket, "getaddrinfo", fail)
    monkeypatch.setattr(tfds_sets.urllib.request, "getproxies", dict)


def one_line(match):
    return pytest.raises(DataError, match=rf"\A[^\n]*{match}[^\n]*\Z")


def test_text_classification(folder):
    texts, labels, names = load_text_classification(
        "glue/sst2", "validation[:3]", folder
    )
    assert texts[0] == "a valueless kiddie paean to pro basketball underwritten by " + (
        "the nba . "
    )
    assert labels.tolist() == [0, 1, 0] and labels.dtype == np.int32
    assert names == ["negative", "positive"]
    texts, labels, _ = load_text_classification("imdb_reviews", "test[:2]", folder)
    assert len(texts) == 2 and all(len(text) > 100 for text in texts)


def test_pair_classification(folder):
    pairs, labels, names = load_pair_classification("glue/rte", "train[:4]", folder)
    assert len(pairs) == len(labels) == 4
    assert all(isinstance(s, str) for pair in pairs for s in pair)
    assert names == ["entailment", "not_entailment"]


def test_translation(folder):
    pairs = load_translation("multi30k/en-de", "validation[:1]", folder)
    assert pairs == [
        (
            "A man stands in a mobile food stand, looking out the half-door.",
            "Ein Mann steht in einem mobilen Essensstand und blickt über die halbhohe "
            "Tür.",
        )
    ]
    assert len(load_translation("tatoeba_en_zh", "test[:5]", folder)) == 5
    source, target = load_translation("tatoeba/tatoeba_de", "train[:1]", folder)[0]
    assert source == "Warum ist das Leben so voll mit Leiden?"
    assert target == "Why is life so full of suffering?"  # TFDS keeps a line feed


def test_text(folder):
    text = load_text("tiny_shakespeare", "validation", folder)
    assert len(text) == 55_770
    assert load_text("gutenberg_books", "test", folder).count("Manette") > 100


def test_images(folder):
    images, labels, names = load_images("cifar10", "test[:3]", folder)
    assert images.shape == (3, 32, 32, 3) and images.dtype == np.uint8
    assert len(names) == 10 and names[labels[0]] in names


def test_other_options_go_to_tfds(folder):
    dataset = load_tfds("glue/cola", "train[:2]", folder, as_supervised=False)
    assert set(dataset.element_spec) == {"idx", "label", "sentence"}


def test_unlabelled_split_and_wrong_kind(folder):
    with one_line("The split 'test' of 'glue/cola' has no labels"):
        load_text_classification("glue/cola", "test", folder)
    with one_line("'glue/stsb' has no feature 'label' with classes"):
        load_pair_classification("glue/stsb", "train[:2]", folder)
    with one_line("'glue/rte' has the text features .* expected 1 of them"):
        load_text_classification("glue/rte", "train[:2]", folder)
    with one_line("'glue/cola' is not a set of labelled images"):
        load_images("glue/cola", "train[:2]", folder)


def test_unknown_names(folder):
    with one_line("Unknown data set 'tiny_shakspeare' .near names: tiny_shakespeare"):
        load_text("tiny_shakspeare", "train", folder)
    with one_line("Unknown data set 'qqqqqqqq' .no near name"):
        load_text("qqqqqqqq", "train", folder)
    with one_line("Data set 'glue' has no configuration 'sst3'"):
        load_text_classification("glue/sst3", "train", folder)
    with one_line("'glue/sst2' has no split 'dev'. Should be one of .'train'"):
        load_text_classification("glue/sst2", "dev", folder)


def test_near_names_without_a_folder():
    with one_line("Unknown data set 'cifar11' .near names: .*cifar10"):
        load_images("cifar11", "train")


def test_no_copy_and_no_network(no_network, tmp_path, caplog):
    with one_line("'mnist' has no local copy in .*, and there is no network"):
        load_images("mnist", "train", str(tmp_path))
    with one_line("'mnist' has no local copy in .*[.]"):
        load_tfds("mnist", "train", str(tmp_path), download=False)
    assert not list(tmp_path.iterdir())
    assert not caplog.records  # TFDS's own warning is held back


def test_data_dir_is_missing(tmp_path):
    with one_line("`data_dir` .*nowhere is not a folder"):
        load_tfds("mnist", "train", str(tmp_path / "nowhere"))


def test_failed_download_is_one_line(monkeypatch, tmp_path):
    import tensorflow_datasets as tfds

    def load(name, download, **options):
        if not download:
            raise AssertionError("no data")
        raise OSError("No space left\non the device")

    monkeypatch.setattr(tfds, "load", load)
    monkeypatch.setattr(tfds_sets, "_has_network", lambda *_: True)
    with one_line("'mnist' has no local copy .* cannot be downloaded: No space left"):
        load_tfds("mnist", "train", str(tmp_path))


def test_broken_copy(folder, tmp_path):
    import pathlib
    import shutil

    source = pathlib.Path(folder) / "glue" / "wnli"
    shutil.copytree(source, tmp_path / "glue" / "wnli", copy_function=shutil.copyfile)
    record = next((tmp_path / "glue" / "wnli").rglob("*-validation.tfrecord*"))
    record.write_bytes(record.read_bytes()[:-30])
    with one_line("'glue/wnli' cannot be read"):
        load_pair_classification("glue/wnli", "validation", str(tmp_path))
