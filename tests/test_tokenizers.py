"""Trained tokenizers: ids, special tokens, and the graph giving the same ids."""

import numpy as np
import pytest

from keras_tfm.data import (
    CharacterTokenizer,
    DataError,
    byte_tokenizer,
    decode,
    encode,
    load_tokenizer,
    save_tokenizer,
    special_ids,
    train_byte_pair,
    train_characters,
    train_sentencepiece,
    train_wordpiece,
)

pytestmark = pytest.mark.tensorflow

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A lazy dog sleeps; the fox, quick and brown, does not!",
    "Numbers such as 12345 and 2024 (see 'quotes', it's and don't) come too.",
    "Straße, café, naïve and 日本語 test what is not plain English.",
] * 4
MAKERS = {
    "wordpiece": lambda: train_wordpiece(TEXTS, 200),
    "byte_pair": lambda: train_byte_pair(TEXTS, 300),
    "sentencepiece": lambda: train_sentencepiece(TEXTS, 100),
    "sentencepiece_bpe": lambda: train_sentencepiece(TEXTS, 120, kind="bpe"),
    "byte": byte_tokenizer,
    "character": lambda: train_characters(TEXTS),
}
SPECIAL = {
    "wordpiece": {"pad": 0, "unknown": 1, "start": 2, "end": 3, "mask": 4},
    "byte_pair": {"pad": 0, "unknown": None, "start": 1, "end": 2, "mask": None},
    "sentencepiece": {"pad": 0, "unknown": 1, "start": 2, "end": 3, "mask": None},
    "byte": {"pad": 0, "unknown": None, "start": None, "end": None, "mask": None},
    "character": {"pad": 0, "unknown": 1, "start": None, "end": None, "mask": None},
}


@pytest.fixture(scope="module", params=list(MAKERS))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return MAKERS[kind]()


def test_special_ids(kind, tokenizer):
    assert special_ids(tokenizer) == SPECIAL[kind.removesuffix("_bpe")]


def test_ids_are_in_the_vocabulary(tokenizer):
    for row in encode(tokenizer, TEXTS):
        assert row.dtype == np.int32
        assert row.min() >= 1 and row.max() < tokenizer.vocabulary_size()


def test_round_trip(kind, tokenizer):
    expected = TEXTS
    if kind == "wordpiece":  # lowercased, spaces around punctuation
        expected = [t.casefold().replace(" ", "") for t in TEXTS]
    texts = decode(tokenizer, encode(tokenizer, TEXTS))
    if kind == "wordpiece":
        texts = [t.replace(" ", "") for t in texts]
    assert texts == expected


def test_empty_and_blank_texts(kind, tokenizer):  # FAULTS O49
    empty, blank = encode(tokenizer, ["", " "])
    assert empty.shape == (0,) and empty.dtype == np.int32
    assert len(blank) == (kind in ("byte_pair", "byte", "character"))
    assert encode(tokenizer, []) == []
    assert decode(tokenizer, [[], [0, 0]]) == ["", ""]


def test_special_tokens_never_come_out_of_a_text(tokenizer):
    ids = {i for role, i in special_ids(tokenizer).items() if role != "unknown"}
    text = "[PAD] [CLS] [SEP] [MASK] <pad> <s> </s> [CLS]a</s>b<s>"
    assert not ids & set(encode(tokenizer, [text])[0].tolist())


def test_unknown_characters(kind, tokenizer):
    row = encode(tokenizer, ["fox Ω"])[0].tolist()
    unknown = special_ids(tokenizer)["unknown"]
    assert (unknown in row) == (kind not in ("byte", "byte_pair"))


def test_graph_gives_the_same_ids(kind):  # FAULTS O49
    import tensorflow as tf

    tokenizer = MAKERS[kind]()  # after the seed: setting one clears TensorFlow's caches
    texts = [*TEXTS[:4], "", " ", "('spam' 1234567) fox's", "ΩΩ"]
    graph = tf.function(tokenizer, input_signature=[tf.TensorSpec([None], "string")])
    rows = graph(tf.constant(texts)).to_list()
    assert rows == [row.tolist() for row in encode(tokenizer, texts)]
    assert graph(tf.constant([""])).to_list() == [[]]
    assert graph(tf.constant([], "string")).to_list() == []


