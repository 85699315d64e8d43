"""Tokenizers of the reference library's folders, and of single files."""

import base64
import json
import pathlib

from keras_tfm.checkpoints import tokenizer_rules as rules
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.hub import fetch_from_hub
from keras_tfm.checkpoints.pretrained_tokenizer import PretrainedTokenizer
from keras_tfm.checkpoints.sentencepiece_protos import parse, proto_of
from keras_tfm.checkpoints.tokenizer_gguf import gguf_description

# Of a folder, the best first.
FILES = (
    "tokenizer.json",
    "source.spm",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
)
FETCHED = ["*.json", "*.txt", "*.model", "*.spm", "*.jinja"]  # of a name on the hub


def load_tokenizer(path_or_name):
    """The tokenizer of a checkpoint, with the ids of the reference library.

    Reads `tokenizer.json` (WordPiece, byte-level byte-pair, Unigram, WordLevel),
    `vocab.txt`, `vocab.json` with `merges.txt`, SentencePiece models (with
    `vocab.json` for Marian; `target.spm` is asked for by its name) and GGUF files. A
    `vocab.txt` of SMILES tokens, without "##" pieces, is read by the pattern of
    chemistry models.

    Args:
        path_or_name: str or path of a folder or a file, or a name that
            `huggingface_hub` can fetch.

    Returns: `PretrainedTokenizer`. It adds no special tokens to a text.

    Raises:
        CheckpointError: (a `ValueError`) no tokenizer there, a cut file, or a part
            of it that TensorFlow cannot do.
    """
    path = pathlib.Path(path_or_name).expanduser()
    if not path.exists():
        path = fetch_from_hub(str(path_or_name), FETCHED)
    file = _find(path) if path.is_dir() else path
    try:
        return PretrainedTokenizer(_read(file))
    except CheckpointError as error:
        if str(error).startswith(str(file)):
            raise
        raise CheckpointError(f"{file}: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}.") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{file} is not a tokenizer: {type(error).__name__} {error}".splitlines()[0]
        ) from error


def save_tokenizer(tokenizer, folder):
    """Write the tokenizer of a folder, for `load_tokenizer` and the reference library.

    A SentencePiece model is written as `spiece.model` (Marian's as `source.spm` with
    `vocab.json`), others as `tokenizer.json`; the special tokens and the chat template
    go into `tokenizer_config.json`.

    Args:
        tokenizer: `PretrainedTokenizer`.
        folder: str or path; made if it is not there.

    Raises:
        ValueError: for any other tokenizer.
    """
    if not isinstance(tokenizer, PretrainedTokenizer):
        raise ValueError(
            "`tokenizer` must be a PretrainedTokenizer, got "
            f"{type(tokenizer).__name__}."
        )
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    description = dict(tokenizer.get_config()["description"])
    config = dict(description.pop("tokenizer_config", None) or {})
    roles = description.pop("special_tokens", None) or {}
    config["chat_template"] = description.pop("chat_template", None)
    model = description["model"]
    if model.get("type") == "SentencePiece":
        added = description.get("added_tokens") or []
        config["added_tokens_decoder"] = {str(token["id"]): token for token in added}
        contents = {token["content"] for token in added}
        roles = {role: token for role, token in roles.items() if token in contents}
        name = "source.spm" if "ids" in model else "spiece.model"
        (folder / name).write_bytes(proto_of(model))
        if "ids" in model:
            _write_json(folder / "vocab.json", model["ids"])
    else:
        _write_json(folder / "tokenizer.json", {"version": "1.0", **description})
    config = {n: value for n, value in {**config, **roles}.items() if value is not None}
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


def _find(folder):
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    files = sorted(folder.glob("*.gguf"))
    if files:
        return files[0]
    raise CheckpointError(
        f"{folder} has no tokenizer: none of {', '.join(FILES)}, *.gguf."
    )


def _read(file):
    """The description of a file, with the special tokens that lie next to it."""
    if file.suffix == ".gguf":
        return gguf_description(file)
    config, found = _config(file.parent), "all"
    if file.name == "vocab.txt":
        description = rules.vocabulary_file(_lines(file), config)
    elif file.suffix in (".model", ".spm"):
        description, found = _sentencepiece(file, config), "named"
    elif file.name == "vocab.json":
        if not (file.parent / "merges.txt").is_file():
            raise CheckpointError("there is no merges.txt next to it.")
        merges = _lines(file.parent / "merges.txt")
        description = rules.byte_pair_files(_json(file), merges, config)
    elif file.suffix == ".json":
        description, found = _json(file), "listed"
    else:
        raise CheckpointError(
            f"a tokenizer in a {file.suffix or 'file without suffix'} is not known: "
            "known are .json, .txt, .model, .spm, .gguf."
        )
    return rules.with_special_tokens(description, config, found)


def _sentencepiece(file, config):
    proto = file.read_bytes()
    if parse(proto) is None:
        raise CheckpointError("not a SentencePiece model.")
    model = {
        "type": "SentencePiece",
        "proto": base64.b64encode(proto).decode("ascii"),
    }
    joint = file.parent / "vocab.json"
    if file.name in ("source.spm", "target.spm") and joint.is_file():
        model["ids"] = _json(joint)
    return rules.sentencepiece_file(model, config)


def _config(folder):
    """What the small files next to a tokenizer say."""
    config = {}
    for name in ("config.json", "special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            content = _json(folder / name)
            if name == "config.json":
                content = {"model_type": content.get("model_type")}
            config.update(content)
    template = folder / "chat_template.jinja"
    if template.is_file():
        config["chat_template"] = template.read_text("utf-8")
    return config


def _json(path):
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path.name} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name} holds no JSON object.")
    return content


def _lines(path):
    return path.read_text("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")
