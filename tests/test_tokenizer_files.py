"""Tokenizer files: what cannot be written or read ends in one line."""

import json

import pytest

from keras_tfm.data import DataError, load_tokenizer, save_tokenizer

pytestmark = pytest.mark.tensorflow


def test_only_our_tokenizers_are_saved(tmp_path):
    with pytest.raises(ValueError, match="must be made by keras_tfm.data, got str"):
        save_tokenizer("tokenizer", str(tmp_path / "a.json"))
    assert not list(tmp_path.iterdir())


def test_missing_file(tmp_path):
    with pytest.raises(
        DataError, match=r"\ATokenizer .*a.json cannot be read: No such"
    ):
        load_tokenizer(str(tmp_path / "a.json"))


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"kind": "other"}', '{"kind": "wordpiece"}', b"\xff\xfe"],
)
def test_foreign_file(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=r"\A[^\n]*a.json is not a saved tokenizer.\Z"):
        load_tokenizer(str(path))


def test_file_is_json(tmp_path):
    from keras_tfm.data import train_characters

    path = tmp_path / "a.json"
    save_tokenizer(train_characters("日a"), str(path))
    state = json.loads(path.read_text("utf-8"))
    assert state == {"kind": "character", "vocabulary": ["[PAD]", "[UNK]", "a", "日"]}
