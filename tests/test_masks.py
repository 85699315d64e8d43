"""Boolean masks: which keys a query may see."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.masks import as_bool, attention_keep
from tests.laws import compiled, to_numpy
from tests.numpy_layers import causal

B, T, S, N = 2, 5, 7, 3


@pytest.mark.parametrize(("length", "key_length", "offset"), [(5, 7, 2), (4, 4, 0)])
def test_causal_mask(length, key_length, offset):
    mask = to_numpy(layers.causal_mask(length, key_length, offset))
    assert mask.dtype == bool
    for t, s in np.ndindex(length, key_length):
        assert mask[t, s] == (s <= t + offset)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("window", [1, 3, 50])
def test_sliding_window_mask(window, is_causal):
    mask = to_numpy(layers.sliding_window_mask(T, S, window, 2, causal=is_causal))
    for t, s in np.ndindex(T, S):
        distance = t + 2 - s
        near = 0 <= distance < window if is_causal else abs(distance) < window
        assert mask[t, s] == near


def test_a_causal_window_holds_exactly_that_many_keys():  # FAULTS O32
    mask = to_numpy(layers.sliding_window_mask(10, window=4))
    assert mask.sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert np.flatnonzero(mask[9]).tolist() == [6, 7, 8, 9]


def test_lengths_may_be_tensors():
    def masks(length, key_length, offset):
        near = layers.sliding_window_mask(length, key_length, 2, offset)
        return layers.causal_mask(length, key_length, offset), near

    if keras.backend.backend() == "tensorflow":
        masks = compiled(masks)  # the lengths are known when the graph runs
    sizes = [ops.convert_to_tensor(n, "int32") for n in (T, S, 1)]
    past, near = to_numpy(list(masks(*sizes)))
    np.testing.assert_array_equal(past, causal(T, S, 1))
    np.testing.assert_array_equal(near, layers.sliding_window_mask(T, S, 2, 1))


def test_padding_mask():
    ids = np.array([[5, 0, 7], [0, 0, 1]])
    assert to_numpy(layers.padding_mask(ids)).tolist() == (ids != 0).tolist()
    assert to_numpy(layers.padding_mask(ids, pad_id=7)).tolist() == (ids != 7).tolist()


def test_combine_masks():
    one, other = np.array([[True, True], [False, True]]), np.array([[True, False]])
    assert layers.combine_masks(None, None) is None
    combined = to_numpy(layers.combine_masks(one, None, other))
    assert combined.tolist() == (one & other).tolist()
    assert to_numpy(layers.combine_masks(None, one)).tolist() == one.tolist()


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8", "float32", "float16"])
def test_zeros_and_ones_of_any_type_are_booleans(dtype):  # FAULTS O07
    expected = causal(4)
    mask = as_bool(expected.astype(dtype), "mask")
    assert keras.backend.standardize_dtype(mask.dtype) == "bool"
    np.testing.assert_array_equal(mask, expected)


def test_an_additive_mask_is_refused():  # FAULTS O07
    additive = np.where(causal(4), 0.0, -np.inf).astype("float32")
    with pytest.raises(ValueError, match="`attention_bias`"):
        as_bool(additive, "attention_mask")
    with pytest.raises(ValueError, match="`padding_mask` must be boolean"):
        as_bool(np.full((2, 3), -1e9, "float32"), "padding_mask")

    def traced(mask):
        return as_bool(mask, "attention_mask")

    with pytest.raises(ValueError, match="`attention_mask` must be boolean"):
        compiled(traced)(ops.convert_to_tensor(np.ones((2, 2), "float32")))


def test_attention_keep_is_the_and_of_all():
    rng = np.random.default_rng(0)
    padding, mask = rng.random((B, S)) < 0.7, rng.random((B, N, T, S)) < 0.7
    keep = to_numpy(attention_keep((T, S), padding, mask, True, 3, 1))
    near = to_numpy(layers.sliding_window_mask(T, S, 3, 1))
    np.testing.assert_array_equal(keep, padding[:, None, None] & mask & near)
    assert attention_keep((T, S)) is None


@pytest.mark.parametrize("shape", [(S,), (1, B, N, T, S)])
def test_masks_of_another_rank_are_refused(shape):
    with pytest.raises(ValueError, match=r"`attention_mask` must have shape \(T, S\)"):
        attention_keep((T, S), attention_mask=np.ones(shape, bool))
    with pytest.raises(ValueError, match=r"`padding_mask` must have shape \(B, S\)"):
        attention_keep((T, S), padding_mask=np.ones(shape, bool))


def test_a_window_below_one_is_refused():
    with pytest.raises(ValueError, match="`window` must be at least 1, got 0"):
        layers.sliding_window_mask(4, window=0)
