"""Corpus BLEU and chrF of translations, computed by sacrebleu."""

import typing


class Score(typing.NamedTuple):
    """A number from 0 to 100 and how it was computed, to be quoted together."""

    score: float
    signature: str


def corpus_bleu(hypotheses, references, lowercase=False):
    """BLEU of a whole corpus, on plain text, as papers report it.

    sacrebleu splits words itself (its "13a" tokenizer), so give it text, not
    tokens. Needs the `sacrebleu` package (extra `recipes`).

    Args:
        hypotheses: list of B strings, the translations.
        references: list of B strings, or of B equally long lists of strings when
            there are several good translations of each.
        lowercase: bool, ignore case. Defaults to False.

    Returns: `Score(score, signature)`: a float in [0, 100] and sacrebleu's line
        that says how it was computed.

    Raises:
        ValueError: nothing to score, or lists of different lengths.

    Example:
        >>> round(keras_tfm.training.corpus_bleu(["a b c d e"], ["a b c d e"]).score, 4)
        100.0

    References: Papineni et al. 2002; Post 2018, arXiv:1804.08771.
    """
    from sacrebleu.metrics import BLEU

    return _corpus_score(BLEU(lowercase=lowercase), hypotheses, references)


def corpus_chrf(hypotheses, references, lowercase=False):
    """chrF of a whole corpus: F-score of character sequences of up to 6.

    Fairer than BLEU to rich word forms and to texts of a single word. Needs the
    `sacrebleu` package (extra `recipes`).

    Args:
        hypotheses: list of B strings.
        references: list of B strings, or of B equally long lists of strings.
        lowercase: bool, ignore case. Defaults to False.

    Returns: `Score(score, signature)`, as for `corpus_bleu`.

    Raises:
        ValueError: nothing to score, or lists of different lengths.

    References: Popović 2015, https://aclanthology.org/W15-3049.
    """
    from sacrebleu.metrics import CHRF

    return _corpus_score(CHRF(lowercase=lowercase), hypotheses, references)


def _corpus_score(metric, hypotheses, references):
    if isinstance(hypotheses, str) or not list(hypotheses):
        raise ValueError(f"`hypotheses` must be a list of strings, got {hypotheses!r}.")
    hypotheses, references = list(hypotheses), list(references)
    if len(hypotheses) != len(references):
        raise ValueError(
            "`references` must hold one entry per hypothesis, got "
            f"{len(references)} for {len(hypotheses)}."
        )
    rows = [[row] if isinstance(row, str) else list(row) for row in references]
    if len({len(row) for row in rows}) > 1 or not rows[0]:
        raise ValueError(
            "`references` must hold the same number of strings for every "
            f"hypothesis, got {sorted({len(row) for row in rows})}."
        )
    streams = [list(stream) for stream in zip(*rows)]
    result = metric.corpus_score(hypotheses, streams)
    return Score(float(result.score), str(metric.get_signature()))
