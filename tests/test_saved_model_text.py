"""SavedModels that take strings: tokenizers inside the graph, labels out."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

from keras_tfm import data, models
from keras_tfm.export import run_file, to_saved_model
from tests import export_models
from tests.export_models import CLASSES, feed

pytestmark = pytest.mark.tensorflow
WORDS = ["[PAD]", "[UNK]", "[START]", "[END]", "the", "qu", "##ick", "fox", "un", "##s"]
TEXTS = ["the quick fox", "", " ", "zebra foxs 東", "The QUICK the fox the fox the fox"]
LENGTH = 6
READ_TEXT = """
import sys
sys.modules["keras_tfm"] = sys.modules["keras_hub"] = None  # not to be found
import numpy as np
import tensorflow as tf
if sys.argv[4] == "tensorflow_text":
    import tensorflow_text
signature = tf.saved_model.load(sys.argv[1]).signatures["predict_text"]
texts = np.load(sys.argv[2])["text"]
outputs = signature(text=tf.constant([text.encode("utf-8") for text in texts]))
np.savez(sys.argv[3], **{k: v.numpy().astype("S9") if v.dtype == tf.string else v
                         for k, v in outputs.items()})
"""


def text_classifier(vocabulary_size):
    backbone = models.Bert(
        vocabulary_size, max_sequence_length=8, **export_models.SIZES
    )
    return models.classifier(backbone, CLASSES)


def with_ids(tokenizer):
    """A preprocess function that holds its tokenizer in a closure only."""
    import tensorflow as tf

    def preprocess(text):
        ids = tokenizer(text)
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(0, shape=(None, LENGTH))
        ids = tf.cast(ids, "int32")
        start = tf.fill([tf.shape(ids)[0], 1], 2)
        ids = tf.concat([start, ids], axis=1)
        return {
            "token_ids": ids,
            "segment_ids": tf.zeros_like(ids),
            "padding_mask": ids > 0,
        }

    return preprocess


def label(logits):
    import tensorflow as tf

    names = tf.constant(["good", "bad", "ugly"])
    best = tf.argmax(logits, axis=-1)
    probability = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
    return {"label": tf.gather(names, best), "probability": probability}


def wordpiece():
    import keras_hub

    return keras_hub.tokenizers.WordPieceTokenizer(
        vocabulary=WORDS, lowercase=True, sequence_length=LENGTH
    )


def read_text(folder, texts, needs, tmp_path):
    """Run "predict_text" in a process with TensorFlow and perhaps tensorflow_text."""
    given, made = tmp_path / "given.npz", tmp_path / "made.npz"
    np.savez(given, text=np.array(texts, "U40"))
    return subprocess.run(
        [sys.executable, "-c", READ_TEXT, folder, given, made, needs],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ), made


def test_wordpiece_in_the_graph(tmp_path):  # FAULTS O49
    import tensorflow as tf

    tokenizer = wordpiece()
    preprocess = with_ids(tokenizer)
    model = text_classifier(len(WORDS))
    to_saved_model(model, tmp_path / "made", preprocess, label)
    folder = tmp_path / "else" / "where"
    folder.parent.mkdir()
    (tmp_path / "made").rename(folder)
    text = (folder / "README.md").read_text("utf-8")
    assert "must `import tensorflow_text`" in text
    assert "| predict_text | input | text | string | (None,) |" in text
    assert "| predict_text | output | label | string | (None,) |" in text

    ids = preprocess(tf.constant(TEXTS))["token_ids"].numpy()
    assert ids.tolist() == [
        [2, 4, 5, 6, 7, 0, 0],
        [2, 0, 0, 0, 0, 0, 0],  # "" and " ": the start, then padding
        [2, 0, 0, 0, 0, 0, 0],
        [2, 1, 7, 9, 1, 0, 0],
        [2, 4, 5, 6, 4, 7, 4],
    ]
    expected = label(model(preprocess(tf.constant(TEXTS))))
    result, made = read_text(folder, TEXTS, "tensorflow_text", tmp_path)
    assert not result.returncode, result.stderr[-2000:]
    outputs = np.load(made)
    np.testing.assert_array_equal(outputs["label"], expected["label"].numpy())
    np.testing.assert_allclose(
        outputs["probability"], expected["probability"], atol=1e-5
    )

    empty = run_file(folder, {"text": np.zeros(0, object)}, "predict_text")
    assert empty["label"].shape == empty["probability"].shape == (0,)
    result, _ = read_text(folder, TEXTS, "nothing more", tmp_path)
    assert "Op type not registered" in result.stderr


def test_characters_need_only_tensorflow(tmp_path):
    import tensorflow as tf

    tokenizer = data.train_characters("the quick brown fox")
    preprocess = with_ids(tokenizer)
    model = text_classifier(tokenizer.vocabulary_size())
    folder = to_saved_model(model, tmp_path / "characters", preprocess)
    assert "nothing but TensorFlow" in (folder / "README.md").read_text("utf-8")
    result, made = read_text(folder, TEXTS, "nothing more", tmp_path)
    assert not result.returncode, result.stderr[-2000:]
    expected = model(preprocess(tf.constant(TEXTS)))
    np.testing.assert_allclose(np.load(made)["logits"], expected, atol=1e-5)


def test_other_tokenizers_in_the_graph(tmp_path):
    import keras_hub
    import tensorflow as tf

    letters = [chr(code) for code in range(33, 127)]
    pieces = {piece: i for i, piece in enumerate([*letters, "Ġ", "fo", "fox"])}
    byte_pair = keras_hub.tokenizers.BytePairTokenizer(
        vocabulary=pieces, merges=["f o", "fo x"], sequence_length=LENGTH
    )
    byte = keras_hub.tokenizers.ByteTokenizer(sequence_length=LENGTH)
    texts = ["a fox", "", "the fox"]
    warns = pytest.warns(UserWarning, match="does the vocabulary cover")
    for tokenizer, size, context in (
        (byte_pair, len(pieces), warns),  # no piece for 東
        (byte, 256, contextlib.nullcontext()),
    ):
        preprocess = with_ids(tokenizer)
        model = text_classifier(size)
        with (
            pytest.warns(UserWarning)
            if tokenizer is byte_pair
            else contextlib.nullcontext()
        ):
            folder = to_saved_model(model, tmp_path / tokenizer.name, preprocess)
        assert "import tensorflow_text" in (folder / "README.md").read_text("utf-8")
        outputs = run_file(folder, {"text": np.array(texts, object)}, "predict_text")
        expected = model(preprocess(tf.constant(texts)))
        np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)


def test_postprocess_alone(tmp_path):
    import tensorflow as tf

    model = export_models.bert()
    folder = to_saved_model(model, tmp_path / "labels", postprocess=label)
    inputs = feed(model, 3, 7)
    outputs = run_file(folder, inputs, "predict")
    expected = label(model(inputs))
    np.testing.assert_array_equal(outputs["label"], expected["label"].numpy())
    raw = run_file(folder, inputs)["logits"]
    np.testing.assert_allclose(
        outputs["probability"], np.max(tf.nn.softmax(raw), axis=-1), atol=1e-6
    )


def test_a_table_that_differs_in_a_graph_is_told(tmp_path):
    import tensorflow as tf

    def preprocess(text):
        value = 1 if tf.executing_eagerly() else 2
        return {"token_ids": tf.fill([tf.size(text), 4], value)}

    model = export_models.gpt()  # completes its padding mask
    with pytest.warns(UserWarning, match="other values inside a graph"):
        to_saved_model(model, tmp_path / "gpt", preprocess)


def test_wrong_functions_are_refused(tmp_path):
    import tensorflow as tf

    model = text_classifier(len(WORDS))
    tokenizer = data.train_characters("the quick brown fox")
    with pytest.raises(ValueError, match="must give dense tensors.*RaggedTensor"):
        to_saved_model(model, tmp_path / "a", preprocess=tokenizer)
    with pytest.raises(ValueError, match="`postprocess` must give a dict"):
        to_saved_model(model, tmp_path / "a", postprocess=lambda logits: logits)

    def python(text):
        ids = tf.py_function(lambda t: np.ones((len(t), 4), "int32"), [text], "int32")
        ids = tf.ensure_shape(ids, (None, 4))
        return {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids > 0}

    with pytest.raises(ValueError, match="Python code inside the graph"):
        to_saved_model(model, tmp_path / "a", preprocess=python)
    assert not os.listdir(tmp_path)
