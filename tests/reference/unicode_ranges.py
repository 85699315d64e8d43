"""Writes keras_tfm/checkpoints/unicode_ranges.py: what the `tokenizers` library means.

    python tests/reference/unicode_ranges.py

Every class is found by asking `tokenizers` about each of the 1,112,063 characters.
Three libraries with three versions of Unicode are at work in it, so the classes that
regular expressions know by name differ from each other and from TensorFlow's.
"""

import pathlib
import textwrap

import tokenizers
from tokenizers import normalizers, pre_tokenizers

OUTPUT = pathlib.Path(__file__).parents[2] / "keras_tfm/checkpoints/unicode_ranges.py"
CHARACTERS = [chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]
HEAD = '''"""Classes of characters as the `tokenizers` library has them, for RE2.

Written by tests/reference/unicode_ranges.py. TensorFlow's RE2 knows an older Unicode
than the reference's regular expressions and a newer one than its BERT rules.
"""
'''


def split_alone(pre_tokenizer):
    """Characters that are cut out from between two that nobody has assigned."""
    no = "\u0378"
    return {
        ord(c)
        for c in CHARACTERS
        if len(pre_tokenizer.pre_tokenize_str(f"{no}{c}{no}")) == 3
    }


def removed_by(function):
    return {ord(c) for c in CHARACTERS if c not in function(f"a{c}b")}


def named(name):
    """Characters of a class, as the reference's regular expressions know it."""
    pattern = tokenizers.Regex(rf"\p{{{name}}}")
    return split_alone(pre_tokenizers.Split(pattern, "isolated"))


def bert(**flags):
    off = {"handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    normalizer = normalizers.BertNormalizer(clean_text=False, **{**off, **flags})
    return normalizer.normalize_str


def clean(text):
    rules = {"handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(clean_text=True, **rules).normalize_str(text)


def accents():
    """Characters that are gone, not those that lose a part of themselves."""
    strip = bert(strip_accents=True)
    return {ord(c) for c in CHARACTERS if strip(f"a{c}b") == "ab"}


def known_to_re2(name):
    import tensorflow as tf

    matches = tf.strings.regex_full_match(tf.constant(CHARACTERS), rf"\p{{{name}}}")
    return {ord(c) for c, match in zip(CHARACTERS, matches.numpy()) if match}


def ranges(codes):
    found = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    one = [f"\\x{{{a:X}}}" + (f"-\\x{{{b:X}}}" if b > a else "") for a, b in found]
    return " ".join(one)


def assignment(name, codes):
    text = ranges(codes)
    if len(text) < 60:
        return f'{name} = r"{text}"'
    lines = textwrap.wrap(text, 82)
    body = "\n".join(
        f'    r"{line}"' for line in (part.replace(" ", "") for part in lines)
    )
    return f"{name} = (\n{body}\n)"


def main():
    isolated = pre_tokenizers.Split(tokenizers.Regex(r"\s"), "isolated")
    punctuation = pre_tokenizers.BertPreTokenizer()
    around = {
        ord(c) for c in CHARACTERS if len(punctuation.pre_tokenize_str(f"a{c}b")) == 3
    }
    numeric = {
        ord(c)
        for c in CHARACTERS
        if len(pre_tokenizers.Digits(True).pre_tokenize_str(f"a{c}b")) == 3
    }
    cjk = {
        ord(c)
        for c in CHARACTERS
        if bert(handle_chinese_chars=True)(f"a{c}b") == f"a {c} b"
    }
    controls = {ord(c) for c in CHARACTERS if clean(f"a{c}b") == "ab"} | {0}
    marks = removed_by(normalizers.StripAccents().normalize_str)
    whitespace = pre_tokenizers.Whitespace()
    words = {
        ord(c) for c in CHARACTERS if len(whitespace.pre_tokenize_str(f"a{c}")) == 1
    } - split_alone(isolated)
    known = set().union(*map(known_to_re2, ("L", "M", "Nd", "Nl", "Pc")))
    assert not known - words
    word = pre_tokenizers.Split(tokenizers.Regex(r"\w"), "isolated")
    regex_words = split_alone(word)
    assert not known - regex_words, ranges(known - regex_words)
    classes = {
        "WHITESPACE": split_alone(isolated),
        "NUMERIC": numeric - known_to_re2("N"),
        "BERT_CONTROL": controls,
        "BERT_CJK": cjk,
        "BERT_PUNCTUATION": around,
        "BERT_ACCENTS": accents(),
        "MARKS": marks,
        "WORD": words - known,
        "REGEX_WORD": regex_words - known,
    }
    lines = [assignment(name, codes) for name, codes in classes.items()]
    newer = []
    for name in ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S"):
        missing = ranges(named(name) - known_to_re2(name)).replace(" ", "")
        parts = textwrap.wrap(missing, 76) or [""]
        body = "\n".join(f'    r"{part}"' for part in parts)
        newer.append(f'    "{name}": (\n{textwrap.indent(body, "    ")}\n    ),')
    table = (
        "NEWER = {  # beyond what RE2 calls by this name\n" + "\n".join(newer) + "\n}"
    )
    OUTPUT.write_text("\n".join([HEAD, *lines, table, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
