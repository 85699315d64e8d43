"""The character tokenizer: values, graphs, and a SavedModel for plain TensorFlow."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_tfm.data import CharacterTokenizer, DataError, train_characters

pytestmark = pytest.mark.tensorflow

VOCABULARY = ["[PAD]", "[UNK]", " ", "a", "b", "é", "日"]


@pytest.fixture
def tokenizer():
    return CharacterTokenizer(VOCABULARY)


def test_values(tokenizer):
    assert tokenizer(["ab", "", "é日x a"]).to_list() == [[3, 4], [], [5, 6, 1, 2, 3]]
    assert np.array(tokenizer("ba")).tolist() == [4, 3]  # scalar in, rank 1 out
    assert tokenizer.vocabulary_size() == 7
    assert tokenizer.token_to_id("é") == 5 and tokenizer.id_to_token(6) == "日"
    assert tokenizer.get_vocabulary() == VOCABULARY


def test_encode_is_the_call(tokenizer):
    texts = ["ab", "", "é日x a", "\U0001f600b"]
    rows = [row.tolist() for row in tokenizer.encode(texts)]
    assert rows == tokenizer(texts).to_list()
    assert all(row.dtype == np.int32 for row in tokenizer.encode(texts))


def test_detokenize(tokenizer):
    import tensorflow as tf

    assert tokenizer.detokenize([[3, 1, 4, 0, 0], []]) == ["ab", ""]
    assert tokenizer.detokenize(np.array([[5, 6]])) == ["é日"]
    assert tokenizer.detokenize(tf.constant([[5, 6]])) == ["é日"]
    graph = tf.function(tokenizer.detokenize)
    assert graph(tf.constant([[3, 4, 0]])).numpy().tolist() == [b"ab"]


def test_special_names_are_no_text(tokenizer):
    assert tokenizer(["[PAD]"]).to_list() == [[1, 1, 1, 1, 1]]


def test_collected_characters():
    assert train_characters("bab\n").get_vocabulary() == [
        "[PAD]",
        "[UNK]",
        "\n",
        "a",
    ] + ["b"]
    assert train_characters(["b", "", "é"]).get_vocabulary()[2:] == ["b", "é"]
    with pytest.raises(DataError, match="no text to learn a vocabulary from"):
        train_characters(["", ""])


def test_config_round_trip(tokenizer):
    clone = CharacterTokenizer.from_config(tokenizer.get_config())
    assert clone(["ab日"]).to_list() == tokenizer(["ab日"]).to_list()
    stored = keras.saving.serialize_keras_object(tokenizer)
    loaded = keras.saving.deserialize_keras_object(stored)
    assert loaded.get_vocabulary() == VOCABULARY


def test_in_a_pipeline(tokenizer):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(["ab", "b"]).batch(2).map(tokenizer)
    assert next(iter(dataset)).to_list() == [[3, 4], [4]]


def test_saved_model_in_plain_tensorflow(tokenizer, tmp_path):  # FAULTS O49
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], "string")])
    def serve(texts):
        ids = tokenizer(texts).to_tensor()
        return {"ids": ids, "texts": tokenizer.detokenize(ids)}

    module = tf.Module()
    module.tokenizer, module.serve = tokenizer, serve
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=serve)
    moved = (tmp_path / "saved").rename(tmp_path / "moved")
    code = f"""
import sys, tensorflow as tf
serve = tf.saved_model.load({str(moved)!r}).signatures["serving_default"]
out = serve(texts=tf.constant(["ab", "", " ", "xé"]))
print(out["ids"].numpy().tolist(), [t.decode() for t in out["texts"].numpy()])
print(serve(texts=tf.constant([], "string"))["ids"].shape[0])
print({{"keras_hub", "tensorflow_text", "keras_tfm"}} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines() == [
        "[[3, 4], [0, 0], [2, 0], [1, 5]] ['ab', '', ' ', 'é']",
        "0",
        "set()",
    ], done.stderr[-2000:]


def test_bad_vocabulary(tokenizer):
    for vocabulary in (["a"], ["[PAD]", "[UNK]", "ab"], ["[PAD]", "[UNK]"]):
        with pytest.raises(ValueError, match="`vocabulary` must be .* single char"):
            CharacterTokenizer(vocabulary)
    with pytest.raises(ValueError, match="must not hold a character twice"):
        CharacterTokenizer(["[PAD]", "[UNK]", "a", "a"])
    with pytest.raises(ValueError, match="Token 'x' is not in the vocabulary"):
        tokenizer.token_to_id("x")
    with pytest.raises(ValueError, match=r"`token_id` must be in \[0, 7\), got 7"):
        tokenizer.id_to_token(7)
