"""A tokenizer's description to the functions that do its work."""

import dataclasses
from collections.abc import Callable

from keras_tfm.checkpoints.byte_pairs import BytePairs
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.sentencepiece_protos import (
    proto_of,
    proto_of_unigram,
    sentencepiece_tokens,
    strip_of,
)
from keras_tfm.checkpoints.subword_models import SentencePiece, WordLevel, WordPiece
from keras_tfm.checkpoints.text_decoders import make_pieces, sentencepiece_pieces
from keras_tfm.checkpoints.text_normalizers import make_normalizer
from keras_tfm.checkpoints.text_splits import make_splitter

KINDS = ("WordPiece", "BPE", "Unigram", "WordLevel", "SentencePiece")


@dataclasses.dataclass(frozen=True)
class Stages:
    """The stages of a tokenizer."""

    normalize: Callable  # strings (P,) -> strings (P,)
    split: Callable  # strings (P,) -> ragged strings (P, w)
    model: Callable  # strings (W,) -> ragged int32 (W, t)

    @property
    def tables(self):
        """What an exported graph must own."""
        return self.model.tables

    def encode_words(self, texts):
        """Turn normalized texts (P,) into ragged int32 (P, t)."""
        import tensorflow as tf

        words = self.split(texts)
        ids = self.model(words.flat_values)  # (W, t)
        return tf.RaggedTensor.from_row_splits(ids, words.row_splits).merge_dims(1, 2)


def make_stages(description):
    """Make the stages of a tokenizer.

    Args:
        description: dict, the content of a `tokenizer.json`.

    Returns: `Stages`.

    Raises:
        CheckpointError: for a part that has no TensorFlow counterpart.
    """
    model, kind = description["model"], model_kind(description["model"])
    if kind == "SentencePiece":
        return _sentencepiece(description)
    if kind == "Unigram":
        strip = make_normalizer(strip_of(description.get("normalizer")))
        proto = proto_of_unigram(description)
        return Stages(strip, make_splitter(None), SentencePiece(proto))
    makers = {
        "WordPiece": lambda: WordPiece(model, _listed(model["vocab"])),
        "WordLevel": lambda: WordLevel(model, _listed(model["vocab"])),
        "BPE": lambda: BytePairs(model, model["vocab"]),
    }
    if kind == "BPE":
        _check_byte_level(description)
    return Stages(
        make_normalizer(description.get("normalizer")),
        make_splitter(description.get("pre_tokenizer")),
        makers[kind](),
    )


def pieces_of(description, tokens):
    """What the tokens of a description add to a text.

    Args:
        description: dict, the content of a `tokenizer.json`.
        tokens: list of str, index is id.

    Returns: `text_decoders.Pieces`.
    """
    model = description["model"]
    if model_kind(model) == "SentencePiece" and "ids" not in model:
        return sentencepiece_pieces(proto_of(model), tokens)
    return make_pieces(description.get("decoder"), tokens)


def vocabulary_of(description):
    """The tokens of a description.

    Args:
        description: dict, the content of a `tokenizer.json`.

    Returns: list of str, index is id; "" where there is none.
    """
    model = description["model"]
    kind = model_kind(model)
    if kind == "SentencePiece":
        ids = model.get("ids") or dict_of(sentencepiece_tokens(proto_of(model)))
    elif kind == "Unigram":
        ids = dict_of(piece for piece, _ in model["vocab"])
    else:
        ids = dict(model["vocab"])
    for token in description.get("added_tokens") or []:
        ids[token["content"]] = token["id"]
    tokens = [""] * (max(ids.values()) + 1)
    for token, token_id in ids.items():
        tokens[token_id] = token
    return tokens


def dict_of(tokens):
    """Number tokens: dict from token to id."""
    return {token: number for number, token in enumerate(tokens)}


def model_kind(model):
    """The kind of a description's model, which old files leave out.

    Args:
        model: dict, the `model` of a description.

    Returns: str, one of `KINDS`.

    Raises:
        CheckpointError: for any other.
    """
    kind = model.get("type")
    if kind is None:
        if "merges" in model:
            kind = "BPE"
        elif isinstance(model.get("vocab"), list):
            kind = "Unigram"
        else:
            prefixed = "continuing_subword_prefix" in model
            kind = "WordPiece" if prefixed else "WordLevel"
    if kind not in KINDS:
        raise CheckpointError(
            f"The tokenizer model {kind!r} is not known: known are {', '.join(KINDS)}."
        )
    return kind


def _sentencepiece(description):
    model = description["model"]
    proto, ids = proto_of(model), model.get("ids")
    pieces = SentencePiece(proto, ids, (ids or {}).get(model.get("unk_token"), 0))
    normalize = make_normalizer(description.get("normalizer"))
    return Stages(normalize, make_splitter(None), pieces)


def _listed(ids):
    """The tokens of a vocabulary without holes."""
    tokens = sorted(ids, key=ids.get)
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise CheckpointError("The tokenizer's vocabulary has an id without a token.")
    return tokens


def _check_byte_level(description):
    """Refuse byte pairs that are not bytes: nothing maps their letters."""
    model = description["model"]
    spec = description.get("pre_tokenizer") or {}
    parts = spec.get("pretokenizers", [spec])
    levels = [part.get("type") for part in parts]
    odd = [
        name
        for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
        if model.get(name)
    ]
    if levels[-1] != "ByteLevel" or "ByteLevel" in levels[:-1] or odd:
        what = odd[0] if odd else "letters, not bytes"
        raise CheckpointError(
            f"A byte-pair tokenizer of {what} is not known: only byte-level ones are."
        )
