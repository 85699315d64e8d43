"""Number words: exact pairs, deterministic, and splits without a shared number."""

import pytest

from keras_tfm.data import number_split, number_word_pairs, number_words
from keras_tfm.data.number_words import KINDS, SPLITS


def test_pairs_are_exact():
    pairs = dict(number_word_pairs(3000, kinds=("cardinal", "ordinal")))
    assert pairs["twenty-one"] == "einundzwanzig"
    assert pairs["twenty-first"] == "einundzwanzigste"
    money = dict(number_word_pairs(500, kinds=["currency"]))
    assert all(" Euro und " in text for text in money.values())


@pytest.mark.parametrize(
    ("number", "kind", "english", "german"),
    [
        (1984, "year", "nineteen eighty-four", "neunzehnhundertvierundachtzig"),
        (2001, "year", "two thousand and one", "zweitausendeins"),
        (0, "cardinal", "zero", "null"),
        (100, "ordinal", "one hundredth", "hundertste"),
        (1.01, "currency", "one euro, one cent", "ein Euro und ein Cent"),
        (9999.1, "currency", None, "neuntausendneunhundertneunundneunzig Euro und "),
    ],
)
def test_words(number, kind, english, german):
    assert english is None or number_words._words(number, kind, "en") == english
    assert number_words._words(number, kind, "de").startswith(german)


def test_other_languages():
    pairs = number_word_pairs(40, kinds=["cardinal"], source="de", target="fr")
    assert ("zwei", "deux") in pairs


def test_same_seed_same_pairs():
    assert number_word_pairs(50, seed=3) == number_word_pairs(50, seed=3)
    assert number_word_pairs(50, seed=3) != number_word_pairs(50, seed=4)


def test_no_source_comes_twice():
    pairs = number_word_pairs(500)
    assert len(pairs) == 500 == len({source for source, _ in pairs})


def test_splits_share_nothing():
    parts = [set(number_word_pairs(400, split=split)) for split in SPLITS]
    sources = [{source for source, _ in part} for part in parts]
    for i in range(3):
        for j in range(i):
            assert not parts[i] & parts[j]
            assert not sources[i] & sources[j]


def test_each_number_has_one_split():
    splits = [number_split(number) for number in range(100, 20_000)]
    share = {split: splits.count(split) / len(splits) for split in SPLITS}
    assert share["train"] == pytest.approx(0.8, abs=0.02)
    assert share["validation"] == pytest.approx(0.1, abs=0.02)
    assert {number_split(number) for number in range(100)} == {"train"}
    assert number_split(1234) == number_split(1234.00)


def test_kinds_are_all_there():
    sources = [source for source, _ in number_word_pairs(300, kinds=KINDS)]
    assert any("euro" in text for text in sources)
    assert any(text.endswith(("th", "rd", "st", "nd")) for text in sources)


def test_bad_arguments():
    with pytest.raises(ValueError, match="`kinds` must be some of .* got .'roman'"):
        number_word_pairs(1, kinds=["roman"])
    with pytest.raises(ValueError, match="`split` must be one of .* got 'dev'"):
        number_word_pairs(1, split="dev")
    with pytest.raises(ValueError, match="`count` must be at most about .* got 2000"):
        number_word_pairs(2000, kinds=["year"], split="test")
    with pytest.raises(ValueError, match="languages that num2words writes .* 'xx'"):
        number_word_pairs(1, target="xx")
