"""Cutting long texts and packing short ones, for language models.

Letters: N windows, T length.
"""

import numpy as np


def next_token_windows(token_ids, length, stride=None):
    """Cut one long text into windows whose labels are the next tokens.

    Args:
        token_ids: int (n,), one text.
        length: int T.
        stride: int, the step from window to window; None means `length`: every label
            comes once, and only a last part shorter than T + 1 is left out.

    Returns: `(inputs, labels)`, int32 (N, T) each; `labels[:, t]` is the token after
        `inputs[:, t]`.

    Raises:
        ValueError: if the text is shorter than T + 1 tokens.
    """
    token_ids = np.asarray(token_ids, "int32")
    check_length(token_ids, length)
    stride = length if stride is None else stride
    if stride < 1:
        raise ValueError(f"`stride` must be positive, got {stride}.")
    windows = np.lib.stride_tricks.sliding_window_view(token_ids, length + 1)[::stride]
    return windows[:, :-1].copy(), windows[:, 1:].copy()


def check_length(token_ids, length):
    """Refuse a text that has no full window of `length` tokens and one more."""
    if length < 1:
        raise ValueError(f"`length` must be positive, got {length}.")
    if token_ids.ndim != 1 or len(token_ids) < length + 1:
        raise ValueError(
            f"`token_ids` must be one text of at least {length + 1} tokens "
            f"(`length` + 1), got shape {token_ids.shape}."
        )


def pack(sequences, length, eos_id):
    """Join texts, an end token after each, and cut the whole into equal rows.

    A row may begin in mid-text and hold several texts: GPT's packing, without padding.

    Args:
        sequences: list of int arrays.
        length: int T.
        eos_id: int, the token between texts.

    Returns: int32 (N, T); what is left over after the last full row is dropped.
    """
    parts = [np.append(np.asarray(s, "int32"), eos_id) for s in sequences]
    whole = np.concatenate([np.zeros(0, "int32"), *parts]).astype("int32")
    rows = len(whole) // length
    return whole[: rows * length].reshape(rows, length)


def pack_with_segments(sequences, length, pad_id=0):
    """Lay texts side by side in rows without cutting them, and number them.

    First fit: each text goes into the first row with room. A text longer than
    T is cut into pieces, each with a number of its own.

    Args:
        sequences: list of int arrays; empty ones are left out.
        length: int T.
        pad_id: int, fills the rest of a row.

    Returns: dict of int32 (N, T): "token_ids"; "segment_numbers", 1, 2, ... within a
        row and 0 on padding; "positions", from 0 within each text.
    """
    rows, room = [], []
    for sequence in sequences:
        sequence = np.asarray(sequence, "int32")
        for at in range(0, len(sequence), length):
            piece = sequence[at : at + length]
            row = next((i for i, r in enumerate(room) if r >= len(piece)), None)
            if row is None:
                row = len(rows)
                rows.append([])
                room.append(length)
            rows[row].append(piece)
            room[row] -= len(piece)
    packed = {
        "token_ids": np.full((len(rows), length), pad_id, "int32"),
        "segment_numbers": np.zeros((len(rows), length), "int32"),
        "positions": np.zeros((len(rows), length), "int32"),
    }
    for i, pieces in enumerate(rows):
        at = 0
        for number, piece in enumerate(pieces, start=1):
            here = slice(at, at + len(piece))
            packed["token_ids"][i, here] = piece
            packed["segment_numbers"][i, here] = number
            packed["positions"][i, here] = np.arange(len(piece))
            at += len(piece)
    return packed


def segment_attention_mask(segment_numbers):
    """Let each packed text attend to itself only (block-diagonal attention).

    Args:
        segment_numbers: int (B, T), 0 on padding.

    Returns: bool (B, T, T), True where attention is allowed; join it with a
        causal mask for a language model. Padding attends to nothing.
    """
    from keras import ops

    segment_numbers = ops.convert_to_tensor(segment_numbers)
    queries = ops.expand_dims(segment_numbers, 2)  # (B, T, 1)
    keys = ops.expand_dims(segment_numbers, 1)  # (B, 1, T)
    return ops.logical_and(ops.equal(queries, keys), ops.not_equal(keys, 0))
