"""SentencePiece models: read from a description, and written for one that has none."""

import base64

from keras_tfm.checkpoints.errors import CheckpointError

METASPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def proto_of(model):
    """The trained model in a description: bytes."""
    return base64.b64decode(model["proto"])


def parse(proto):
    """Read a trained model.

    Args:
        proto: bytes.

    Returns: a `ModelProto`, or None where the bytes are something else.
    """
    from sentencepiece import sentencepiece_model_pb2

    message = sentencepiece_model_pb2.ModelProto()
    try:
        message.ParseFromString(proto)
    except Exception:  # protobuf's own, from whichever of its packages
        return None
    return message if len(message.pieces) else None


def sentencepiece_tokens(proto):
    """The pieces of a trained model in order: list of str."""
    return [piece.piece for piece in parse(proto).pieces]


def make_proto(pieces, kind, charsmap=b"", add_dummy_prefix=True, remove_blanks=True):
    """Write a model that SentencePiece reads.

    Args:
        pieces: list of (piece, score, type).
        kind: "unigram" or "bpe".
        charsmap: bytes, the compiled normalization rules.
        add_dummy_prefix: bool, a text begins with a blank.
        remove_blanks: bool, runs of blanks become one, those at the ends none.

    Returns: bytes.
    """
    from sentencepiece import sentencepiece_model_pb2

    message = sentencepiece_model_pb2.ModelProto()
    for piece, score, piece_type in pieces:
        message.pieces.add(piece=piece, score=score, type=piece_type)
    types = [piece_type for *_, piece_type in pieces]
    trainer, normalizer = message.trainer_spec, message.normalizer_spec
    trainer.model_type = {"unigram": 1, "bpe": 2}[kind]
    trainer.vocab_size = len(pieces)
    trainer.unk_id = types.index(UNKNOWN)
    trainer.unk_piece = pieces[trainer.unk_id][0]
    trainer.bos_id = trainer.eos_id = trainer.pad_id = -1
    trainer.byte_fallback = BYTE in types
    normalizer.precompiled_charsmap = charsmap
    normalizer.add_dummy_prefix = add_dummy_prefix
    normalizer.remove_extra_whitespaces = remove_blanks
    normalizer.escape_whitespaces = True
    return message.SerializeToString()


def proto_of_unigram(description):
    """Write the SentencePiece model of a Unigram `tokenizer.json`.

    Args:
        description: dict, the content of a `tokenizer.json`.

    Returns: bytes.

    Raises:
        CheckpointError: for normalizers or pre-tokenizers that SentencePiece lacks.
    """
    model = description["model"]
    charsmap, remove_blanks = _unigram_rules(description.get("normalizer"))
    prefix = _unigram_prefix(description.get("pre_tokenizer"))
    pieces = []
    for number, (piece, score) in enumerate(model["vocab"]):
        kind = UNKNOWN if number == model["unk_id"] else NORMAL
        if model.get("byte_fallback") and piece.startswith("<0x") and len(piece) == 6:
            kind = BYTE
        pieces.append((piece, score, kind))
    return make_proto(pieces, "unigram", charsmap, prefix, remove_blanks)


def strip_of(spec):
    """The part of a normalizer that takes other blanks than " " off the ends."""
    parts = [] if spec is None else spec.get("normalizers", [spec])
    return next((part for part in parts if part["type"] == "Strip"), None)


def _unigram_rules(spec):
    """The compiled rules of a normalizer, and whether it takes blanks away."""
    parts = [] if spec is None else spec.get("normalizers", [spec])
    charsmap, remove_blanks = b"", False
    for part in parts:
        if part["type"] == "Precompiled":
            charsmap = base64.b64decode(part["precompiled_charsmap"])
        elif part["type"] == "Replace" and part["pattern"] == {"Regex": " {2,}"}:
            remove_blanks = True
        elif part["type"] != "Strip":
            raise CheckpointError(
                f"The normalizer {part['type']!r} before a Unigram model is not known: "
                "known are Precompiled, Replace of blanks, Strip."
            )
    return charsmap, remove_blanks


def _unigram_prefix(spec):
    """Whether a text begins with a blank."""
    parts = [] if spec is None else spec.get("pretokenizers", [spec])
    kinds = [part["type"] for part in parts]
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise CheckpointError(
            f"The pre-tokenizer {'+'.join(kinds) or None!r} before a Unigram model is "
            "not known: known is Metaspace."
        )
    last = parts[-1]
    if last.get("prepend_scheme", "always") == "never":
        return False
    return last.get("add_prefix_space", True)
