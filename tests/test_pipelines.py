"""Text pipelines: exact batches, labels, padding, and what is cut."""

import numpy as np
import pytest

from keras_tfm.data import (
    byte_tokenizer,
    classification_dataset,
    count_cut_texts,
    encode,
    encode_for_classification,
    encode_for_translation,
    language_model_dataset,
    load_text,
    load_text_classification,
    load_translation,
    random_windows_dataset,
    train_characters,
    train_sentencepiece,
    train_wordpiece,
    translation_dataset,
)

pytestmark = pytest.mark.tensorflow

WORDS = ["red green blue", "red", "", "green green green green green green green"]
LABELS = np.array([0, 1, 1, 0])


@pytest.fixture(scope="module")
def wordpiece():
    return train_wordpiece(["red green blue"] * 9, 60)


@pytest.fixture(scope="module")
def joint():
    return train_sentencepiece(["one two three", "eins zwei drei"] * 9, 60)


def test_classification_values(wordpiece):
    red, green, blue = (encode(wordpiece, [w])[0].tolist() for w in WORDS[0].split())
    assert [len(red), len(green), len(blue)] == [1, 1, 1]
    (features, labels), *rest = classification_dataset(
        WORDS, LABELS, wordpiece, max_length=6, batch_size=4
    )
    assert not rest
    assert features["token_ids"].numpy().tolist() == [
        [2, *red, *green, *blue, 3, 0],
        [2, *red, 3, 0, 0, 0],
        [2, 3, 0, 0, 0, 0],  # an empty text: special tokens only
        [2, *green, *green, *green, *green, 3],  # cut, and ends as it should
    ]
    mask = features["padding_mask"].numpy()
    assert mask.dtype == bool and mask.sum(axis=1).tolist() == [5, 3, 2, 6]
    assert features["segment_ids"].numpy().sum() == 0
    np.testing.assert_array_equal(labels, LABELS)


