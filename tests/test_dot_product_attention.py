"""scaled_dot_product_attention: softmax(q k / sqrt(H) + bias) v."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from keras_tfm.layers import scaled_dot_product_attention as attend
from tests import numpy_layers
from tests.laws import HAS_FLOAT64, assert_near, compiled, gradients, normal, to_numpy

B, T, S, N, K, H = 2, 5, 7, 6, 3, 4  # coprime where they may be
SIZES = [(B, T, S, N, K, H), (4, 4, 4, 4, 4, 4), (2, 3, 5, 4, 1, 6)]  # FAULTS O08


def triple(batch=B, length=T, key_length=S, num_heads=N, key_heads=K, key_dim=H):
    return (
        normal(batch, length, num_heads, key_dim, seed=1),
        normal(batch, key_length, key_heads, key_dim, seed=2),
        normal(batch, key_length, key_heads, key_dim, seed=3),
    )


def random_mask(*shape):
    return np.random.default_rng(4).random(shape) < 0.6


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("cap", [None, 0.8])
def test_matches_numpy(sizes, cap):
    batch, length, key_length, num_heads, _, _ = sizes
    q, k, v = triple(*sizes)
    full = (batch, num_heads, length, key_length)
    padding, mask, bias = (
        random_mask(batch, key_length),
        random_mask(*full),
        normal(*full),
    )
    keep = padding[:, None, None] & mask & numpy_layers.causal(length, key_length, 1)
    outputs, weights = attend(
        *(q, k, v, padding, mask, bias, True),
        query_offset=1,
        logit_soft_cap=cap,
        scale=0.7,
        return_attention_scores=True,
    )
    expected = numpy_layers.attention(q, k, v, keep, bias, 0.7, cap)
    assert_near(outputs, expected[0])
    assert_near(weights, expected[1])
    sums = to_numpy(weights).sum(-1)
    assert_near(sums, keep.any(-1).astype("float32"))


def test_defaults_match_numpy():
    q, k, v = triple()
    assert_near(attend(q, k, v), numpy_layers.attention(q, k, v)[0])


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("is_causal", [True, False])
def test_window(window, is_causal):
    q, k, v = triple()
    keep = to_numpy(layers.sliding_window_mask(T, S, window, 2, is_causal))
    outputs = attend(q, k, v, window=window, use_causal_mask=is_causal, query_offset=2)
    assert_near(outputs, numpy_layers.attention(q, k, v, keep)[0])


def test_masks_of_every_rank():  # FAULTS O08
    size = 4  # all axes equal, so that a wrong one would fit
    q, k, v = triple(*[size] * 6)
    square = numpy_layers.causal(size)
    expected = numpy_layers.attention(q, k, v, square)[0]
    for shape in ((), (1,), (size,), (1, 1), (size, 1), (size, size)):
        mask = np.broadcast_to(square, (*shape, size, size))
        assert_near(attend(q, k, v, attention_mask=mask), expected)
    by_head = random_mask(size, size, size)[None]
    actual = attend(q, k, v, attention_mask=np.broadcast_to(by_head, (size,) * 4))
    assert_near(actual, numpy_layers.attention(q, k, v, by_head)[0])
    by_example = random_mask(size, size, size)
    actual = attend(q, k, v, attention_mask=by_example)
    assert_near(actual, numpy_layers.attention(q, k, v, by_example[:, None])[0])


def test_key_mask_with_fewer_keys_than_queries():  # FAULTS O10
    q, k, v = triple(2, 7, 4, 3, 3, 5)
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)
    outputs = to_numpy(attend(q, k, v, mask))
    assert_near(outputs, numpy_layers.attention(q, k, v, mask[:, None, None])[0])
    assert np.all(np.abs(outputs).max((2, 3)) > 0)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "float16"])
def test_masks_of_every_type(dtype):  # FAULTS O07
    q, k, v = triple()
    padding, mask = random_mask(B, S), random_mask(B, T, S)
    expected = attend(q, k, v, padding, mask)
    actual = attend(q, k, v, padding.astype(dtype), mask.astype(dtype))
    assert_near(actual, expected, atol=0)


def test_causal_twice_is_causal_once():  # FAULTS O12
    for length in range(1, 71):
        q, k, v = triple(1, length, length, 1, 1, 2)
        mask = layers.causal_mask(length)
        both = attend(q, k, v, attention_mask=mask, use_causal_mask=True)
        assert_near(both, attend(q, k, v, use_causal_mask=True), atol=1e-6)
        assert_near(both, attend(q, k, v, attention_mask=mask), atol=1e-6)


def test_values_of_ones_give_ones():
    q, k, v = triple()
    for masks in ({}, {"padding_mask": np.arange(S) < [[3], [6]]}, {"window": 2}):
        outputs = attend(q, k, np.ones_like(v), use_causal_mask=True, **masks)
        assert_near(outputs, np.ones((B, T, N, H)))


@pytest.mark.parametrize("cap", [None, 5.0])
def test_rows_without_a_key_are_zero(cap):  # FAULTS O06
    q, k, v = triple()
    padding = np.array([[0, 0, 1, 1, 1, 1, 1], [0] * S], bool)
    where = {"padding_mask": padding, "use_causal_mask": True, "logit_soft_cap": cap}
    outputs = to_numpy(attend(q, k, v, **where))
    assert np.all(outputs[0, :2] == 0) and np.all(outputs[1] == 0)
    assert np.all(np.abs(outputs[0, 2:]).max(-1) > 0)
    for changed, others in ((q, (k, v)), (k, (q, v)), (v, (q, k))):

        def loss(x, changed=changed, others=others):
            tensors = {id(changed): x}
            q_, k_, v_ = (tensors.get(id(y), y) for y in (q, k, v))
            return ops.sum(attend(q_, k_, v_, **where) ** 2)

        gradient = gradients(loss, changed)[0]
        assert np.all(np.isfinite(gradient))
        assert np.all(gradient[1] == 0) and np.any(gradient[0] != 0)


# JAX has no float64 unless it is told to.
FLOAT64 = pytest.param("float64", marks=pytest.mark.tensorflow)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", FLOAT64])
def test_masks_win_at_any_precision(dtype):  # FAULTS O13
    q, k, v = (ops.cast(x, dtype) for x in triple(1, 3, 4, 1, 1, 2))
    bias = np.full((3, 4), -3e4, "float32")
    bias[:, 1] = 100.0  # masked below, so of no effect
    mask = np.ones((3, 4), bool)
    mask[:, 1] = False
    outputs, weights = attend(
        *(q, k, v, None, mask, bias), return_attention_scores=True
    )
    weights = to_numpy(weights)
    assert np.all(weights[..., 1] == 0)
    assert_near(weights.sum(-1), np.ones((1, 1, 3)), atol=1e-2)
    assert np.all(np.isfinite(to_numpy(outputs)))
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_large_scores_at_half_precision(dtype):  # FAULTS O13
    q, k, v = triple(1, 8, 8, 2, 2, 16)
    q, k = q * 10, k * 10  # scores of a hundred and more
    q, k = (to_numpy(ops.cast(ops.cast(x, dtype), "float32")) for x in (q, k))
    expected = attend(q, k, v, use_causal_mask=True)
    half = (ops.cast(x, dtype) for x in (q, k, v))
    outputs = to_numpy(attend(*half, use_causal_mask=True))
    assert np.all(np.isfinite(outputs.astype("float32")))
    error = np.abs(outputs.astype("float32") - to_numpy(expected))
    assert error.mean() < 2e-2


@pytest.mark.tensorflow
@pytest.mark.skipif(not HAS_FLOAT64, reason="needs float64")
def test_float64_stays_float64():
    q, k, v = (x.astype("float64") for x in triple())
    expected = numpy_layers.attention(q, k, v)[0]
    np.testing.assert_allclose(to_numpy(attend(q, k, v)), expected, atol=1e-12)


def test_dropout_is_applied_to_the_weights():
    q, k, v = triple()
    outputs, weights = attend(
        q, k, v, dropout=lambda w: 2 * w, return_attention_scores=True
    )
    assert_near(outputs, 2 * to_numpy(attend(q, k, v)))
    assert_near(weights, numpy_layers.attention(q, k, v)[1])


@pytest.mark.parametrize("jit", [False, True])
def test_graph_and_jit_agree_with_eager(jit):  # FAULTS O52
    q, k, v = triple()
    padding = random_mask(B, S)

    def run(q, k, v, padding):
        return attend(q, k, v, padding, use_causal_mask=True, query_offset=2)

    tensors = [ops.convert_to_tensor(x) for x in (q, k, v, padding)]
    assert_near(compiled(run, jit)(*tensors), run(q, k, v, padding))


@pytest.mark.parametrize(("batch", "length"), [(0, 3), (2, 0)])
def test_no_rows_and_no_queries(batch, length):  # FAULTS O66
    q, k, v = triple(batch, length, S, N, K, H)
    assert attend(q, k, v).shape == (batch, length, N, H)
    assert attend(q, k[:, :0], v[:, :0]).shape == (batch, length, N, H)


def test_no_keys_give_zeros():  # FAULTS O66
    q, k, v = triple()
    outputs = attend(q, k[:, :0], v[:, :0], padding_mask=np.ones((B, 0), bool))
    assert_near(outputs, np.zeros((B, T, N, H)))


def test_heads_that_do_not_divide_are_refused():
    q, k, v = triple(num_heads=5, key_heads=3)
    with pytest.raises(ValueError, match="query heads, 5, must be a multiple"):
        attend(q, k, v)
