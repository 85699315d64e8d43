"""Every public layer through the battery (DESIGN: what every layer proves)."""

import keras
import numpy as np
import pytest

from keras_tfm import layers
from tests.battery import Case, check_layer, label
from tests.exports import Reader, check_exports
from tests.laws import normal

D, SOURCE, IMAGE = 12, 3, (4, 6)  # widths of the stream, of a context; an image


def stream(batch, length, width=D):
    return {"inputs": normal(batch, length, width)}


def masked(batch, length):
    return {**stream(batch, length), "padding_mask": keep(batch, length)}


def keep(batch, length):
    """A padding mask: one row is real to the end, the others are not."""
    return np.arange(length) < length - np.arange(batch)[:, np.newaxis]


def with_context(batch, length):
    source = length + 2
    return {
        **stream(batch, length),
        "context": normal(batch, source, SOURCE),
        "padding_mask": keep(batch, source),
    }


def with_source(batch, length):
    arrays = with_context(batch, length)
    source_mask = arrays.pop("padding_mask")
    mask = keep(batch, length)
    return {**arrays, "padding_mask": mask, "context_padding_mask": source_mask}


def lengths(batch, length):
    """Inputs of a bias, which reads nothing but their lengths."""
    return {
        "inputs": normal(batch, length, D),
        "context": normal(batch, length + 2, SOURCE),
    }


def heads(batch, length):
    return {"inputs": normal(batch, length, 4, 6)}


def placed(batch, length):
    positions = np.arange(batch * length, dtype="int32").reshape(batch, length)
    return {**stream(batch, length), "positions": positions % 16}


def initializer():
    return keras.initializers.HeNormal(seed=1)


