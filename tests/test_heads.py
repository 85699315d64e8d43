"""Heads: counted, split, joined, declared."""

import keras
import numpy as np
import pytest

from keras_tfm.layers import MultiHeadAttention
from keras_tfm.layers.heads import (
    attention_spec,
    check_heads,
    check_width,
    head_size,
    join_heads,
    split_heads,
)
from tests.laws import assert_near, normal


def test_split_and_join():
    x = normal(2, 5, 12)
    heads = split_heads(x, 4)
    assert_near(heads, x.reshape(2, 5, 3, 4), atol=0)
    assert_near(join_heads(heads), x, atol=0)


def test_head_size():
    assert head_size(3, 12) == 4
    with pytest.raises(ValueError, match="got 5 heads and width 12; or give `key_dim`"):
        head_size(5, 12)


@pytest.mark.parametrize("heads", [(0, None), (6, 4), (6, 0), (6, 12)])
def test_check_heads(heads):
    with pytest.raises(ValueError, match=f"got {heads[0] if heads[1] is None else ''}"):
        check_heads(*heads)
    check_heads(6, 2)


def test_check_width():
    check_width(np.zeros((1, 2, 3)), 3, "inputs")
    with pytest.raises(ValueError, match="`inputs` must be 4 wide.*got 3"):
        check_width(np.zeros((1, 2, 3)), 4, "inputs")


def test_attention_spec():
    layer = MultiHeadAttention(3, dtype="mixed_bfloat16")
    x, context = keras.KerasTensor((None, 5, 12)), keras.KerasTensor((None, 7, 2))
    assert attention_spec(layer, x).shape == (None, 5, 12)
    outputs, weights = attention_spec(layer, x, context, True)
    assert weights.shape == (None, 3, 5, 7)
    assert outputs.dtype == weights.dtype == "bfloat16"
