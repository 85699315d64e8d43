"""LongformerAttention against the reference and dense attention, laws, errors."""

import numpy as np
import pytest

from keras_tfm import layers
from tests import numpy_layers
from tests.laws import assert_near, normal, randomize, to_numpy
from tests.sources import ROOT

B, T, D = 2, 131, 12
VARIANTS = {
    "one": {"num_heads": 3, "window": 5},
    "several": {"num_heads": 2, "window": 33, "global_tokens": 4, "key_dim": 5},
    "no_bias": {"num_heads": 3, "window": 1, "global_tokens": 2, "use_bias": False},
}
variants = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def make(config):
    layer = layers.LongformerAttention(**config)
    layer.build((None, None, D))
    return randomize(layer)


def test_equals_the_reference():
    golden = np.load(ROOT / "tests" / "golden" / "sparse_attention.npz")
    layer = layers.LongformerAttention(3, window=5, global_tokens=3)
    x, mask = golden["inputs"], golden["padding_mask"]
    layer.build(x.shape)
    names = "query", "key", "value", "query_global", "key_global", "value_global"
    ours = "query", "key", "value", "global_query", "global_key", "global_value"
    for name, own in zip(names, ours):
        weights = (golden[f"longformer/{name}.{kind}"] for kind in ("weight", "bias"))
        getattr(layer, own).set_weights([w.T for w in weights])
    layer.output_projection.set_weights([np.eye(D), np.zeros(D)])
    for given in ({}, {"return_attention_scores": True}):
        outputs = layer(x, padding_mask=mask, **given)
        outputs = to_numpy(outputs[0] if given else outputs)
        assert_near(outputs[mask], golden["longformer/outputs"][mask])


def by_hand(layer, x, keep):
    """The layer in NumPy: each projection's attention, global rows from the second."""
    count, place = layer.global_tokens, np.arange(x.shape[1])
    near = abs(place.reshape(-1, 1) - place) < layer.window
    near = near | (place < count)

    def attend(names, keep):
        heads = (
            numpy_layers.dense(getattr(layer, name), x).reshape(
                *x.shape[:2], layer.num_heads, -1
            )
            for name in names
        )
        return numpy_layers.attention(*heads, keep)[0]

    heads = attend(("query", "key", "value"), near & keep)
    every = attend(("global_query", "global_key", "global_value"), keep)
    heads[:, :count] = every[:, :count]
    return numpy_layers.dense(layer.output_projection, heads.reshape(*x.shape[:2], -1))


@variants
def test_matches_numpy(config):
    layer, x = make(config), normal(B, T, D)
    mask = np.arange(T) < [[T - 30], [T]]
    expected = by_hand(layer, x, mask[:, None, None])
    assert_near(to_numpy(layer(x, padding_mask=mask))[mask], expected[mask])
    x = x[:, :7]
    assert_near(layer(x), by_hand(layer, x, np.array(True)))


@variants
def test_scores_biases_and_masks_are_computed_densely(config):
    layer, x = make(config), normal(B, T, D)
    expected = layer(x)
    outputs, weights = layer(x, return_attention_scores=True)
    assert_near(outputs, expected)
    assert_near(np.sum(to_numpy(weights), axis=-1), np.ones((B, layer.num_heads, T)))
    assert_near(layer(x, attention_mask=np.ones((T, T), bool)), expected)
    assert_near(layer(x, attention_bias=np.zeros((1, 1, T, T), "float32")), expected)


def test_a_change_reaches_the_window_and_through_global_tokens_all():
    layer, x = make(VARIANTS["one"]), normal(1, T, D)
    other = x.copy()
    other[:, 70] += 1
    moved = np.abs(to_numpy(layer(other) - layer(x))).max((0, 2)) > 1e-6
    assert np.flatnonzero(moved).tolist() == [0, *range(66, 75)]
    other = x.copy()
    other[:, 0] += 1
    assert np.all(np.abs(to_numpy(layer(other) - layer(x))).max((0, 2)) > 1e-6)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_heads": 3, "window": 0}, "`window` must be at least 1, got 0"),
        ({"num_heads": 3, "window": 2, "global_tokens": 0}, "`global_tokens` must be"),
        ({"num_heads": 5, "window": 2}, "`num_heads` must divide"),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        make(config)
