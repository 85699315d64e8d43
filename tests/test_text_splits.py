"""Pre-tokenizers in a graph cut texts as the reference library does."""

import json

import pytest

from keras_tfm.checkpoints.text_patterns import GPT2, LLAMA3, QWEN2, to_re2
from keras_tfm.checkpoints.text_splits import make_splitter
from tests.tokenizer_cases import EDGES, message_of, random_texts

pytestmark = pytest.mark.tensorflow
tokenizers = pytest.importorskip("tokenizers")
GPT4O = (  # of the o200k family
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHARACTERS = [chr(c) for c in range(1, 0x20000) if not 0xD800 <= c < 0xE000]


def regex(pattern, behavior="Isolated", invert=False):
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": behavior,
        "invert": invert,
    }


def byte_level(prefix=False, use_regex=True):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


SPECS = {
    "bert": {"type": "BertPreTokenizer"},
    "blanks": {"type": "WhitespaceSplit"},
    "words": {"type": "Whitespace"},
    "digits": {"type": "Digits", "individual_digits": True},
    "numbers": {"type": "Digits", "individual_digits": False},
    "punctuation": {"type": "Punctuation", "behavior": "Isolated"},
    "no punctuation": {"type": "Punctuation", "behavior": "Removed"},
    "text": {**regex(""), "pattern": {"String": "a."}},
    "gpt2": byte_level(),
    "roberta": byte_level(prefix=True),
    "smollm": sequence({"type": "Digits", "individual_digits": True}, byte_level()),
    "llama3": sequence(regex(LLAMA3), byte_level(use_regex=False)),
    "qwen2": sequence(regex(QWEN2), byte_level(use_regex=False)),
    "gpt4o": sequence(regex(GPT4O), byte_level(use_regex=False)),
    "gpt2 by hand": regex(GPT2),
    "matches": regex(r"\d+|\w|\W\s", "Removed", invert=True),
    "not matches": regex(r"[\s\d]+", "Removed"),
    "inverted": regex(r"\S+", "Isolated", invert=True),
}


def reference_words(spec, texts):
    """Words as texts, also where the reference shows bytes as letters."""
    holder = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}
    holder["pre_tokenizer"] = spec
    pre_tokenizer = tokenizers.Tokenizer.from_str(json.dumps(holder)).pre_tokenizer
    return [[w for w, _ in pre_tokenizer.pre_tokenize_str(text)] for text in texts]


def as_letters(words):
    """Bytes as the letters that stand for them in byte-level vocabularies."""
    from keras_tfm.checkpoints.byte_pairs import byte_alphabet

    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    return [["".join(letters[byte] for byte in word) for word in row] for row in words]


@pytest.mark.parametrize("name", SPECS)
def test_words_are_the_references(name):
    spec = SPECS[name]
    texts = EDGES + random_texts(4000) + [f"a{c}b {c}1{c}.{c}" for c in CHARACTERS[::5]]
    texts = [text for text in texts if text]  # added tokens leave no empty part
    words = make_splitter(spec)(texts).to_list()
    levels = [part["type"] for part in spec.get("pretokenizers", [spec])]
    if "ByteLevel" in levels:
        actual = as_letters(words)
    else:
        actual = [[word.decode("utf-8") for word in row] for row in words]
    expected = reference_words(spec, texts)
    wrong = [row for row in zip(texts, actual, expected) if row[1] != row[2]]
    assert not wrong, wrong[:3]


@pytest.mark.parametrize(
    "pattern", [r"a(?=b)", r"(?<!a)b", r"(a)\1", r"a++", r"[a[bc]]", r"(?>a|b)"]
)
def test_what_re2_cannot_do_is_refused(pattern):
    line = message_of(to_re2, pattern)
    assert "splits texts in a way that a TensorFlow graph cannot" in line
    assert repr(pattern) in line


def test_unknown_kinds_are_refused():
    line = message_of(make_splitter, {"type": "UnicodeScripts"})
    assert "'UnicodeScripts' is not known: known are BertPreTokenizer, " in line
    spec = {"type": "Punctuation", "behavior": "MergedWithNext"}
    assert "the behavior 'MergedWithNext' is not known" in message_of(
        make_splitter, spec
    )
