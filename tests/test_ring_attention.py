"""RingAttention: the numbers of dense attention, in one process and over devices."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_tfm import layers
from tests import laws
from tests.laws import assert_near, compiled, gradients, normal, randomize, to_numpy

B, T, S, D, SOURCE = 2, 11, 7, 12, 3
VARIANTS = {
    "plain": {"num_heads": 3},
    "grouped": {"num_heads": 6, "num_key_value_heads": 2, "key_dim": 4},
    "rotary": {"num_heads": 3, "rotary": layers.RotaryEmbedding(100.0)},
    "no_bias": {"num_heads": 3, "use_bias": False},
}
variants = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
PADDING = np.arange(T) < [[T - 4], [T]]


def pair(config, num_shards, *shapes):
    """A ring and a dense layer of the same weights."""
    shapes = shapes or [(None, None, D)]
    ring = layers.RingAttention(num_shards=num_shards, **config)
    ring.build(*shapes)
    dense = layers.MultiHeadAttention(**config, implementation="dense")
    dense.build(*shapes)
    dense.set_weights(randomize(ring).get_weights())
    return ring, dense


@variants
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("num_shards", [1, 2, 3, 8])
def test_equals_dense(config, causal, num_shards):
    ring, dense = pair(config, num_shards)
    x = normal(B, T, D)
    for padding in (None, PADDING, PADDING[:, ::-1]):
        given = {"padding_mask": padding, "use_causal_mask": causal}
        assert_near(ring(x, **given), dense(x, **given))


@variants
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_equal_dense(config, causal):
    ring, dense = pair(config, 3)

    def loss(layer):
        def run(x):
            y = layer(x, padding_mask=PADDING, use_causal_mask=causal)
            return keras.ops.sum(y * keras.ops.cos(y))

        return run

    x = normal(B, T, D)
    found = gradients(loss(ring), x, ring)
    for one, other in zip(found, gradients(loss(dense), x, dense), strict=True):
        assert_near(one, other, 2e-5)


def test_cross_attention():
    ring, dense = pair(VARIANTS["grouped"], 2, (B, T, D), (B, S, SOURCE))
    x, context = normal(B, T, D), normal(B, S, SOURCE)
    mask = np.arange(S) < [[S], [S - 3]]
    given = {"context": context, "padding_mask": mask}
    full = to_numpy(dense(x, **given))
    assert_near(ring(x, **given), full)
    laws.cached_equals_full(ring, x, full, T, context, context_padding_mask=mask)
    with pytest.raises(ValueError, match="takes no `use_causal_mask`"):
        ring(x, context=context, use_causal_mask=True)


@pytest.mark.parametrize("name", ["grouped", "rotary"])
def test_cached_equals_full(name):
    ring, _ = pair(VARIANTS[name], 2)
    x = normal(B, 10, D)
    full = to_numpy(ring(x, use_causal_mask=True))
    laws.cached_equals_full(ring, x, full, 12, chunks=([1] * 10, [10], [2, 1, 7]))


def test_later_tokens_and_padding():
    ring, _ = pair(VARIANTS["plain"], 2)
    laws.later_tokens_change_nothing_before(
        lambda x: to_numpy(ring(x, use_causal_mask=True)),
        normal(B, T, D),
        lambda x: 2 * x + 1,
    )
    for side in ("left", "right"):
        laws.padding_changes_nothing(
            lambda x, mask: to_numpy(ring(x, padding_mask=mask)),
            normal(B, T, D),
            100 * normal(B, 3, D),
            side,
        )


def test_a_row_without_keys_is_zero_with_finite_gradients():
    ring, _ = pair(VARIANTS["no_bias"], 2)
    mask = np.zeros((B, T), bool)
    x = normal(B, T, D)
    assert not to_numpy(ring(x, padding_mask=mask)).any()
    found = gradients(lambda x: keras.ops.sum(ring(x, padding_mask=mask)), x, ring)
    assert all(np.isfinite(g).all() for g in found)


@pytest.mark.parametrize("jit", [False, True])
def test_compiled(jit):
    ring, dense = pair(VARIANTS["rotary"], 4)
    x = normal(B, T, D)
    run = compiled(lambda x: ring(x, use_causal_mask=True), jit)
    assert_near(run(x), dense(x, use_causal_mask=True))


def test_refused():
    with pytest.raises(ValueError, match="`num_shards` must be positive, got 0"):
        layers.RingAttention(3, num_shards=0)
    ring, x = layers.RingAttention(3), normal(B, T, D)
    with pytest.raises(ValueError, match="takes no `attention_mask`"):
        ring(x, attention_mask=np.ones((T, T), bool))
    with pytest.raises(ValueError, match="takes no `return_attention_scores`"):
        ring(x, return_attention_scores=True)


@pytest.mark.tensorflow  # once is enough: the other process is JAX's
def test_over_devices():
    """4 and 8 devices: dense's numbers, messages, and less memory on each."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    words = [sys.executable, "-m", "tests.ring_on_devices"]
    run = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["8", "devices:", "right"]
