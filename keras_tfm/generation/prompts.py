"""Prompts as the decoding loop takes them: checked, padded on the left, bucketed.

Letters: B batch, S source length, T prompt length.
"""

import numpy as np
from keras import ops


def read_prompts(model, token_ids, padding_mask=None):
    """Prompts as arrays, padded on the left.

    Args:
        model: keeps the cache protocol.
        token_ids: int (B, T), or a dict with `source_token_ids` and
            `target_token_ids`.
        padding_mask: bool (B, T) or None.

    Returns: dict of `token_ids` int32 (B, T), `padding_mask` bool (B, T) and perhaps
        `source_token_ids` int32 (B, S).

    Raises:
        ValueError: an empty prompt, a row without a real token, ids out of range.
    """
    inputs = {}
    if isinstance(token_ids, dict):
        names = {"source_token_ids", "target_token_ids"}
        if set(token_ids) != names:
            raise ValueError(
                f"`token_ids` must be ids or a dict with {sorted(names)}, got the keys "
                f"{sorted(token_ids)}."
            )
        source = _ids(token_ids["source_token_ids"])
        _check_range(source, getattr(model, "vocabulary_size", None))
        inputs["source_token_ids"] = source
        token_ids = token_ids["target_token_ids"]
    ids = _ids(token_ids)
    mask = np.ones(ids.shape, bool)
    if padding_mask is not None:
        mask = np.asarray(ops.convert_to_numpy(padding_mask), bool)
        if mask.shape != ids.shape or not mask.any(axis=1).all():
            raise ValueError(
                "`padding_mask` must have the shape of the prompts and a real token in "
                f"every row, got {mask.shape} for {ids.shape}."
            )
        order = np.argsort(mask, axis=1, kind="stable")  # padding first
        ids = np.take_along_axis(np.where(mask, ids, 0), order, axis=1)
        mask = np.take_along_axis(mask, order, axis=1)
    _check_range(ids, vocabulary_of(model))
    return {**inputs, "token_ids": ids, "padding_mask": mask}


def vocabulary_of(model):
    """How many tokens a model may make, None if it does not say."""
    target = getattr(model, "target_vocabulary_size", None)
    return target or getattr(model, "vocabulary_size", None)


def room_of(model):
    """How many tokens a model has positions for, None for no limit."""
    if getattr(model, "position", "learned") != "learned":
        return None
    return getattr(model, "max_sequence_length", None)


def fit_to_buckets(model, inputs, max_new_tokens, spare=0, draft=None):
    """Pad to one of a few lengths, so that few lengths are compiled.

    Args:
        model: keeps the cache protocol.
        inputs: dict from `read_prompts`.
        max_new_tokens: int.
        spare: int, positions that the strategy needs beside them.
        draft: another model that reads the same tokens, or None.

    Returns: pair of the padded dict and int, the tokens that a row has room for: one
        more than the cache holds.

    Raises:
        ValueError: `max_new_tokens` below 1, more tokens than the model has positions.
    """
    length = inputs["token_ids"].shape[1]
    rooms = [room_of(one) for one in (model, draft) if one is not None]
    room = min((room for room in rooms if room is not None), default=None)
    if max_new_tokens < 1:
        raise ValueError(f"`max_new_tokens` must be at least 1, got {max_new_tokens}.")
    if room is not None and length + max_new_tokens + spare > room:
        guesses = f" and {spare} to try" if spare else ""
        raise ValueError(
            f"A prompt of {length} and {max_new_tokens} new tokens{guesses} are more "
            f"than the {room} of `max_sequence_length`."
        )
    source_room, room = room, None if room is None else room - spare
    left = bucket(length, None if room is None else room - max_new_tokens) - length
    padded = {
        "token_ids": np.pad(inputs["token_ids"], ((0, 0), (left, 0))),
        "padding_mask": np.pad(inputs["padding_mask"], ((0, 0), (left, 0))),
    }
    if "source_token_ids" in inputs:
        source = inputs["source_token_ids"]
        right = bucket(source.shape[1], source_room) - source.shape[1]
        pad_id = getattr(model, "pad_token_id", 0)
        source = np.pad(source, ((0, 0), (0, right)), constant_values=pad_id)
        padded["source_token_ids"] = source
    start = left + length
    left_room = None if room is None else room - start
    return padded, start + bucket(max_new_tokens, left_room) + 1


def bucket(length, limit=None):
    """The next length of 1, 16, 24, 32, 48, 64, 96, 128 ..., at most `limit`.

    Args:
        length: int, at least 1.
        limit: int, at least `length`, or None.

    Returns: int.

    Example:
        >>> [bucket(n) for n in (1, 2, 17, 33, 100)]
        [1, 16, 24, 48, 128]
    """
    size = 1 if length == 1 else 16
    while size < length:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size if limit is None else min(size, limit)


def _ids(token_ids):
    ids = np.asarray(ops.convert_to_numpy(token_ids))
    if ids.ndim != 2 or ids.shape[1] < 1:
        raise ValueError(
            f"Prompts must be ids of shape (B, T) with T > 0, got {ids.shape}."
        )
    return ids.astype("int32")


def _check_range(ids, vocabulary_size):
    if vocabulary_size is None or not ids.size:
        return
    low, high = ids.min(), ids.max()
    if low < 0 or high >= vocabulary_size:
        raise ValueError(
            f"Token ids must be from 0 to {vocabulary_size - 1}, got {low} to {high}."
        )
