"""Windows and packing: exact rows, nothing lost, nothing mixed."""

import numpy as np
import pytest
from keras import ops

from keras_tfm.data import (
    next_token_windows,
    pack,
    pack_with_segments,
    segment_attention_mask,
)


def test_next_token_windows():
    inputs, labels = next_token_windows(np.arange(8), 3)
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert labels.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert inputs.dtype == labels.dtype == np.int32


def test_windows_with_a_stride():
    inputs, labels = next_token_windows([5, 6, 7, 8], 2, stride=1)
    assert inputs.tolist() == [[5, 6], [6, 7]]
    assert labels.tolist() == [[6, 7], [7, 8]]


def test_every_label_comes_once():
    _, labels = next_token_windows(np.arange(31), 5)
    assert labels.ravel().tolist() == list(range(1, 31))


@pytest.mark.parametrize("length", [4, 9])
def test_text_too_short(length):
    with pytest.raises(ValueError, match=rf"one text of at least {length + 1} tokens"):
        next_token_windows(np.arange(4), length)
    with pytest.raises(ValueError, match="got shape .2, 9."):
        next_token_windows(np.zeros((2, 9)), length)


def test_bad_window_sizes():
    with pytest.raises(ValueError, match="`stride` must be positive, got 0"):
        next_token_windows(np.arange(4), 2, stride=0)
    with pytest.raises(ValueError, match="`length` must be positive, got 0"):
        next_token_windows(np.arange(4), 0)


def test_pack():
    rows = pack([[1, 2, 3], [], [4, 5]], 3, eos_id=9)
    assert rows.tolist() == [[1, 2, 3], [9, 9, 4]]  # 5, 9 are left over
    assert rows.dtype == np.int32
    assert pack([], 3, eos_id=9).shape == (0, 3)


def test_pack_with_segments():
    packed = pack_with_segments([[1, 1], [2, 2, 2], [3], [], [4] * 5], 4)
    assert packed["token_ids"].tolist() == [
        [1, 1, 3, 4],
        [2, 2, 2, 0],
        [4, 4, 4, 4],
    ]
    assert packed["segment_numbers"].tolist() == [
        [1, 1, 2, 3],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
    ]
    assert packed["positions"].tolist() == [
        [0, 1, 0, 0],
        [0, 1, 2, 0],
        [0, 1, 2, 3],
    ]


def test_packing_loses_no_token():
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, 50, rng.integers(0, 20)) for _ in range(40)]
    packed = pack_with_segments(texts, 16)
    ids = packed["token_ids"][packed["segment_numbers"] > 0]
    assert sorted(ids) == sorted(np.concatenate(texts))
    assert packed["token_ids"].shape[0] < 40


def test_segment_attention_mask():
    mask = segment_attention_mask(np.array([[1, 1, 2, 0]]))
    assert ops.convert_to_numpy(mask).astype(int).tolist() == [
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    ]
