"""BigBirdAttention against the reference and dense attention, its blocks, laws."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.big_bird_blocks import BlockPattern
from tests.laws import assert_near, normal, randomize, to_numpy
from tests.sources import ROOT

B, T, D, N = 2, 131, 12, 3
VARIANTS = {
    "itc": {"block_size": 8},
    "itc_two": {"block_size": 8, "first_blocks": 2, "last_blocks": 2},
    "etc": {"block_size": 9, "first_blocks": 0, "last_blocks": 0, "global_tokens": 3},
    "both": {"block_size": 7, "global_tokens": 2, "random_blocks": 1, "key_dim": 5},
    "no_random": {"block_size": 10, "random_blocks": 0, "last_blocks": 0},
}
variants = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def make(config):
    layer = layers.BigBirdAttention(N, **config)
    layer.build((None, None, D))
    return randomize(layer)


def dense_twin(layer):
    twin = layers.MultiHeadAttention(N, layer.key_dim, implementation="dense")
    twin.build((None, None, D))
    twin.set_weights(layer.get_weights())
    return twin


def test_equals_the_reference():
    golden = np.load(ROOT / "tests" / "golden" / "sparse_attention.npz")
    layer = layers.BigBirdAttention(N, block_size=8, random_blocks=2)
    x, mask = golden["inputs"], golden["padding_mask"]
    layer.build(x.shape)
    for name in ("query", "key", "value"):
        weights = (golden[f"big_bird/{name}.{kind}"] for kind in ("weight", "bias"))
        getattr(layer, name).set_weights([w.T for w in weights])
    layer.output_projection.set_weights([np.eye(D), np.zeros(D)])
    blocks = golden["big_bird/random_blocks"].transpose(1, 0, 2)  # (C - 2, N, R)
    blocks = ops.convert_to_tensor(np.pad(blocks, ((1, 1), (0, 0), (0, 0)))[None])
    chosen = ops.cast(blocks, "int32"), ops.ones_like(blocks, dtype="bool")
    layer._pattern._random = lambda *_: chosen
    for given in ({}, {"return_attention_scores": True}):
        outputs = layer(x, padding_mask=mask, **given)
        outputs = to_numpy(outputs[0] if given else outputs)
        assert_near(outputs[mask], golden["big_bird/outputs"][mask])


def seen_by_hand(layer, length, used=None):
    """Which keys each query sees, bool (N, T, T), from the layer's random blocks."""
    size, outer = layer.block_size, layer.global_tokens
    count = -(-(length - outer) // size)
    used = count if used is None else used
    numbers, counted = layer._pattern.choose(np.array([used], "int32"), count)
    numbers, counted = to_numpy(numbers)[0], to_numpy(counted)[0]
    everywhere = set(range(layer.first_blocks))
    everywhere |= set(range(used - layer.last_blocks, used))
    blocks = np.zeros((N, count, count), bool)
    for block, head in np.ndindex(count, N):
        chosen = numbers[block, head][counted[block, head]]
        assert len(set(chosen)) == len(chosen)  # none counts twice
        near = {n for n in (block - 1, block, block + 1) if 0 <= n < used}
        assert near | everywhere <= set(chosen)
        others = set(chosen) - near - everywhere
        left = used - len(near | everywhere)
        assert len(others) == min(layer.random_blocks, left)
        blocks[head, block, chosen] = True
        if block in everywhere:
            blocks[head, block] = True
    seen = blocks.repeat(size, 1).repeat(size, 2)
    seen = np.pad(seen, ((0, 0), (outer, 0), (outer, 0)), constant_values=True)
    return seen[:, :length, :length]


@variants
def test_equals_dense(config):
    layer, x = make(config), normal(B, T, D)
    seen = seen_by_hand(layer, T)
    assert not seen.all()
    twin = dense_twin(layer)
    mask = np.arange(T) < [[T], [T - 1]]  # as many blocks
    given = {"padding_mask": mask, "return_attention_scores": True}
    expected = twin(x, attention_mask=seen[None].repeat(B, 0), **given)
    assert_near(
        to_numpy(layer(x, padding_mask=mask))[mask], to_numpy(expected[0])[mask]
    )
    outputs, weights = layer(x, **given)
    assert_near(to_numpy(outputs)[mask], to_numpy(expected[0])[mask])
    by_query = (0, 2, 1, 3)
    actual, wanted = (to_numpy(w).transpose(by_query) for w in (weights, expected[1]))
    assert_near(actual[mask], wanted[mask])


@pytest.mark.parametrize("length", [1, 7, 8, 9, 37, 56])  # FAULTS O71
def test_short_rows_are_attended_to_in_full(length):
    layer, x = make(VARIANTS["itc"]), normal(B, length, D)
    expected = dense_twin(layer)(x)
    assert_near(layer(x), expected)
    padded = np.concatenate([x, 100 * normal(B, T - length, D)], axis=1)
    outputs = layer(padded, padding_mask=np.arange(T) < np.full((B, 1), length))
    assert_near(outputs[:, :length], expected)


def test_random_blocks_lie_anywhere_and_stay():  # FAULTS O71
    pattern = BlockPattern(1, 1, 3, 4, seed=5)
    used = np.array([64, 20], "int32")
    numbers, counted = (to_numpy(x) for x in pattern.choose(used, 64))
    again = to_numpy(BlockPattern(1, 1, 3, 4, seed=5).choose(used, 64)[0])
    np.testing.assert_array_equal(numbers, again)
    other = to_numpy(BlockPattern(1, 1, 3, 4, seed=6).choose(used, 64)[0])
    assert np.mean(other != numbers) > 0.3
    random = numbers[0, 1:-1, :, 3:6]  # behind the three that are near
    assert counted[0, 1:-1, :, 3:6].all()
    shares = np.bincount(random.reshape(-1), minlength=64)[1:-1] / random.size
    assert shares.min() > 0.2 / 62 and shares.max() < 2.5 / 62
    assert numbers[1][counted[1]].max() == 19  # none in the padding
    assert len({tuple(random[30, head]) for head in range(4)}) > 1


def test_later_rows_of_the_table_are_used_again():
    pattern = BlockPattern(1, 1, 2, 1, seed=0)
    numbers, counted = (
        to_numpy(x) for x in pattern.choose(np.array([1500], "int32"), 1500)
    )
    assert counted[0, 2:-2].all() and numbers[0, :, 0, 3:5].max() > 1400


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"block_size": 0}, "`block_size` must be at least 1, got 0"),
        ({"random_blocks": -1}, "`random_blocks` must not be negative, got -1"),
        ({"global_tokens": -2}, "`global_tokens` must not be negative, got -2"),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        make(config)
