"""Keys and values kept in place."""

import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.key_value_cache import empty_cache, extend_cache
from tests.laws import assert_near, normal, to_numpy

B, M, K, H = 2, 7, 3, 5


def test_new_tokens_stand_where_the_index_says():
    cache = empty_cache((B, K, M, H), "float32")
    key, value = normal(B, K, 2, H), normal(B, K, 2, H, seed=1)
    for index in (3, ops.convert_to_tensor(3, "int32")):
        after, given = extend_cache(cache, key, value, index)
        assert given["key"] is after["key"] and given["query_offset"] is index
        for name, new in (("key", key), ("value", value)):
            expected = np.zeros((B, K, M, H))
            expected[:, :, 3:5] = new
            assert_near(after[name], expected, atol=0)
    assert not np.any(to_numpy(cache["key"]))  # what was given is as it was


@pytest.mark.parametrize(("index", "length"), [(0, 8), (6, 2), (7, 1)])
def test_known_lengths_past_the_end_are_refused(index, length):  # FAULTS O31
    new = normal(B, K, length, H)
    with pytest.raises(ValueError, match=f"{length} tokens from {index} on.*holds 7"):
        extend_cache(empty_cache((B, K, M, H), "float32"), new, new, index)


def test_a_window_holds_the_newest_in_order():  # FAULTS O32
    x, real = normal(1, K, 9, H), np.array([[1, 1, 0, 1, 1, 1, 0, 1, 1]], bool)
    cache, start = empty_cache((1, K, 4, H), "float32"), 0
    for size in (3, 1, 5):
        new, end = x[:, :, start : start + size], start + size
        index = ops.convert_to_tensor(start, "int32")
        cache, given = extend_cache(cache, new, -new, index, real, window=4)
        assert int(given["query_offset"]) == 4
        keys, keep = (to_numpy(given[name]) for name in ("key", "padding_mask"))
        first = max(start - 4, 0)  # the oldest position that is there
        assert_near(keys[:, :, -(end - first) :], x[:, :, first:end], atol=0)
        assert keep[0].tolist() == [False] * (first - start + 4) + [
            bool(r) for r in real[0, first:end]
        ]
        assert_near(cache["value"], -keys[:, :, -4:], atol=0)
        start = end
