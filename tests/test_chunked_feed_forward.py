"""The numbers and gradients of a feed-forward, a few positions at a time."""

import pytest
from keras import ops

from keras_tfm import layers
from tests import laws
from tests.laws import assert_near, normal, randomize, to_numpy

B, T, D = 2, 7, 6


def make(feed_forward, chunk_size=3):
    layer = layers.ChunkedFeedForward(feed_forward, chunk_size)
    layer.build((None, None, D))
    return randomize(layer)


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 20])
@pytest.mark.parametrize("cls", [layers.FeedForward, layers.GatedFeedForward])
def test_equals_the_feed_forward(cls, chunk_size):
    layer, x = make(cls(11), chunk_size), normal(B, T, D)
    target = normal(B, T, D, seed=1)
    expected = laws.gradients(
        lambda x: ops.sum(layer.feed_forward(x) * target), x, layer
    )
    assert_near(layer(x), layer.feed_forward(x))
    found = laws.gradients(lambda x: ops.sum(layer(x) * target), x, layer)
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, atol=1e-4)


@pytest.mark.tensorflow
def test_one_graph_serves_every_length():
    import tensorflow as tf

    layer = make(layers.FeedForward(11))
    run = tf.function(layer, input_signature=[tf.TensorSpec((None, None, D))])
    for length in (1, 3, 8):
        x = normal(B, length, D)
        assert_near(run(x), layer.feed_forward(x))


def test_in_a_block():
    x, values = normal(B, T, D), []
    for feed_forward in (
        layers.FeedForward(11),
        layers.ChunkedFeedForward(layers.FeedForward(11), 2),
    ):
        block = layers.TransformerEncoderBlock(
            layers.MultiHeadAttention(2), feed_forward
        )
        block.build(x.shape)
        values.append(to_numpy(randomize(block)(x)))
    assert_near(values[1], values[0])


@pytest.mark.parametrize(
    ("feed_forward", "chunk_size", "message"),
    [
        (layers.FeedForward(3), 0, "`chunk_size` must be at least 1, got 0"),
        (layers.FeedForward(3, dropout=0.5), 2, "must draw no random numbers"),
        (
            layers.MixtureOfExperts(layers.FeedForward(3), 2),
            2,
            "take no `padding_mask`, got MixtureOfExperts",
        ),
        (3, 2, "`feed_forward` must be a Keras layer"),
    ],
)
def test_refused(feed_forward, chunk_size, message):
    with pytest.raises(ValueError, match=message):
        layers.ChunkedFeedForward(feed_forward, chunk_size).build((B, T, D))
