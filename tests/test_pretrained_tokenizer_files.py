"""Files of pretrained tokenizers: what each of them gives, and what is refused."""

import json

import numpy as np
import pytest

from keras_tfm import export, models
from keras_tfm.checkpoints import PretrainedTokenizer, load_tokenizer, save_tokenizer
from tests.tokenizer_cases import (
    EDGES,
    check_ids,
    ids_of_saved_model,
    message_of,
    random_texts,
    real_sentences,
    special_texts,
)

pytestmark = pytest.mark.tensorflow
tokenizers = pytest.importorskip("tokenizers")
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="module")
def texts(tfds_dir):
    return EDGES + random_texts(500) + real_sentences(tfds_dir)


def byte_pairs(texts, pre_tokenizer, specials, size=900):
    """A byte-level tokenizer of the reference library, trained."""
    from tokenizers import decoders, models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def write_pair(tokenizer, folder, **config):
    """`vocab.json` and `merges.txt`, as GPT-2 has them."""
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]), "utf-8")
    merges = "\n".join(" ".join(merge) for merge in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


@pytest.mark.parametrize(
    "kind", ["GPT2Tokenizer", "RobertaTokenizer", "Qwen2Tokenizer"]
)
def test_vocabulary_and_merges(kind, texts, tmp_path):
    from tokenizers import AddedToken, normalizers, pre_tokenizers

    prefixed = kind == "RobertaTokenizer"
    split = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    if kind == "Qwen2Tokenizer":
        pattern = tokenizers.Regex(LLAMA3.replace("{1,3}", ""))
        split = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(pattern, "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    specials = ["<s>", "</s>", "<mask>"] if prefixed else ["<|endoftext|>"]
    reference = byte_pairs(texts, split, specials)
    if kind == "Qwen2Tokenizer":
        reference.normalizer = normalizers.NFC()
    if prefixed:
        reference.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    write_pair(reference, tmp_path, tokenizer_class=kind, add_prefix_space=prefixed)
    tokenizer = load_tokenizer(tmp_path)
    texts = texts + special_texts(specials[-1], specials[0])
    check_ids(tokenizer, reference, texts)
    exported = ids_of_saved_model(tokenizer, texts, tmp_path / "ids")
    assert exported == [row.tolist() for row in tokenizer.encode(texts)]
    end = reference.token_to_id("</s>" if prefixed else "<|endoftext|>")
    assert tokenizer.special_ids["end"] == tokenizer.special_ids["pad"] == end


def test_words_that_are_tokens_need_no_merge(texts, tmp_path):  # Llama 3
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    reference = byte_pairs(texts, split, ["<|begin_of_text|>"], size=1500)
    content = json.loads(reference.to_str())
    content["model"]["ignore_merges"] = True
    del content["model"]["merges"][::3]  # so that it makes a difference
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    reference = tokenizers.Tokenizer.from_str(json.dumps(content))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    check_ids(tokenizer, reference, texts)
    assert tokenizer.special_ids["start"] == 0


def test_cased_wordpiece_with_added_tokens(texts, tmp_path):
    from tokenizers import (
        AddedToken,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    reference = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    reference.normalizer = normalizers.BertNormalizer(lowercase=False)
    reference.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reference.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=1200, special_tokens=["[PAD]", "[UNK]"], show_progress=False
    )
    reference.train_from_iterator(texts, trainer)
    reference.add_tokens([AddedToken("iPhone", normalized=True), "C++", "C"])
    reference.add_tokens([AddedToken("<b>", lstrip=True, rstrip=True)])
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    more = ["C++C C+ iPhones", "a <b> b", "<b> <b>x", "the[UNK] \u00e9<b>\u00e9"]
    check_ids(tokenizer, reference, texts + more)
    assert tokenizer.token_to_id("iPhone") == reference.token_to_id("iPhone")


def test_vocabulary_file_follows_its_config(tmp_path):
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "Äh",
        "ah",
        "äh",
        "東",
        "東京",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", "utf-8")
    path = tmp_path / "tokenizer_config.json"
    for config, expected in (
        ({}, [6, 8, 1]),
        ({"do_lower_case": False}, [5, 8, 1]),
        ({"strip_accents": False}, [7, 8, 1]),
        ({"tokenize_chinese_chars": False}, [6, 9]),
    ):
        path.write_text(json.dumps(config), "utf-8")
        assert load_tokenizer(tmp_path)("Äh 東京").numpy().tolist() == expected


def test_a_real_token_zero_is_written(tmp_path):
    """GPT-2's token 0 is "!": no padding, in an exported generator neither."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference = byte_pairs(["ab ab"] * 3, split, [], size=258)
    write_pair(reference, tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.id_to_token(0) == "!"
    model = models.GPT(
        vocabulary_size=tokenizer.vocabulary_size(), num_layers=1, num_heads=2,
        hidden_dim=8, intermediate_dim=16, max_sequence_length=12,
    )  # fmt: skip
    folder = tmp_path / "writer"
    export.generation_to_saved_model(
        model, folder, tokenizer, max_length=12, stop_token_ids=[5]
    )
    outputs = export.run_file(folder, {"text": np.array([b"ab!", b"!"], object)})
    start = max(len(row) for row in tokenizer.encode(["ab!", "!"]))
    for row, text in zip(outputs["token_ids"][:, 0], outputs["text"]):
        made = row[start:].tolist()
        made = made[: made.index(5)] if 5 in made else made
        assert tokenizer.detokenize([made])[0] == text.decode("utf-8", "replace")


TINY = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}
REFUSED = {
    "tokenizer.json": [
        ("{", "tokenizer.json is not JSON"),
        ("[]", "tokenizer.json holds no JSON object"),
        ("{}", "is not a tokenizer: KeyError 'model'"),
        ({"model": {"type": "Other"}}, "The tokenizer model 'Other' is not known"),
        (
            {"model": TINY, "normalizer": {"type": "Nmt"}},
            "The normalizer 'Nmt' is not known",
        ),
        (
            {"model": TINY, "pre_tokenizer": {"type": "Odd"}},
            "The pre-tokenizer 'Odd' is not known",
        ),
        ({"model": TINY, "decoder": {"type": "CTC"}}, "The decoder 'CTC' is not known"),
        (
            {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
            "A byte-pair tokenizer of letters, not bytes is not known",
        ),
        (
            {
                "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]},
                "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            },
            "The merge 'a' 'b' has the token 'b', which is not in the vocabulary",
        ),
        (
            {
                "model": TINY,
                "added_tokens": [{"id": 2, "content": "c", "single_word": True}],
            },
            "The added token 'c' counts as a whole word only",
        ),
        (
            {"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}},
            "The pre-tokenizer None before a Unigram model is not known",
        ),
    ],
    "vocab.txt": [("a\nb\n", "vocab.txt has no unknown token '[UNK]'")],
    "vocab.json": [("{}", "there is no merges.txt next to it")],
    "spiece.model": [("no model", "not a SentencePiece model")],
    "tokens.bin": [("", "a tokenizer in a .bin is not known")],
    "cut.gguf": [("GGUF", " is not a whole GGUF file: ")],
}
CASES = [(name, *case) for name, cases in REFUSED.items() for case in cases]


@pytest.mark.parametrize(("name", "content", "line"), CASES)
def test_bad_files_are_refused(name, content, line, tmp_path):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / name).write_text(text, "utf-8")
    message = message_of(load_tokenizer, tmp_path / name)
    assert message.startswith(f"{tmp_path / name}")
    assert line in message


def test_nothing_there(tmp_path):
    message = message_of(load_tokenizer, tmp_path)
    assert message.startswith(f"{tmp_path} has no tokenizer: none of tokenizer.json, ")
    message = message_of(load_tokenizer, tmp_path / "a")
    assert message.startswith(f"{str(tmp_path / 'a')!r} is neither a file nor a folder")


def test_a_name_on_the_hub(tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    (tmp_path / "vocab.txt").write_text("[UNK]\na\n")

    def fetch(name, allow_patterns):
        assert name == "someone/something"
        assert "*.safetensors" not in allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert load_tokenizer("someone/something")("a b").numpy().tolist() == [1, 0]


def test_renumbered_models_need_their_tokenizer_json(tmp_path):
    from keras_tfm.checkpoints.sentencepiece_protos import NORMAL, UNKNOWN, make_proto

    proto = make_proto([("<unk>", 0.0, UNKNOWN), ("a", -1.0, NORMAL)], "unigram")
    (tmp_path / "sentencepiece.bpe.model").write_bytes(proto)
    assert load_tokenizer(tmp_path).vocabulary_size() == 2
    config = {"tokenizer_class": "XLMRobertaTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    line = "the ids of a XLMRobertaTokenizer are known from tokenizer.json only"
    assert line in message_of(load_tokenizer, tmp_path)


def test_gguf_without_a_known_tokenizer(tmp_path):
    gguf = pytest.importorskip("gguf")

    def write(**fields):
        writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
        for name, value in fields.items():
            writer.add_string(f"tokenizer.ggml.{name}", value)
        writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
        writer.add_tensor("a", np.zeros(1, "float32"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return message_of(load_tokenizer, tmp_path)

    assert "there is no tokenizer in the file" in write()
    assert "the tokenizer 'rwkv' is not known: known are gpt2" in write(model="rwkv")
    assert "the pre-tokenizer 'odd' is not known: known are default, gpt-2" in write(
        model="gpt2", pre="odd"
    )


def test_only_pretrained_tokenizers_are_saved(tmp_path):
    with pytest.raises(ValueError, match="must be a PretrainedTokenizer, got str"):
        save_tokenizer("tokenizer", tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_ids_and_tokens_outside_the_vocabulary():
    tokenizer = PretrainedTokenizer({"model": TINY})
    with pytest.raises(ValueError, match="Token 'c' is not in the vocabulary"):
        tokenizer.token_to_id("c")
    with pytest.raises(ValueError, match=r"`token_id` must be in \[0, 2\), got 2"):
        tokenizer.id_to_token(2)
    assert set(tokenizer.special_ids.values()) == {None}
