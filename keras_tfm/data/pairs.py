"""Sentence pairs: BERT's next-sentence task, and packing two texts into one row.

Letters: B batch, T length.
"""

import numpy as np


def next_sentence_pairs(documents, seed=0):
    """Make pairs for next-sentence prediction: half true neighbours, half strangers.

    The label is that of the published checkpoints: 0 means the second sentence is the
    next one, 1 means it is not.

    Args:
        documents: list of lists of sentences (str or token ids); at least two hold one.
        seed: int.

    Returns: `(first, second, labels)`: two lists of sentences, int32 array. A stranger
        comes from another document.

    Raises:
        ValueError: if fewer than two documents hold a sentence.

    References: Devlin et al. 2018, sec. 3.1, arXiv:1810.04805.
    """
    documents = [list(document) for document in documents if len(document)]
    if len(documents) < 2:
        raise ValueError(
            "`documents` must hold at least two documents with a sentence, "
            f"got {len(documents)}."
        )
    rng = np.random.default_rng(seed)
    first, second, labels = [], [], []
    for number, document in enumerate(documents):
        for sentence, following in zip(document, document[1:]):
            stranger = rng.random() < 0.5
            if stranger:
                other = int(rng.integers(len(documents) - 1))
                other = documents[other + (other >= number)]
                following = other[int(rng.integers(len(other)))]
            first.append(sentence)
            second.append(following)
            labels.append(int(stranger))
    return first, second, np.array(labels, "int32")


def truncate_pair(first, second, room):
    """Shorten the longer of two texts until both fit.

    Args:
        first: int array or list.
        second: int array or list.
        room: int, how many tokens both may have together.

    Returns: `(first, second)`; of two equally long ones the second is cut.
    """
    excess = len(first) + len(second) - room
    if excess <= 0:
        return first, second
    gap = len(first) - len(second)
    level = excess - min(abs(gap), excess)  # left to cut once both are equally long
    cut_first = max(min(gap, excess), 0) + level // 2
    cut_second = max(min(-gap, excess), 0) + level - level // 2
    return first[: len(first) - cut_first], second[: len(second) - cut_second]


def pack_pair(first, second, max_length, start_id, end_id):
    """Write two texts into one row: [CLS] first [SEP] second [SEP].

    Args:
        first: int array, without special tokens.
        second: int array, or None for a single text: [CLS] first [SEP].
        max_length: int, the longest row; the longer text is cut first.
        start_id: int, [CLS].
        end_id: int, [SEP].

    Returns: `(token_ids, segment_ids)`, int32 arrays of one length; segment 0 is
        [CLS] first [SEP], segment 1 is second [SEP].

    Raises:
        ValueError: if `max_length` has no room for the special tokens.
    """
    specials = 2 if second is None else 3
    if max_length < specials:
        raise ValueError(f"`max_length` must be at least {specials}, got {max_length}.")
    if second is None:
        row = [start_id, *first[: max_length - 2], end_id]
        return np.array(row, "int32"), np.zeros(len(row), "int32")
    first, second = truncate_pair(first, second, max_length - 3)
    row = [start_id, *first, end_id, *second, end_id]
    segments = np.zeros(len(row), "int32")
    segments[len(first) + 2 :] = 1
    return np.array(row, "int32"), segments
