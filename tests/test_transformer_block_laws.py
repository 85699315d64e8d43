"""The laws that encoder and decoder blocks keep, and the decoder's cache."""

import keras
import numpy as np
import pytest

from keras_tfm import layers
from tests import laws
from tests.laws import assert_near, differs, normal, to_numpy
from tests.numpy_layers import causal
from tests.test_transformer_blocks import (
    SOURCE,
    B,
    D,
    S,
    T,
    attentions,
    decoder,
    encoder,
)


@attentions
def test_decoders_are_causal(attention):
    for cross in (False, True):
        block = decoder(attention, cross)
        context = {"context": normal(B, S, SOURCE)} if cross else {}

        def run(x, block=block, context=context):
            return to_numpy(block(x, **context))

        laws.later_tokens_change_nothing_before(run, normal(B, T, D), lambda x: 1 - x)


@attentions
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("make", [encoder, decoder])
def test_padding(make, attention, side):
    block = make(attention)

    def run(x, mask):
        where = {}
        if attention == "rotary":
            where["positions"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        return to_numpy(block(x, padding_mask=mask, **where))

    laws.padding_changes_nothing(run, normal(B, T, D), 50 * normal(B, 3, D), side)


def test_source_padding_and_target_padding():  # FAULTS O09
    block, context = decoder(cross=True), normal(B, 6, SOURCE)
    source = np.arange(6) < [[4], [6]]
    for length in (6, 4):
        x, target = normal(B, length, D), np.arange(length) < [[length - 3], [length]]
        masks = {"padding_mask": target, "context_padding_mask": source}
        plain = to_numpy(block(x, context=context, **masks))
        other_source = np.where(source[..., None], context, 9.0)
        changed = to_numpy(block(x, context=other_source, **masks))
        assert_near(changed[target], plain[target])
        other_target = np.where(target[..., None], x, 9.0)
        changed = to_numpy(block(other_target, context=context, **masks))
        assert_near(changed[target], plain[target])
        _, scores = block(x, context=context, **masks, return_attention_scores=True)
        weights = to_numpy(scores["cross_attention"])
        seen = weights.min((1, 2)) > 0  # by every head, from every target token
        np.testing.assert_array_equal(seen, source)


@attentions
def test_cached_equals_full(attention):  # FAULTS O27
    block, x = decoder(attention), normal(B, T, D)
    laws.cached_equals_full(block, x, to_numpy(block(x)), T + 3)


@attentions
def test_cached_equals_full_with_a_context(attention):  # FAULTS O28
    block, x = decoder(attention, cross=True), normal(B, 8, D)
    context, mask = normal(B, 10, SOURCE), np.arange(10) < [[10], [6]]
    full = to_numpy(block(x, context=context, context_padding_mask=mask))
    laws.cached_equals_full(block, x, full, 8, context, context_padding_mask=mask)


def test_decoding_never_drops():
    block = layers.TransformerDecoderBlock(
        layers.MultiHeadAttention(3, attention_dropout=0.5),
        layers.FeedForward(9, dropout=0.5),
        dropout=0.5,
        drop_path=0.5,
    )
    block.build((None, None, D))
    x = normal(B, T, D)
    full = to_numpy(block(x))
    laws.cached_equals_full(block, x, full, T)

    class Decoding(keras.layers.Layer):
        """Decodes inside a layer that is training."""

        def call(self, inputs, training=None):
            return block.call_with_cache(inputs, block.init_cache(B, T), 0)[0]

    assert_near(Decoding()(x, training=True), full)


def test_permutation():
    block = encoder()
    laws.permutation_commutes(lambda x: to_numpy(block(x)), normal(B, T, D))


def test_every_encoder_argument_counts():
    keep = np.arange(T) < [[3], [T]]
    laws.every_argument_counts(
        encoder("rotary", dropout=0.5),
        normal(B, T, D),
        {
            "padding_mask": keep,
            "attention_mask": causal(T),
            "attention_bias": normal(3, T, T),
            "positions": 3 * np.arange(T),
            "use_causal_mask": True,
            "return_attention_scores": True,
            "training": True,
            "mask": keep,
            "inputs_mask": keep,
        },
    )


def test_every_decoder_argument_counts():
    keep, seen = np.arange(T) >= [[1], [0]], np.arange(S) < [[3], [S]]
    context = {"context": normal(B, S, SOURCE)}
    block = decoder("rotary", cross=True, dropout=0.5)
    variants = {
        "padding_mask": keep,
        "context_padding_mask": seen,
        "attention_mask": np.tri(T, k=-1, dtype=bool),
        "attention_bias": normal(3, T, T),
        "positions": 3 * np.arange(T),
        "use_causal_mask": False,
        "return_attention_scores": True,
        "training": True,
        "mask": keep,
        "inputs_mask": keep,
        "context_mask": seen,
    }
    variants = {name: (value, context) for name, value in variants.items()}
    other = {"context": normal(B, S, SOURCE, seed=1)}
    assert differs(block(normal(B, T, D), **other), block(normal(B, T, D), **context))

    class WithContext:
        """The block, with a context where the law gives none."""

        call = block.call

        def __call__(self, inputs, **arguments):
            return block(inputs, **{**context, **arguments})

    laws.every_argument_counts(
        WithContext(), normal(B, T, D), {"context": other["context"], **variants}
    )


@pytest.mark.parametrize("make", [encoder, decoder])
def test_no_batch_and_no_length(make):  # FAULTS O66
    block = make()
    for batch, length in ((0, T), (B, 0)):
        assert block(np.zeros((batch, length, D), "float32")).shape == (
            batch,
            length,
            D,
        )
    x, mask = normal(B, T, D), np.arange(T) < [[0], [T]]  # one row of length 0
    outputs = to_numpy(block(x, padding_mask=mask))
    assert np.all(np.isfinite(outputs))
    assert_near(outputs[1], to_numpy(block(x))[1])


def test_an_unbuilt_block_has_no_cache():
    block = layers.TransformerDecoderBlock(
        layers.MultiHeadAttention(3), layers.FeedForward(9)
    )
    with pytest.raises(ValueError, match="must be built"):
        block.init_cache(B, T)
    with pytest.raises(ValueError, match="must be built"):
        block.call_with_cache(normal(B, 1, D), {}, 0)
