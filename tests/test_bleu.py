import pytest
import sacrebleu

from keras_tfm.training import corpus_bleu, corpus_chrf

HYPOTHESES = ["The cat sat on the mat .", "a dog runs fast in the park today"]
REFERENCES = ["The cat is on the mat .", "A dog runs quickly in the park today"]


def test_bleu_by_hand():
    """One sentence: precisions 4/5, 3/4, 2/3, 1/2, no brevity penalty."""
    score, signature = corpus_bleu(["a b c d x"], ["a b c d e"])
    assert score == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert "nrefs:1" in signature and "version:" in signature


def test_equals_sacrebleu():
    score, _ = corpus_bleu(HYPOTHESES, REFERENCES)
    assert score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    score, signature = corpus_chrf(HYPOTHESES, REFERENCES)
    assert score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert "nc:6" in signature


@pytest.mark.parametrize("score", [corpus_bleu, corpus_chrf])
def test_perfect_hopeless_and_case(score):
    assert score(REFERENCES, REFERENCES).score == pytest.approx(100.0)
    assert score(["zzzz"], ["aaaa bbbb"]).score == pytest.approx(0.0, abs=1e-6)
    strict = score(HYPOTHESES, [x.upper() for x in HYPOTHESES])
    loose = score(HYPOTHESES, [x.upper() for x in HYPOTHESES], lowercase=True)
    assert loose.score == pytest.approx(100.0) and strict.score < 50.0
    assert "case:lc" in loose.signature or "case:" in loose.signature
    assert loose.signature != strict.signature


def test_it_is_a_corpus_score_and_not_a_mean():
    pairs = list(zip(HYPOTHESES, REFERENCES))
    mean = sum(corpus_bleu([h], [r]).score for h, r in pairs) / 2
    assert corpus_bleu(HYPOTHESES, REFERENCES).score != pytest.approx(mean, abs=0.1)


def test_several_references():
    several = [[REFERENCES[0], HYPOTHESES[0]], [REFERENCES[1], HYPOTHESES[1]]]
    score, signature = corpus_bleu(HYPOTHESES, several)
    assert score == pytest.approx(100.0) and "nrefs:2" in signature


@pytest.mark.parametrize("score", [corpus_bleu, corpus_chrf])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [], "`hypotheses` must be a list of strings"),
        ("a string", ["a"], "`hypotheses` must be a list of strings"),
        (["a"], ["a", "b"], "one entry per hypothesis, got 2 for 1"),
        (["a", "b"], [["a"], ["b", "c"]], r"same number of strings.*\[1, 2\]"),
        (["a"], [[]], r"same number of strings.*\[0\]"),
    ],
)
def test_refuses(score, hypotheses, references, message):
    with pytest.raises(ValueError, match=message):
        score(hypotheses, references)