FEED_FORWARD = {
    "intermediate_dim": 7,
    "activation": layers.gelu_tanh,
    "dropout": 0.1,
    "kernel_initializer": initializer(),
}
ATTENTION = {
    "num_heads": 4,
    "key_dim": 6,
    "num_key_value_heads": 2,
    "rotary": layers.RotaryEmbedding(100.0),
    "relative_bias": layers.RelativePositionBias(4, num_buckets=8),
    "window": 4,
    "qk_norm": "rms",
    "logit_soft_cap": 20.0,
    "use_bias": False,
    "use_output_bias": True,
    "attention_dropout": 0.1,
    "implementation": "blockwise",
    "kernel_initializer": initializer(),
}
LSH = {
    "num_heads": 4,
    "bucket_size": 3,
    "num_buckets": (2, 4),
    "num_rounds": 2,
    "key_dim": 6,
    "use_bias": False,
    "attention_dropout": 0.1,
    "kernel_initializer": initializer(),
    "seed": 5,
}
LINFORMER = {
    "num_heads": 4,
    "max_length": 16,
    "rank": 3,
    "sharing": "key_value",
    "key_dim": 6,
    "use_bias": False,
    "attention_dropout": 0.1,
    "kernel_initializer": initializer(),
}
PERFORMER = {
    "num_heads": 4,
    "num_features": 9,
    "key_dim": 6,
    "kernel": "favor",
    "rotary": layers.RotaryEmbedding(100.0),
    "use_bias": False,
    "kernel_initializer": initializer(),
    "seed": 5,
}
RING = {
    "num_heads": 4,
    "axis": "time",
    "num_shards": 3,
    "key_dim": 6,
    "num_key_value_heads": 2,
    "rotary": layers.RotaryEmbedding(100.0),
    "use_bias": False,
    "kernel_initializer": initializer(),
}
HEADS = {
    "key_dim": 6,
    "use_bias": False,
    "attention_dropout": 0.1,
    "kernel_initializer": initializer(),
}
WIRING = {
    "norm_position": "sandwich",
    "norm": "rms",
    "norm_epsilon": 1e-3,
    "dropout": 0.1,
    "drop_path": 0.1,
    "layer_scale": 0.5,
}
MAMBA = {
    "expand": 1.5,
    "state_size": 5,
    "kernel_size": 3,
    "time_step_rank": 2,
    "time_step_range": (0.01, 0.2),
    "time_step_offset": 0.01,
    "bidirectional": True,
    "activation": "tanh",
    "use_bias": True,
    "use_convolution_bias": False,
    "kernel_initializer": initializer(),
}
MAMBA_2 = {
    "num_heads": 6,
    "expand": 1.5,
    "state_size": 5,
    "num_groups": 2,
    "kernel_size": 3,
    "time_step_range": (0.01, 0.2),
    "bidirectional": True,
    "activation": "tanh",
    "norm_epsilon": 1e-3,
    "use_bias": True,
    "use_convolution_bias": False,
    "kernel_initializer": initializer(),
}
MIXTURE = {
    "expert": layers.FeedForward(7),
    "num_experts": 4,
    "top_k": 3,
    "load_balancing_weight": 0.5,
    "router_z_weight": 0.25,
}
ROTARY = {
    "max_wavelength": 100.0,
    "layout": "interleaved",
    "rotary_dim": 4,
    "scaling": {"type": "linear", "factor": 2.0},
}
CASES = [
    Case(layers.AlibiBias, {"num_heads": 3}, lengths, 0),
    Case(
        layers.BigBirdAttention,
        {
            "num_heads": 4,
            "block_size": 2,
            "random_blocks": 1,
            "first_blocks": 0,
            "last_blocks": 2,
            "global_tokens": 1,
            "seed": 3,
            **HEADS,
        },
        masked,
        4,
    ),
    Case(
        layers.ChunkedFeedForward,
        {"feed_forward": layers.FeedForward(7), "chunk_size": 3},
        stream,
        4,
    ),
    Case(layers.ClassToken, {"num_tokens": 2}, stream, 1),
    Case(layers.DropPath, {"rate": 0.3, "seed": 7}, stream, 0),
    Case(layers.FeedForward, {**FEED_FORWARD, "use_bias": False}, stream, 2),
    Case(layers.FeedForward, {"intermediate_dim": 7}, stream, 4, plain=True),
    Case(layers.GatedFeedForward, {**FEED_FORWARD, "use_bias": True}, stream, 6),
    Case(layers.LSHAttention, LSH, masked, 3),
    Case(layers.LayerScale, {"init_value": 0.3}, stream, 1),
    Case(
        layers.LearnedPositionEmbedding,
        {"max_sequence_length": 16, "initializer": initializer()},
        placed,
        1,
    ),
    Case(layers.LinformerAttention, LINFORMER, masked, 4 + 1),
    Case(
        layers.LongformerAttention,
        {"num_heads": 4, "window": 2, "global_tokens": 2, **HEADS},
        masked,
        7,
    ),
    Case(layers.Mamba2Mixer, MAMBA_2, masked, 9),
    Case(layers.MambaMixer, MAMBA, masked, 11),
    Case(layers.MambaMixer, {}, masked, 9, plain=True),
    Case(layers.MixtureOfExperts, MIXTURE, masked, 17),
    Case(layers.MultiHeadAttention, ATTENTION, masked, 8),
    Case(layers.MultiHeadAttention, {"num_heads": 3}, with_context, 8, plain=True),
    Case(layers.RingAttention, RING, masked, 4),
    Case(
        layers.PatchEmbedding,
        {"hidden_dim": 5, "patch_size": (2, 3), "data_format": "channels_first"},
        lambda batch, _: {"inputs": normal(batch, 2, *IMAGE)},
        2,
        free=(0,),
    ),
    Case(layers.PerformerAttention, PERFORMER, masked, 4, plain=True),
    Case(
        layers.PositionEmbedding2D,
        {"grid_size": (2, 3), "kind": "sincos", "num_class_tokens": 1},
        lambda batch, _: stream(batch, 7),
        0,
        free=(0,),
    ),
    Case(
        layers.PositionEmbedding2D,
        {"grid_size": (2, 3)},
        lambda batch, _: stream(batch, 6),
        1,
        free=(0,),
        plain=True,
    ),
    Case(
        layers.RelativePositionBias,
        {"num_heads": 3, "num_buckets": 8, "max_distance": 20, "bidirectional": False},
        lengths,
        1,
    ),
    Case(
        layers.ReversibleBlocks,
        {
            "block": layers.TransformerEncoderBlock(
                layers.MultiHeadAttention(2), layers.FeedForward(7)
            ),
            "num_blocks": 2,
        },
        masked,
        2 * (8 + 4 + 4),
    ),
    Case(layers.RotaryEmbedding, ROTARY, heads, 0),
    Case(
        layers.SlidingWindowAttention,
        {
            "num_heads": 4,
            "window": 2,
            "dilation": 2,
            "num_key_value_heads": 2,
            "rotary": layers.RotaryEmbedding(100.0),
            "qk_norm": "rms",
            "logit_soft_cap": 20.0,
            **HEADS,
        },
        masked,
        6,
        plain=True,
    ),
    Case(
        layers.SlidingWindowAttention,
        {"num_heads": 3, "window": 3, "relative_bias": layers.AlibiBias(3)},
        masked,
        8,
        call={"use_causal_mask": True},
        plain=True,
    ),
    Case(
        layers.SinusoidalPositionEncoding,
        {"max_wavelength": 100.0, "interleaved": False},
        placed,
        0,
    ),
    Case(
        layers.TransformerEncoderBlock,
        {
            "attention": layers.MultiHeadAttention(**ATTENTION),
            "feed_forward": layers.MixtureOfExperts(**MIXTURE),
            **WIRING,
        },
        masked,
        8 + 17 + 6,
    ),
    Case(
        layers.TransformerDecoderBlock,
        {
            "attention": layers.MultiHeadAttention(2, qk_norm="layer"),
            "feed_forward": layers.GatedFeedForward(7),
            "cross_attention": layers.MultiHeadAttention(3, key_dim=2),
            **WIRING,
        },
        with_source,
        12 + 8 + 3 + 9,
    ),
    Case(
        layers.TransformerDecoderBlock,
        {
            "attention": layers.MultiHeadAttention(
                2, relative_bias=layers.AlibiBias(2)
            ),
            "feed_forward": layers.FeedForward(7),
        },
        stream,
        8 + 4 + 4,
        plain=True,
    ),
]


@pytest.fixture(scope="session")
def reader(tmp_path_factory):
    process = Reader(tmp_path_factory.mktemp("reader"))
    yield process
    process.close()


def test_every_layer_is_here():
    public = {getattr(layers, name) for name in layers.__all__}
    assert {case.cls for case in CASES} == {c for c in public if isinstance(c, type)}


@pytest.mark.parametrize("case", CASES, ids=label)
def test_layer(case, tmp_path):
    check_layer(case, tmp_path)


@pytest.mark.tensorflow
@pytest.mark.parametrize("case", CASES, ids=label)
def test_exports(case, tmp_path, reader):
    check_exports(case, tmp_path, reader)
