"""Reversible blocks against the same two streams with plain gradients."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from tests import laws
from tests.laws import assert_near, compiled, normal, randomize, to_numpy

B, T, D = 2, 7, 8


def encoder(attention=None, **config):
    attention = attention or layers.MultiHeadAttention(2)
    return layers.TransformerEncoderBlock(attention, layers.FeedForward(11), **config)


def make(block, num_blocks=3, **config):
    layer = layers.ReversibleBlocks(block, num_blocks, **config)
    layer.build((None, None, D))
    return randomize(layer)


def plain(layer, x, **arguments):
    """The streams, written out."""
    one = other = x
    for block in layer.blocks:
        residual = block.attention_residual
        branch = block.attention(residual.enter(other), **arguments)
        one = residual.leave(one, branch)
        residual = block.feed_forward_residual
        other = residual.leave(other, block.feed_forward(residual.enter(one)))
    return (one + other) / 2


BLOCKS = {
    "plain": encoder(),
    "sandwich": encoder(norm_position="sandwich", norm="rms", layer_scale=0.5),
    "performer": encoder(layers.PerformerAttention(2, seed=0)),
    "lsh": encoder(layers.LSHAttention(2, bucket_size=3, num_buckets=2, seed=0)),
}
blocks = pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)


@blocks
def test_values_and_gradients_are_the_plain_ones(block):
    layer, x = make(block), normal(B, T, D)
    masks = {"padding_mask": np.arange(T) < [[T], [4]], "use_causal_mask": True}
    target = normal(B, T, D, seed=1)
    found, expected = (
        laws.gradients(lambda x: ops.sum(run(x) * target), x, layer)
        for run in (lambda x: layer(x, **masks), lambda x: plain(layer, x, **masks))
    )
    assert_near(layer(x, **masks), plain(layer, x, **masks))
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, atol=1e-4 * max(1.0, float(np.abs(other).max())))


def test_compiled():
    layer, x = make(BLOCKS["plain"]), normal(B, T, D)
    for jit in (False, True):
        assert_near(compiled(layer, jit)(ops.convert_to_tensor(x)), layer(x))


def test_frozen_parts_have_no_gradient_and_change_none():
    layer, x = make(BLOCKS["plain"], 2), normal(B, T, D)
    expected = laws.gradients(lambda x: ops.sum(layer(x) ** 2), x)[0]
    layer.blocks[0].attention.trainable = False
    assert len(layer.trainable_weights) == 2 * 16 - 8
    assert_near(laws.gradients(lambda x: ops.sum(layer(x) ** 2), x)[0], expected)


def test_cached_equals_full():
    block = layers.TransformerDecoderBlock(
        layers.MultiHeadAttention(2, rotary=layers.RotaryEmbedding()),
        layers.FeedForward(11),
    )
    layer, x = make(block), normal(B, T, D)
    full = to_numpy(layer(x))  # a decoder block is causal
    assert_near(layer(x, use_causal_mask=True), full)
    laws.cached_equals_full(layer, x, full, T + 2, chunks=([1] * T, [2, 1, 4]))


def test_every_argument_counts():
    rotary = layers.MultiHeadAttention(2, rotary=layers.RotaryEmbedding())
    keep = np.arange(T) < [[3], [T]]
    laws.every_argument_counts(
        make(encoder(rotary)),
        normal(B, T, D),
        {
            "padding_mask": keep,
            "attention_mask": np.tril(np.ones((T, T), bool)),
            "positions": 3 * np.arange(T),
            "use_causal_mask": True,
            "mask": keep,
            "inputs_mask": keep,
        },
        idle=("training",),
    )


@pytest.mark.parametrize(
    ("block", "num_blocks", "message"),
    [
        (encoder(), 0, "`num_blocks` must be at least 1, got 0"),
        (encoder(norm_position="post"), 2, '`norm_position` "pre" or "sandwich"'),
        (layers.FeedForward(3), 2, "must be a TransformerEncoderBlock"),
        (encoder(dropout=0.1), 2, "must draw no random numbers"),
        (
            layers.TransformerDecoderBlock(
                layers.MultiHeadAttention(2),
                layers.FeedForward(3),
                cross_attention=layers.MultiHeadAttention(2),
            ),
            2,
            "a `feed_forward` and no `cross_attention`",
        ),
    ],
)
def test_refused(block, num_blocks, message):
    with pytest.raises(ValueError, match=message):
        layers.ReversibleBlocks(block, num_blocks).build((B, T, D))
