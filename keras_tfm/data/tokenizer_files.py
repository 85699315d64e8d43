"""Tokenizers to JSON and back: one file that lies next to its model."""

import base64
import json

from keras_tfm.data import tokenizers
from keras_tfm.data.byte_level import byte_tokenizer
from keras_tfm.data.characters import CharacterTokenizer
from keras_tfm.data.errors import DataError


def save_tokenizer(tokenizer, path):
    """Write a tokenizer into one JSON file, to lie next to its model.

    Args:
        tokenizer: a tokenizer made by keras_tfm.data.
        path: str, the file.

    Raises:
        ValueError: for any other tokenizer.
    """
    import keras_hub

    hub, kind = keras_hub.tokenizers, type(tokenizer)  # no subclass: it knows more
    if kind is hub.WordPieceTokenizer:
        state = {
            "kind": "wordpiece",
            "lowercase": tokenizer.lowercase,
            "vocabulary": list(tokenizer.get_vocabulary()),
        }
    elif kind is hub.BytePairTokenizer:
        state = {
            "kind": "byte_pair",
            "vocabulary": dict(tokenizer.vocabulary),
            "merges": list(tokenizer.merges),
        }
    elif kind is hub.SentencePieceTokenizer:
        proto = base64.b64encode(tokenizer.proto).decode("ascii")
        state = {"kind": "sentencepiece", "proto": proto}
    elif issubclass(kind, hub.ByteTokenizer):
        state = {"kind": "byte"}
    elif kind is CharacterTokenizer:
        state = {"kind": "character", "vocabulary": tokenizer.get_vocabulary()}
    else:
        raise ValueError(
            f"`tokenizer` must be made by keras_tfm.data, got {kind.__name__}."
        )
    with open(path, "w", encoding="utf-8") as file:
        json.dump(state, file, ensure_ascii=False)


def load_tokenizer(path):
    """Read what `save_tokenizer` wrote.

    Args:
        path: str, the file.

    Returns: a tokenizer equal to the saved one.

    Raises:
        DataError: if the file is missing or is not a saved tokenizer.
    """
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
        makers = {
            "wordpiece": lambda s: tokenizers.make_wordpiece(
                s["vocabulary"], s["lowercase"]
            ),
            "byte_pair": lambda s: tokenizers.make_byte_pair(
                s["vocabulary"], s["merges"]
            ),
            "sentencepiece": lambda s: tokenizers.make_sentencepiece(
                base64.b64decode(s["proto"])
            ),
            "byte": lambda s: byte_tokenizer(),
            "character": lambda s: CharacterTokenizer(s["vocabulary"]),
        }
        return makers[state["kind"]](state)
    except OSError as error:
        raise DataError(
            f"Tokenizer {path} cannot be read: {error.strerror}."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a saved tokenizer.") from error