def test_classification_of_pairs(wordpiece):
    pairs = [("red", "green blue"), ("red", "")]
    (features, _), *_ = classification_dataset(
        pairs, [0, 1], wordpiece, max_length=8, batch_size=2
    )
    rows, segments = encode_for_classification(pairs, wordpiece, 8)
    assert [len(row) for row in rows] == [6, 4]
    assert features["segment_ids"].numpy().tolist() == [
        [0, 0, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
    ]
    assert segments[0].tolist() == [0, 0, 0, 1, 1, 1]


def test_cut_texts_are_counted(wordpiece):
    assert count_cut_texts(WORDS, wordpiece, 6) == 1
    assert count_cut_texts(WORDS, wordpiece, 9) == 0
    assert count_cut_texts([("red", "green blue")], wordpiece, 5) == 1


def test_classification_training_covers_all(wordpiece):
    texts = [" ".join(["red"] * n) for n in range(1, 22)]
    labels = np.arange(1, 22)
    dataset = classification_dataset(
        texts, labels, wordpiece, 32, batch_size=4, training=True
    )
    assert dataset.cardinality() == 6
    for _ in range(2):
        lengths, seen = set(), []
        for features, classes in dataset:
            real = features["padding_mask"].numpy().sum(axis=1)
            np.testing.assert_array_equal(real, classes.numpy() + 2)
            lengths.add(features["token_ids"].shape[1])
            seen += classes.numpy().tolist()
        assert sorted(seen) == labels.tolist()
        assert lengths == {16, 24}
    assert next(iter(dataset))[0]["token_ids"].dtype == "int32"


def test_classification_trains_a_model(wordpiece):
    import keras

    dataset = classification_dataset(WORDS, LABELS, wordpiece, batch_size=2)
    inputs = {
        name: keras.Input((None,), dtype=dtype, name=name)
        for name, dtype in (
            ("token_ids", "int32"),
            ("segment_ids", "int32"),
            ("padding_mask", "bool"),
        )
    }
    x = keras.layers.Embedding(wordpiece.vocabulary_size(), 4)(inputs["token_ids"])
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    history = model.fit(dataset, epochs=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_language_model():
    dataset = language_model_dataset(np.arange(23), 4, batch_size=2)
    (x, y), *rest = dataset
    assert x.numpy().tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert y.numpy().tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert len(rest) == dataset.cardinality() - 1 == 2
    shuffled = language_model_dataset(np.arange(23), 4, 2, training=True)
    orders = [[r for x, _ in shuffled for r in x.numpy()[:, 0]] for _ in range(2)]
    assert orders[0] != orders[1] and sorted(orders[0]) == [0, 4, 8, 12, 16]


def test_random_windows():
    dataset = random_windows_dataset(np.arange(50), 6, batch_size=3, steps=20, seed=1)
    assert dataset.cardinality() == 20
    passes = [[x.numpy()[:, 0].tolist() for x, _ in dataset] for _ in range(2)]
    assert passes[0] != passes[1]
    starts = np.concatenate(passes).ravel()
    assert set(starts) <= set(range(44)) and len(set(starts)) > 30
    x, y = next(iter(dataset))
    assert tuple(x.shape) == (3, 6) and x.dtype == "int32"
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_array_equal(np.diff(x, axis=1), 1)
    again = random_windows_dataset(np.arange(50), 6, batch_size=3, steps=20, seed=1)
    assert [x.numpy()[:, 0].tolist() for x, _ in again] == passes[0]


def test_random_windows_reach_both_ends():
    dataset = random_windows_dataset(np.arange(4), 2, batch_size=8, steps=8)
    starts = {int(s) for x, _ in dataset for s in x[:, 0]}
    assert starts == {0, 1}


def test_text_shorter_than_a_window():
    for make in (language_model_dataset, random_windows_dataset):
        with pytest.raises(ValueError, match="one text of at least 9 tokens"):
            make(np.arange(8), 8)


def test_translation_values(joint):
    (features, labels), *_ = translation_dataset(
        ["one two", ""], ["zwei", "eins"], joint, max_length=8, batch_size=2
    )
    source, target = encode(joint, ["one two", "zwei"])
    assert features["source_token_ids"].numpy()[0].tolist() == pad([*source, 3])
    assert features["source_token_ids"].numpy()[1].tolist() == pad([3])
    assert features["target_token_ids"].numpy()[0].tolist() == pad([2, *target])
    assert labels.numpy()[0].tolist() == pad([*target, 3], -100)
    assert features["source_token_ids"].dtype == labels.dtype == "int32"


def pad(ids, value=0):
    return [int(i) for i in ids] + [value] * (8 - len(ids))


def test_translation_cuts_and_keeps_the_end(joint):
    long = " ".join(["one"] * 30)
    (features, labels), *_ = translation_dataset(
        [long], [long], joint, max_length=8, batch_size=2
    )
    assert features["source_token_ids"].numpy()[0, -1] == 3
    assert features["target_token_ids"].numpy()[0, 0] == 2
    assert labels.numpy()[0, -1] == 3
    np.testing.assert_array_equal(
        features["target_token_ids"].numpy()[0, 1:], labels.numpy()[0, :-1]
    )
    assert len(encode_for_translation([long], joint)[0]) > 8


def test_two_tokenizers(joint):
    other = train_sentencepiece(["eins zwei drei"] * 9, 30)
    (features, labels), *_ = translation_dataset(
        ["one"], ["drei"], joint, other, max_length=8
    )
    expected = [*encode(other, ["drei"])[0].tolist(), 3]
    assert labels.numpy()[0, : len(expected)].tolist() == expected


def test_translation_training_covers_all(joint):
    sources = [" ".join(["two"] * n) for n in range(1, 12)]
    dataset = translation_dataset(
        sources, sources[::-1], joint, batch_size=4, training=True
    )
    total = sum(x["source_token_ids"].shape[0] for x, _ in dataset)
    assert total == 11
    ends = sum(int((y.numpy() == 3).sum()) for _, y in dataset)
    assert ends == 11


def test_bad_arguments(wordpiece, joint):
    with pytest.raises(ValueError, match=r"`labels` must be as many .*\(4\), got 1"):
        classification_dataset(WORDS, [0], wordpiece)
    with pytest.raises(ValueError, match="at least one example, got none"):
        classification_dataset([], [], wordpiece)
    with pytest.raises(ValueError, match="`tokenizer` must have a token for start"):
        classification_dataset(WORDS, LABELS, byte_tokenizer())
    with pytest.raises(ValueError, match=r"`targets` must be as many .*\(1\), got 2"):
        translation_dataset(["a"], ["b", "c"], joint)
    with pytest.raises(ValueError, match="`tokenizer` must have a token for end"):
        encode_for_translation(["a"], train_characters("a"))


def test_real_reviews(tfds_dir, wordpiece):
    texts, labels, _ = load_text_classification(
        "glue/sst2", "validation[:64]", str(tfds_dir)
    )
    tokenizer = train_wordpiece(texts, 500)
    dataset = classification_dataset(texts, labels, tokenizer, 32, batch_size=16)
    classes = np.concatenate([y.numpy() for _, y in dataset])
    np.testing.assert_array_equal(classes, labels)
    for features, _ in dataset:
        ids, mask = features["token_ids"].numpy(), features["padding_mask"].numpy()
        assert (ids[:, 0] == 2).all() and ((ids != 0) == mask).all()
        assert ids.max() < tokenizer.vocabulary_size()


def test_real_translations(tfds_dir):
    pairs = load_translation("multi30k/en-de", "validation[:64]", str(tfds_dir))
    sources, targets = zip(*pairs)
    tokenizer = train_sentencepiece(sources + targets, 400, lowercase=True)
    dataset = translation_dataset(
        sources, targets, tokenizer, max_length=64, batch_size=16, training=True
    )
    for features, labels in dataset:
        target, labels = features["target_token_ids"].numpy(), labels.numpy()
        real = labels >= 0
        assert ((labels == 3).sum(axis=1) == 1).all()
        assert ((target != 0) == real).all()
        assert (labels[~real] == -100).all()


def test_real_text(tfds_dir):
    text = load_text("tiny_shakespeare", "validation", str(tfds_dir))
    tokenizer = train_characters(text)
    (token_ids,) = encode(tokenizer, [text])
    assert len(token_ids) == 55_770 and token_ids.min() >= 2
    x, y = next(iter(random_windows_dataset(token_ids, 64, 12)))
    first, second = tokenizer.detokenize(x[:1])[0], tokenizer.detokenize(y[:1])[0]
    assert first[1:] == second[:-1] and first in text
