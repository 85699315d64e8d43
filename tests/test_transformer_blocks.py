"""Encoder and decoder blocks: their wiring in NumPy, laws, caches, errors."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from tests import laws, numpy_layers
from tests.laws import assert_near, differs, normal, randomize, to_numpy
from tests.numpy_layers import causal, dense, norm

B, T, S, D, SOURCE = 2, 5, 7, 6, 4
ATTENTIONS = {
    "plain": lambda: layers.MultiHeadAttention(3),
    "rotary": lambda: layers.MultiHeadAttention(3, rotary=layers.RotaryEmbedding(50.0)),
    "alibi": lambda: layers.MultiHeadAttention(3, relative_bias=layers.AlibiBias(3)),
    "window": lambda: layers.MultiHeadAttention(3, window=2),
}
attentions = pytest.mark.parametrize("attention", ATTENTIONS)
WIRINGS = [("pre", "layer", None), ("post", "rms", 0.7), ("sandwich", "layer", 0.7)]
wirings = pytest.mark.parametrize(("position", "kind", "scale"), WIRINGS)


def encoder(attention="plain", **wiring):
    block = layers.TransformerEncoderBlock(
        ATTENTIONS[attention](), layers.FeedForward(9), **wiring
    )
    block.build((None, None, D))
    return randomize(block)


def decoder(attention="plain", cross=False, **wiring):
    block = layers.TransformerDecoderBlock(
        ATTENTIONS[attention](),
        layers.FeedForward(9),
        cross_attention=ATTENTIONS[attention]() if cross else None,
        **wiring,
    )
    block.build((None, None, D), (None, None, SOURCE) if cross else None)
    return randomize(block)


def numpy_residual(residual, x, sublayer):
    """pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + norm(f(norm(x)))."""
    before, after = residual.norm_before, residual.norm_after
    branch = sublayer(x if before is None else norm(before, x))
    if residual.norm_position == "sandwich":
        branch = norm(after, branch)
    if residual.scale is not None:
        branch = branch * to_numpy(residual.scale.gamma)
    x = x + branch
    return norm(after, x) if residual.norm_position == "post" else x


def numpy_block(block, x, keep, context=None, context_keep=None):
    def attend(x):
        return numpy_layers.multi_head_attention(block.attention, x, keep=keep)[0]

    def attend_across(x):
        return numpy_layers.multi_head_attention(
            block.cross_attention, x, context, context_keep
        )[0]

    def feed(x):
        part = block.feed_forward
        return dense(part.down, numpy_layers.gelu(dense(part.up, x)))

    x = numpy_residual(block.attention_residual, x, attend)
    if context is not None:
        x = numpy_residual(block.cross_attention_residual, x, attend_across)
    return numpy_residual(block.feed_forward_residual, x, feed)


@wirings
def test_encoder_matches_numpy(position, kind, scale):
    block = encoder(norm_position=position, norm=kind, layer_scale=scale)
    x, mask = normal(B, T, D), np.arange(T) < [[3], [T]]
    expected = numpy_block(block, x, mask[:, None, None])
    assert_near(block(x, padding_mask=mask), expected)


@wirings
@pytest.mark.parametrize("cross", [False, True])
def test_decoder_matches_numpy(position, kind, scale, cross):
    wiring = {"norm_position": position, "norm": kind, "layer_scale": scale}
    block = decoder(cross=cross, **wiring)
    x, mask = normal(B, T, D), np.arange(T) < [[3], [T]]
    arguments, beside = {}, ()
    if cross:
        context, context_mask = normal(B, S, SOURCE), np.arange(S) < [[S], [2]]
        arguments = {"context": context, "context_padding_mask": context_mask}
        beside = context, context_mask[:, None, None]
    expected = numpy_block(block, x, mask[:, None, None] & causal(T), *beside)
    assert_near(block(x, padding_mask=mask, **arguments), expected)


def test_the_epsilon_is_the_norm_s():  # FAULTS O57
    x = np.array([[[1e-3, -1e-3] * 3]], "float32")  # variance 1e-6
    for epsilon, scale in ((1e-12, 1000.0), (1e-5, 301.5)):
        block = layers.TransformerEncoderBlock(
            layers.MultiHeadAttention(3), layers.FeedForward(9), norm_epsilon=epsilon
        )
        block.build((1, 1, D))
        normed = to_numpy(block.attention_residual.enter(x))
        assert_near(normed / x, np.full((1, 1, D), scale), atol=0.1)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_norms_at_half_precision(policy, kind):  # FAULTS O14
    block = layers.TransformerEncoderBlock(
        layers.MultiHeadAttention(3),
        layers.FeedForward(9),
        norm=kind,
        norm_epsilon=1e-12,
        dtype=policy,
    )
    block.build((1, 3, D))
    rows = np.stack([np.zeros(D), np.full(D, 7.0), np.linspace(6e4, 6.5e4, D)])
    x = ops.cast(rows.reshape(1, 3, D), block.compute_dtype)
    for run in (
        block.attention_residual.enter,
        laws.compiled(block.attention_residual.enter, True),
    ):
        normed = to_numpy(run(x))[0].astype("float32")
        assert np.all(np.isfinite(normed))
        assert np.all(normed[0] == 0)
        constant = 0.0 if kind == "layer" else 1.0
        assert_near(normed[1], np.full(D, constant), atol=1e-2)
        formula = numpy_layers.layer_norm if kind == "layer" else numpy_layers.rms_norm
        expected = formula(to_numpy(x)[0, 2], epsilon=1e-12)
        assert_near(normed[2], expected, atol=2e-2)
    assert np.all(np.isfinite(to_numpy(block(x[:, :2])).astype("float32")))


def test_a_decoder_need_not_be_causal():
    block, x = decoder(), normal(B, T, D)
    changed = np.concatenate([x[:, :-1], -x[:, -1:]], axis=1)
    outputs = to_numpy(block(changed, use_causal_mask=False))
    assert differs(outputs[:, 0], to_numpy(block(x, use_causal_mask=False))[:, 0])
    expected = numpy_block(block, x, None)
    assert_near(block(x, use_causal_mask=False), expected)


def test_scores_of_both_attentions():
    block = decoder(cross=True)
    x, context = keras.Input((T, D)), keras.Input((S, SOURCE))
    outputs, scores = block(x, context=context, return_attention_scores=True)
    assert {k: v.shape for k, v in scores.items()} == {
        "attention": (None, 3, T, T),
        "cross_attention": (None, 3, T, S),
    }
    model = keras.Model([x, context], [outputs, scores])
    arrays = normal(B, T, D), normal(B, S, SOURCE)
    outputs, scores = model(list(arrays))
    assert_near(outputs, block(arrays[0], context=arrays[1]))
    assert_near(to_numpy(scores["attention"]).sum(-1), np.ones((B, 3, T)))
    assert scores["cross_attention"].shape == (B, 3, T, S)
    x = normal(B, T, D)
    outputs, scores = encoder()(x, return_attention_scores=True)
    assert outputs.shape == (B, T, D) and scores.shape == (B, 3, T, T)


def test_drop_path_skips_whole_samples():  # FAULTS O65
    block, x = encoder(drop_path=0.5), normal(64, T, D)
    keras.utils.set_random_seed(1)
    moved = to_numpy(block(x, training=True)) - x
    still = np.all(moved == 0, axis=(1, 2))
    assert 5 < still.sum() < 30  # a quarter: both branches are skipped
    assert_near(block(x, training=False), encoder()(x), atol=1e-6)


def test_rate_one_leaves_the_stream():  # FAULTS O65
    block, x = encoder(drop_path=1.0), normal(B, T, D)
    assert_near(block(x, training=True), x, atol=0)
    assert_near(block(x), encoder()(x), atol=1e-6)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"norm_position": "middle"}, '`norm_position` must be "pre", "post" or'),
        ({"norm": "batch"}, '`norm` must be "layer" or "rms", got \'batch\''),
        ({"dropout": 1.5}, "1.5"),
        ({"drop_path": -0.1}, "must be in .0, 1., got -0.1"),
    ],
)
@pytest.mark.parametrize("make", [encoder, decoder])
def test_refused(make, config, message):
    with pytest.raises(ValueError, match=message):
        make(**config)


def test_a_context_without_cross_attention_is_refused():
    x, context = normal(B, T, D), normal(B, S, SOURCE)
    message = "`context` must be given exactly if the block has a `cross_attention`"
    with pytest.raises(ValueError, match=f"{message}, got `context` given"):
        decoder()(x, context=context)
    with pytest.raises(ValueError, match=f"{message}, got `context` not given"):
        decoder(cross=True)(x)
    with pytest.raises(ValueError, match=message):
        decoder(cross=True).init_cache(B, T)
    with pytest.raises(ValueError, match=message):
        decoder().init_cache(B, T, context)
