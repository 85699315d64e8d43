"""Normalizers in a graph change texts as the reference library does."""

import json

import pytest

from keras_tfm.checkpoints.text_normalizers import make_normalizer
from tests.tokenizer_cases import EDGES, message_of, random_texts

pytestmark = pytest.mark.tensorflow
tokenizers = pytest.importorskip("tokenizers")
CHARACTERS = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def bert(**flags):
    return {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
        **flags,
    }


def replace(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


SPECS = {
    "uncased": bert(),
    "cased": bert(lowercase=False),
    "accents kept": bert(strip_accents=False),
    "not cleaned": bert(clean_text=False, handle_chinese_chars=False),
    "lowercase": {"type": "Lowercase"},
    "accents": {
        "type": "Sequence",
        "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}],
    },
    "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "left": {"type": "Strip", "strip_left": True, "strip_right": False},
    "prepend": {"type": "Prepend", "prepend": "\\_"},
    "replace": replace(".", "\\1"),
    "blanks": replace(" {2,}", " ", "Regex"),
    **{form: {"type": form} for form in ("NFC", "NFD", "NFKC", "NFKD")},
}
# Characters that TensorFlow's older Unicode leaves as they are.
OLDER = {
    "uncased": 95 + 21,
    "not cleaned": 95 + 21,
    "accents kept": 95,
    "lowercase": 95,
    "cased": 21,
    "accents": 21,
    "NFD": 21,
    "NFKC": 170,
    "NFKD": 191,
}


def reference(spec, texts):
    holder = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}
    holder["normalizer"] = spec
    normalizer = tokenizers.Tokenizer.from_str(json.dumps(holder)).normalizer
    return [normalizer.normalize_str(text) for text in texts]


@pytest.mark.parametrize("name", SPECS)
def test_texts_are_the_references(name):
    texts = EDGES + random_texts()
    actual = make_normalizer(SPECS[name])(texts).numpy()
    assert [text.decode("utf-8") for text in actual] == reference(SPECS[name], texts)


@pytest.mark.parametrize("name", ["uncased", "accents", "lowercase", "NFC", "NFKC"])
def test_characters_are_the_references_but_for_new_ones(name):
    texts = [f"a{c}b" for c in CHARACTERS[:0x20000]]
    actual = make_normalizer(SPECS[name])(texts).numpy()
    differ = [
        text
        for text, ours, theirs in zip(texts, actual, reference(SPECS[name], texts))
        if ours.decode("utf-8") != theirs
    ]
    assert len(differ) <= OLDER.get(name, 0)
    assert not [text for text in differ if text[1] < "\u1c89"]


def test_unknown_kinds_are_refused():
    line = message_of(make_normalizer, {"type": "Nmt"})
    assert "The normalizer 'Nmt' is not known: known are Sequence, Bert" in line
