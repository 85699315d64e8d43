"""Splits and the simplest baselines.

Letters: C num_classes.
"""

import numpy as np


def split_indices(count, fraction=0.1, seed=0, labels=None):
    """Split `range(count)` into a training and a held-out part.

    Args:
        count: int, how many examples there are.
        fraction: float in (0, 1), the share that is held out (at least one example
            where there are two or more).
        seed: int, the same seed gives the same split on every machine.
        labels: int (count,) or None. If given, every class is split by the same
            fraction (stratified).

    Returns: two sorted int arrays, `(train, held_out)`, which share nothing.

    Raises:
        ValueError: if `fraction` is not inside (0, 1).
    """
    if not 0 < fraction < 1:
        raise ValueError(f"`fraction` must be inside (0, 1), got {fraction}.")
    rng = np.random.default_rng(seed)
    groups = np.zeros(count, "int64") if labels is None else np.asarray(labels)
    train, held_out = [], []
    for group in np.unique(groups):
        members = rng.permutation(np.flatnonzero(groups == group))
        cut = round(len(members) * fraction)
        cut = min(max(cut, 1), len(members) - 1)
        held_out.append(members[:cut])
        train.append(members[cut:])
    empty = np.zeros(0, "int64")
    return (
        np.sort(np.concatenate([empty, *train])),
        np.sort(np.concatenate([empty, *held_out])),
    )


def majority_baseline(train_labels, labels=None):
    """Accuracy of always answering the commonest training class.

    Args:
        train_labels: int (n,), the labels that the majority is counted on.
        labels: int (m,) or None, the labels to score; None scores `train_labels`.

    Returns: float in [0, 1].
    """
    majority = np.bincount(np.asarray(train_labels)).argmax()
    scored = train_labels if labels is None else labels
    return float(np.mean(np.asarray(scored) == majority))
