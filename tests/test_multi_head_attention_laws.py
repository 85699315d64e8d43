"""The laws that MultiHeadAttention keeps, with each of its options, and its cache."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from tests import laws, numpy_layers
from tests.laws import assert_near, compiled, differs, normal, to_numpy
from tests.test_multi_head_attention import (
    SOURCE,
    VARIANTS,
    B,
    D,
    S,
    T,
    make,
    variants,
)


@variants
def test_causal(config):
    layer = make(config)

    def run(x):
        return to_numpy(layer(x, use_causal_mask=True))

    laws.later_tokens_change_nothing_before(run, normal(B, T, D), lambda x: 2 * x + 1)


@variants
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding(config, side, causal):
    layer = make(config)

    def run(x, mask):
        given = {}
        if layer.rotary is not None:
            given["positions"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        return to_numpy(layer(x, padding_mask=mask, use_causal_mask=causal, **given))

    padding = 100 * normal(B, 3, D)
    laws.padding_changes_nothing(run, normal(B, T, D), padding, side)


@variants
def test_cached_equals_full(config):  # FAULTS O27, O32
    layer, x = make(config), normal(B, 10, D)
    full = to_numpy(layer(x, use_causal_mask=True))
    chunks = [1] * 10, [10], [2, 1, 7], [3, 4, 3]  # a window of 3, once more, less
    for capacity in (10, 13):  # FAULTS O30
        laws.cached_equals_full(layer, x, full, capacity, chunks=chunks)


@variants
def test_cached_equals_full_with_padding(config):  # FAULTS O27, O29
    layer, x = make(config), normal(B, T, D)
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 0, 1]], bool)
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype("int32")
    where = {} if layer.rotary is None else {"positions": positions}
    full = to_numpy(layer(x, padding_mask=mask, use_causal_mask=True, **where))
    covers = np.concatenate([mask, np.ones((B, 2), bool)], axis=1)
    laws.cached_equals_full(layer, x, full, T + 2, padding_mask=covers, **where)


@variants
def test_cached_cross_attention(config):  # FAULTS O28
    x, context = normal(B, T, D), normal(B, S, SOURCE)
    layer = make(config, x.shape, context.shape)
    mask = np.arange(S) < [[S], [S - 3]]
    full = to_numpy(layer(x, context=context, padding_mask=mask))
    laws.cached_equals_full(layer, x, full, T, context, context_padding_mask=mask)
    cache = layer.init_cache(B, T, context)
    after = layer.call_with_cache(x[:, :1], cache, ops.convert_to_tensor(0))[1]
    assert all(after[key] is cache[key] for key in cache)  # computed once, not extended


@pytest.mark.parametrize("name", ["plain", "grouped", "rms", "cap"])
def test_permutation(name):
    layer = make(VARIANTS[name])
    laws.permutation_commutes(lambda x: to_numpy(layer(x)), normal(B, T, D))


@pytest.mark.parametrize("name", ["rotary", "alibi", "buckets", "window"])
def test_positions_break_the_permutation(name):
    layer, x = make(VARIANTS[name]), normal(B, T, D)
    order = np.array([3, 1, 4, 0, 2])
    assert differs(layer(x[:, order]), to_numpy(layer(x))[:, order])


def test_rotary_depends_on_distance_only():
    layer, x = make(VARIANTS["rotary"]), normal(B, T, D)
    near = layer(x, positions=np.arange(T))
    assert_near(layer(x, positions=np.arange(T) + 37), near)
    assert differs(layer(x, positions=2 * np.arange(T)), near)


@variants
def test_rows_without_a_key_give_the_bias(config):  # FAULTS O06
    layer, x = make(config), normal(B, T, D)
    mask = np.array([[0, 0, 1, 1, 1], [0] * T], bool)
    empty = np.array([[1, 1, 0, 0, 0], [1] * T], bool)
    bias = layer.output_projection.bias
    bias = np.zeros(D) if bias is None else bias
    masks = {"padding_mask": mask, "use_causal_mask": True}
    laws.masked_rows_are_empty(layer, x, masks, empty, to_numpy(bias))


def test_left_padding_leaves_gradients_alone():  # FAULTS O06
    layer, x = make(VARIANTS["plain"]), normal(1, 4, D)
    mask = np.array([[0, 0, 1, 1]], bool)

    def padded(x):
        outputs = layer(x, padding_mask=mask, use_causal_mask=True)
        return ops.sum(outputs[:, 2:] ** 2)

    def alone(x):
        return ops.sum(layer(x, use_causal_mask=True) ** 2)

    of_x, *of_weights = laws.gradients(padded, x, layer)
    expected_x, *expected = laws.gradients(alone, x[:, 2:], layer)
    assert_near(of_x[:, 2:], expected_x)
    for gradient, wanted in zip(of_weights, expected):
        assert_near(gradient, wanted)


def test_every_argument_counts():
    x, context = normal(B, T, D), normal(B, S, D)
    config = {**VARIANTS["rotary"], "attention_dropout": 0.5}
    layer = make(config)
    keep, seen = np.arange(T) < [[3], [T]], np.arange(S) < [[3], [S]]
    laws.every_argument_counts(
        layer,
        x,
        {
            "context": context,
            "padding_mask": keep,
            "attention_mask": numpy_layers.causal(T),
            "attention_bias": normal(3, T, T),
            "positions": 3 * np.arange(T),
            "use_causal_mask": True,
            "return_attention_scores": True,
            "training": True,
            "mask": keep,
            "inputs_mask": keep,
            "context_mask": (seen, {"context": context}),
        },
    )


def test_masks_are_joined():  # FAULTS O02
    layer, x = make(VARIANTS["plain"]), normal(B, T, D)
    one, other = np.arange(T) < [[3], [T]], np.arange(T) >= [[1], [2]]
    expected = layer(x, padding_mask=one & other)
    assert_near(layer(x, padding_mask=one, mask=other), expected)
    assert_near(layer(x, padding_mask=other, inputs_mask=one), expected)
    with_bias = {"attention_bias": np.zeros((1, 1, T, T), "float32")}
    assert_near(layer(x, padding_mask=one, mask=other, **with_bias), expected)


def test_the_mask_of_inputs_is_not_that_of_the_context():  # FAULTS O09
    x, context = normal(B, T, D), normal(B, S, D)
    layer = make(VARIANTS["plain"])
    keep = np.arange(T) < [[3], [T]]
    assert_near(layer(x, context=context, inputs_mask=keep), layer(x, context=context))


def test_a_step_of_decoding_is_traced_once():  # FAULTS O52
    layer, x, traces = make(VARIANTS["rotary"]), normal(B, 20, D), []

    def step(x, cache, index):
        traces.append(1)
        return layer.call_with_cache(x, cache, index)

    step, cache = compiled(step), layer.init_cache(B, 20)
    rows = []
    for i in range(20):
        outputs, cache = step(
            ops.convert_to_tensor(x[:, i : i + 1]), cache, ops.convert_to_tensor(i)
        )
        rows.append(to_numpy(outputs))
    assert len(traces) == 1
    assert_near(np.concatenate(rows, 1), layer(x, use_causal_mask=True))


def test_refused_caches():
    layer, x = make(VARIANTS["plain"]), normal(B, T, D)
    with pytest.raises(ValueError, match="must be built"):
        layers.MultiHeadAttention(3).init_cache(B, 4)
    with pytest.raises(ValueError, match="must be built"):
        layers.MultiHeadAttention(3).call_with_cache(x, {}, 0)
    with pytest.raises(ValueError, match="`inputs` has 5 tokens.*holds 4"):
        layer.call_with_cache(x, layer.init_cache(B, 4), ops.convert_to_tensor(0))
    with pytest.raises(ValueError, match="holds 8"):  # FAULTS O31
        layer.call_with_cache(x, layer.init_cache(B, 8), 6)