def test_saved_and_loaded(kind, tokenizer, tmp_path):
    path = str(tmp_path / "tokenizer.json")
    save_tokenizer(tokenizer, path)
    loaded = load_tokenizer(path)
    assert type(loaded) is type(tokenizer)
    assert loaded.vocabulary_size() == tokenizer.vocabulary_size()
    for a, b in zip(tokenizer(TEXTS), loaded(TEXTS)):
        np.testing.assert_array_equal(a, b)
    assert special_ids(loaded) == special_ids(tokenizer)


def test_same_texts_same_vocabulary(kind, tokenizer):
    again = MAKERS[kind]()
    assert list(again.get_vocabulary()) == list(tokenizer.get_vocabulary())


def test_wordpiece_values():
    tokenizer = train_wordpiece(["low lower lowest"] * 9, 30)
    vocabulary = list(tokenizer.get_vocabulary())
    assert vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(vocabulary) <= 30
    tokens = [vocabulary[i] for i in encode(tokenizer, ["Lower"])[0]]
    assert "".join(t.removeprefix("##") for t in tokens) == "lower"
    assert tokens[0] == "low" or len(tokens) == 1
    cased = train_wordpiece(["Low low"] * 9, 30, lowercase=False)
    a, b = encode(cased, ["Low", "low"])
    assert a.tolist() != b.tolist()


def test_byte_pair_knows_every_byte():
    tokenizer = train_byte_pair(["aaaa"] * 9, 262)
    assert tokenizer.vocabulary_size() <= 262
    text = "äöü \t\n€ 日本 \U0001f600"
    assert decode(tokenizer, tokenizer([text])) == [text]


def test_sentencepiece_options():
    digits = train_sentencepiece(["12 12 12 1 2"] * 9, 20)
    assert all(
        len(piece.strip("\u2581")) <= 1 for piece in list(digits.get_vocabulary())[4:]
    )
    folded = train_sentencepiece(["Big big BIG"] * 9, 20, lowercase=True)
    assert decode(folded, encode(folded, ["BIG"])) == ["big"]


def test_decode_cuts_at_the_first_end():
    tokenizer = train_wordpiece(TEXTS, 200)
    fox, dog = (int(encode(tokenizer, [w])[0][0]) for w in ("fox", "dog"))
    assert decode(tokenizer, [[2, fox, 3, dog, 3, 0]]) == [
        decode(tokenizer, [[fox]])[0]
    ]
    assert decode(tokenizer, np.array([[2, 3, dog, 0]])) == [""]
    assert decode(tokenizer, [[4, fox, 0, 0]]) == decode(tokenizer, [[fox]])


def test_bad_arguments():
    for train in (train_wordpiece, train_byte_pair, train_sentencepiece):
        with pytest.raises(DataError, match="no text to learn a vocabulary from"):
            train(["", " "], 300)
    with pytest.raises(ValueError, match="`vocabulary_size` must be above 5, got 5"):
        train_wordpiece(TEXTS, 5)
    with pytest.raises(ValueError, match="`vocabulary_size` must be above 259, got 99"):
        train_byte_pair(TEXTS, 99)
    with pytest.raises(ValueError, match='`kind` must be "unigram" or "bpe", got'):
        train_sentencepiece(TEXTS, 100, kind="word")
    with pytest.raises(DataError, match=r"\ANo 10 sub-words can be learned [^\n]*\Z"):
        train_sentencepiece(TEXTS, 10)


def test_token_names_in_characters():
    with pytest.raises(ValueError, match="must be .* then single characters"):
        CharacterTokenizer(["[PAD]", "[UNK]", "ab"])
