"""The tokenizer inside a GGUF file.

Its metadata become the content of a `tokenizer.json`.
"""

import base64

from keras_tfm.checkpoints import tokenizer_rules as rules
from keras_tfm.checkpoints.added_tokens import added_token
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.gguf_arrays import open_gguf
from keras_tfm.checkpoints.sentencepiece_protos import CONTROL, USER_DEFINED, make_proto
from keras_tfm.checkpoints.text_patterns import LLAMA3, QWEN2

_DIGITS = {"type": "Digits", "individual_digits": True}
# The file's name of its pre-tokenizer: (normalizer, pre-tokenizer).
SPLITS = {
    "default": (None, rules.BYTE_LEVEL),
    "gpt-2": (None, rules.BYTE_LEVEL),
    "smollm": (
        None,
        {"type": "Sequence", "pretokenizers": [_DIGITS, rules.BYTE_LEVEL]},
    ),
    "llama-bpe": (None, rules.pattern_split(LLAMA3)),
    "qwen2": ({"type": "NFC"}, rules.pattern_split(QWEN2)),
}
ROLES = {
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "seperator": "sep_token",
    "padding": "pad_token",
    "cls": "cls_token",
    "mask": "mask_token",
}


def gguf_description(path):
    """Read the tokenizer of a GGUF file.

    Args:
        path: `pathlib.Path`.

    Returns: dict, the content of a `tokenizer.json`.

    Raises:
        CheckpointError: for a file without a tokenizer, or of a kind not known.
    """
    fields = {
        name.removeprefix("tokenizer.").removeprefix("ggml."): field
        for name, field in open_gguf(path).fields.items()
        if name.startswith("tokenizer.")
    }
    if "model" not in fields:
        raise CheckpointError("there is no tokenizer in the file.")

    def read(name, default=None):
        return fields[name].contents() if name in fields else default

    kind, makers = read("model"), {"gpt2": _byte_pair, "llama": _sentencepiece}
    makers |= {"t5": _sentencepiece, "bert": _wordpiece}
    if kind not in makers:
        raise CheckpointError(
            f"the tokenizer {kind!r} is not known: known are {', '.join(makers)}."
        )
    tokens = read("tokens")
    types = read("token_type") or [1] * len(tokens)
    added = [
        added_token(i, token, special=kind == CONTROL)
        for i, (token, kind) in enumerate(zip(tokens, types))
        if kind in (CONTROL, USER_DEFINED)
    ]
    ids = {role: read(f"{name}_token_id") for name, role in ROLES.items()}
    return {
        **makers[kind](read, tokens, types),
        "added_tokens": added,
        "special_tokens": {role: tokens[i] for role, i in ids.items() if i is not None},
        "chat_template": read("chat_template"),
    }


def _byte_pair(read, tokens, types):
    pre = read("pre", "default")
    if pre not in SPLITS:
        raise CheckpointError(
            f"the pre-tokenizer {pre!r} is not known: known are {', '.join(SPLITS)}."
        )
    normalizer, split = SPLITS[pre]
    return {
        "normalizer": normalizer,
        "pre_tokenizer": split,
        "decoder": rules.BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": read("merges"),
            "ignore_merges": pre == "llama-bpe",
        },
    }


def _sentencepiece(read, tokens, types):
    proto = make_proto(
        list(zip(tokens, read("scores"), types)),
        {"llama": "bpe", "t5": "unigram"}[read("model")],
        bytes(bytearray(read("precompiled_charsmap") or [])),
        read("add_space_prefix", True),
        read("remove_extra_whitespaces", False),
    )
    encoded = base64.b64encode(proto).decode("ascii")
    return {"model": {"type": "SentencePiece", "proto": encoded}}


def _wordpiece(read, tokens, types):
    """BERT's pieces: in the file it is the beginnings of words that are marked."""
    vocabulary = {}
    for number, (token, kind) in enumerate(zip(tokens, types)):
        if kind != CONTROL and not token.startswith("["):
            begins = token.startswith("\u2581")
            token = token[1:] if begins else "##" + token
        vocabulary[token] = number
    return rules.vocabulary_file(sorted(vocabulary, key=vocabulary.get), {})
