"""Implicit masks on their way through whole models."""

import keras
import numpy as np
import pytest

from keras_tfm import layers
from tests.laws import assert_near, compiled, randomize, to_numpy

V, D = 9, 12
PADDED, SHORT = np.array([[5, 7, 0, 0]]), np.array([[5, 7]])
PARTS = layers.MultiHeadAttention(3), layers.FeedForward(7)


class Probe(keras.layers.Layer):
    """Gives the mask that arrives here, as numbers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        return keras.ops.cast(mask, "float32")

    def compute_output_shape(self, inputs_shape):
        return inputs_shape[:2]


def embedding():
    return keras.layers.Embedding(V, D, mask_zero=True, name="embedding")


def encoder_blocks(count):
    return [layers.TransformerEncoderBlock(*PARTS) for _ in range(count)]


def decoder_blocks(count):
    return [layers.TransformerDecoderBlock(*PARTS) for _ in range(count)]


def pooled(blocks):
    """Ids -> embedding -> blocks -> mean over real tokens."""
    ids = keras.Input((None,), dtype="int32")
    x = embedding()(ids)
    for block in blocks:
        x = block(x)
    return randomize(keras.Model(ids, keras.layers.GlobalAveragePooling1D()(x)))


@pytest.mark.parametrize("blocks", [encoder_blocks, decoder_blocks])
def test_the_mask_reaches_every_block_and_the_pooling(blocks):  # FAULTS O01
    model = pooled(blocks(3))
    assert_near(model(PADDED), model(SHORT))
    x = embedding()(PADDED)
    for block in blocks(3):
        x = block(x)
        np.testing.assert_array_equal(Probe()(x), PADDED != 0)


@pytest.mark.parametrize("blocks", [encoder_blocks, decoder_blocks])
def test_what_stands_at_padding_does_not_count(blocks):  # FAULTS O02
    model = pooled(blocks(1))
    before = to_numpy(model(PADDED))
    table = model.get_layer("embedding").embeddings
    changed = to_numpy(table).copy()
    changed[0] = 1e3
    table.assign(changed)
    assert_near(model(PADDED), before)


@pytest.mark.parametrize("blocks", [encoder_blocks, decoder_blocks])
def test_explicit_and_implicit_masks_are_one(blocks):  # FAULTS O02
    block = blocks(1)[0]
    embed = embedding()
    ids = np.array([[0, 5, 7, 3, 0], [4, 5, 0, 6, 0]])
    implicit = randomize(block)(embed(ids))
    plain = keras.ops.convert_to_tensor(to_numpy(embed(ids)))
    real = ids != 0
    rows = np.nonzero(real)
    assert_near(
        to_numpy(implicit)[rows], to_numpy(block(plain, padding_mask=real))[rows]
    )
    more = np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1]], bool)
    both = block(embed(ids), padding_mask=more)
    rows = np.nonzero(real & more)
    expected = block(plain, padding_mask=real & more)
    assert_near(to_numpy(both)[rows], to_numpy(expected)[rows])


def flat_and_nested():
    """One encoder in three kinds of model, with the same layers."""
    ids = keras.Input((None,), dtype="int32")
    embed, blocks = embedding(), encoder_blocks(2)
    pool = keras.layers.GlobalAveragePooling1D()
    x = embed(ids)
    for block in blocks:
        x = block(x)
    flat = keras.Model(ids, pool(x))
    inner = keras.Model(ids, x)
    ids = keras.Input((None,), dtype="int32")
    nested = keras.Model(ids, pool(inner(ids)))
    sequential = keras.Sequential([embed, keras.Sequential(blocks), pool])
    randomize(flat)
    return flat, nested, sequential


def test_nested_models_keep_the_mask():  # FAULTS O03
    flat, nested, sequential = flat_and_nested()
    expected = flat(SHORT)
    for model in (flat, nested, sequential):
        assert_near(model(PADDED), expected)
        assert_near(compiled(model)(keras.ops.convert_to_tensor(PADDED)), expected)
        assert_near(model.predict(PADDED, verbose=0), expected)


def test_an_encoder_and_a_decoder_model_keep_the_masks():  # FAULTS O03, O09
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    embed = embedding()
    encoder = keras.Model(source, encoder_blocks(1)[0](embed(source)))
    block = layers.TransformerDecoderBlock(
        *PARTS, cross_attention=layers.MultiHeadAttention(2)
    )
    x = block(embed(target), context=encoder(source))
    model = randomize(keras.Model([source, target], x))
    ids = np.array([[3, 4, 8]])
    expected = to_numpy(model([SHORT, ids]))
    assert_near(model([PADDED, ids]), expected)
    assert_near(model.predict([PADDED, ids], verbose=0), expected)
    longer = np.array([[3, 4, 8, 0, 0]])
    assert_near(to_numpy(model([PADDED, longer]))[:, :3], expected)


KEEP_LENGTH = [
    layers.SinusoidalPositionEncoding(),
    layers.LearnedPositionEmbedding(8),
    layers.PositionEmbedding2D((2, 2)),
    layers.FeedForward(7),
    layers.GatedFeedForward(7),
    layers.MixtureOfExperts(layers.FeedForward(7), 2),
    layers.MultiHeadAttention(3),
    layers.LayerScale(),
    layers.DropPath(0.1),
]


@pytest.mark.parametrize("layer", KEEP_LENGTH, ids=lambda layer: type(layer).__name__)
def test_layers_hand_the_mask_on(layer):  # FAULTS O04
    ids = keras.Input((4,), dtype="int32")
    model = keras.Model(ids, Probe()(layer(embedding()(ids))))
    for run in (model, lambda x: model.predict(x, verbose=0)):
        np.testing.assert_array_equal(run(PADDED), PADDED != 0)


def test_layers_on_heads_hand_the_mask_on():  # FAULTS O04
    mask = PADDED != 0
    x = np.zeros((1, 4, 2, 6), "float32")
    assert layers.RotaryEmbedding().compute_mask(x, mask) is mask
    longer = layers.ClassToken(2).compute_mask(x[:, :, 0], mask)
    assert to_numpy(longer).tolist() == [[True, True, *mask[0]]]
