"""What the reference library adds to bare vocabulary files, by its defaults.

Everything becomes the content of a `tokenizer.json`.
"""

from keras_tfm.checkpoints.added_tokens import added_token
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.text_patterns import QWEN2
from keras_tfm.checkpoints.tokenizer_stages import vocabulary_of

BERT_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
USUAL = {  # role: the names it goes by, where no file says it
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("<s>", "<bos>", "<|begin_of_text|>"),
    "eos_token": ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>"),
}
# The chemistry models' pattern: one atom, bond, ring number or bracket a token.
SMILES = (
    r"(\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|"
    r"\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"
)
KEPT = ("tokenizer_class", "model_max_length", "do_lower_case", "keep_accents")
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
PREFIXED = ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer")
# Their ids are not those of their SentencePiece model.
SHIFTED = (
    *("XLMRoberta", "Camembert", "MBart", "MBart50", "Barthez", "XGLM"),
    *("Nllb", "M2M100", "Speech2Text", "Pegasus", "BigBird"),
)


def vocabulary_file(tokens, config):
    """Describe a `vocab.txt`: BERT's WordPiece, or SMILES tokens.

    Args:
        tokens: list of str, index is id.
        config: dict, the fields of `tokenizer_config.json` and its neighbours.

    Returns: dict, the content of a `tokenizer.json`.
    """
    vocabulary = {token.rstrip(): number for number, token in enumerate(tokens)}
    unknown = _name(config.get("unk_token")) or "[UNK]"
    if unknown not in vocabulary:
        raise CheckpointError(f"vocab.txt has no unknown token {unknown!r}.")
    if is_smiles(vocabulary):
        return _smiles(vocabulary, unknown)
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
            "strip_accents": config.get("strip_accents"),
            "lowercase": config.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
        "special_tokens": BERT_TOKENS,
    }


def is_smiles(vocabulary):
    """Whether a vocabulary is one of chemistry: atoms in brackets, no "##" pieces."""
    return "[C@@H]" in vocabulary and not any(t.startswith("##") for t in vocabulary)


def _smiles(vocabulary, unknown):
    return {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": SMILES},
            "behavior": "Removed",
            "invert": True,
        },
        "decoder": None,
        "model": {"type": "WordLevel", "unk_token": unknown, "vocab": vocabulary},
        "special_tokens": BERT_TOKENS,
    }


def byte_pair_files(vocabulary, merges, config):
    """Describe a `vocab.json` with its `merges.txt`: GPT-2's kind.

    Args:
        vocabulary: dict from tokens to ids.
        merges: list of str, the lines.
        config: dict, the fields of `tokenizer_config.json` and its neighbours.

    Returns: dict, the content of a `tokenizer.json`.
    """
    name = (config.get("tokenizer_class") or "").removesuffix("Fast")
    known = ("", "GPT2Tokenizer", "Qwen2Tokenizer", *PREFIXED)
    if name not in known:
        raise CheckpointError(
            f"vocab.json and merges.txt of a {name} are not known without "
            "tokenizer.json."
        )
    merges = [m for m in merges if m.strip() and not m.startswith("#version")]
    byte_level = {
        **BYTE_LEVEL,
        "add_prefix_space": config.get("add_prefix_space", False),
    }
    normalizer, splits = None, byte_level
    if name == "Qwen2Tokenizer" or config.get("model_type") == "qwen2":
        normalizer = {"type": "NFC"}
        splits = pattern_split(QWEN2, byte_level)
    return {
        "normalizer": normalizer,
        "pre_tokenizer": splits,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }


def pattern_split(pattern, byte_level=BYTE_LEVEL):
    """A pre-tokenizer of a pattern, before bytes."""
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {
        "type": "Sequence",
        "pretokenizers": [split, {**byte_level, "use_regex": False}],
    }


def sentencepiece_file(model, config):
    """Describe a SentencePiece model.

    Args:
        model: dict with `proto`, and `ids` where the ids are others.
        config: dict, the fields of `tokenizer_config.json` and its neighbours.

    Returns: dict, the content of a `tokenizer.json`.
    """
    name = (config.get("tokenizer_class") or "").removesuffix("Fast")
    if name.removesuffix("Tokenizer") in SHIFTED and "ids" not in model:
        raise CheckpointError(
            f"the ids of a {name} are known from tokenizer.json only."
        )
    description = {"model": model}
    if "ids" in model:
        model["unk_token"] = _name(config.get("unk_token")) or "<unk>"
        description["decoder"] = {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "always",
        }
    if "Albert" in name or config.get("model_type") == "albert":
        description["normalizer"] = _albert(config)
    return description


def _albert(config):
    """ALBERT's own steps before its SentencePiece model."""
    parts = [
        {"type": "Replace", "pattern": {"String": quotes}, "content": '"'}
        for quotes in ("``", "''")
    ]
    if not config.get("keep_accents", False):
        parts += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if config.get("do_lower_case", True):
        parts.append({"type": "Lowercase"})
    return {"type": "Sequence", "normalizers": parts}


def with_special_tokens(description, config, found):
    """Say which tokens are special and which of them are found in texts.

    Args:
        description: dict, the content of a `tokenizer.json`.
        config: dict, the fields of `tokenizer_config.json` and its neighbours.
        found: "all", "named" (by the config) or "listed" (in the description).

    Returns: dict, a new description.
    """
    added = [dict(token) for token in description.get("added_tokens") or []]
    listed = {token["content"] for token in added}
    if found != "listed":
        for number, token in (config.get("added_tokens_decoder") or {}).items():
            if token["content"] not in listed:
                added.append(added_token(**{**token, "token_id": int(number)}))
                listed.add(token["content"])
    description = {**description, "added_tokens": added}
    tokens = vocabulary_of(description)
    ids = {token: number for number, token in enumerate(tokens)}
    named = _roles(config, {}, ids)
    roles = named | _roles(description.get("special_tokens") or {}, USUAL, ids) | named
    chosen = {"all": roles, "named": named, "listed": {}}[found]
    for token in sorted(set(chosen.values()) - listed):
        blanks = token == "<mask>"  # takes the blank before it
        added.append(added_token(ids[token], token, special=True, lstrip=blanks))
    template = config.get("chat_template")
    return {
        **description,
        "special_tokens": roles,
        "chat_template": template if isinstance(template, str) else None,
        "tokenizer_config": {name: config[name] for name in KEPT if name in config},
    }


def _roles(named, usual, ids):
    """Dict from roles, such as "cls_token", to tokens that are there."""
    roles = {}
    for role in USUAL:
        names = (_name(named.get(role)), *usual.get(role, ()))
        found = [name for name in names if name in ids]
        if found:
            roles[role] = found[0]
    return roles


def _name(token):
    """The text of a token, which files write as a str or as a dict."""
    return token.get("content") if isinstance(token, dict) else token
