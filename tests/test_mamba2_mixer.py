"""Mamba-2 against its reference and its own steps, and the laws of a mixer."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import generation, layers, models
from keras_tfm.layers import state_space_duality as scans
from tests import laws
from tests.laws import assert_near, gradients, normal, randomize, to_numpy
from tests.sources import ROOT
from tests.test_selective_scan import flat, split

B, T, D, N, G, H = 2, 5, 12, 5, 2, 6
CONFIG = {"num_heads": H, "state_size": N, "num_groups": G, "kernel_size": 3}
THEIRS = {
    "time_step_bias": "dt_bias",
    "log_rates": "A_log",
    "skip": "D",
    "norm_scale": "norm.weight",
    "input": "in_proj",
    "convolution": "conv1d",
    "output": "out_proj",
}


def make(**more):
    layer = layers.Mamba2Mixer(**CONFIG, **more)
    layer.build((B, T, D))
    return randomize(layer)


def take(golden, prefix, path):
    """The reference's value of one of a mixer's weights."""
    owner, _, kind = path.rpartition("/")
    if not owner:
        return golden[f"{prefix}{THEIRS[kind]}"]
    found = golden[f"{prefix}{THEIRS[owner]}.{'bias' if kind == 'bias' else 'weight'}"]
    return found.T if kind == "bias" else found.reshape(len(found), -1).T


@pytest.fixture(scope="module")
def golden():
    with np.load(ROOT / "tests" / "golden" / "mamba.npz") as file:
        return {k.removeprefix("mamba2/"): file[k] for k in file if "mamba2/" in k}


@pytest.fixture
def chunks(monkeypatch):
    monkeypatch.setattr(scans, "CHUNK", 3)


def test_mixer_matches(golden, chunks):
    layer = layers.Mamba2Mixer(**CONFIG, use_bias=True)
    layer.build((B, T, D))
    for weight in layer.weights:
        path = weight.path.removeprefix(f"{layer.name}/")
        weight.assign(take(golden, "mixer/weights/", path))
    assert_near(layer(golden["mixer/inputs"]), golden["mixer/outputs"])


def test_language_model_matches(golden, chunks):
    model = models.GPT(
        vocabulary_size=31,
        num_layers=2,
        num_heads=1,
        hidden_dim=D,
        intermediate_dim=None,
        max_sequence_length=16,
        position=None,
        norm="rms",
        tie_embeddings=False,
        attention=layers.Mamba2Mixer(**CONFIG),
    )
    theirs = "model/weights/backbone"
    for weight in model.weights:
        block, _, path = weight.path.partition("/")
        if path.startswith("attention/"):
            prefix = f"{theirs}.layers.{block[-1]}.mixer."
            weight.assign(take(golden, prefix, path.removeprefix("attention/")))
        elif block == "token_embedding":
            weight.assign(golden[f"{theirs}.embeddings.weight"])
        elif block == "output_head":
            weight.assign(golden["model/weights/lm_head.weight"].T)
        elif block == "final_norm":
            weight.assign(golden[f"{theirs}.norm_f.weight"])
        else:
            weight.assign(golden[f"{theirs}.layers.{block[-1]}.norm.weight"])
    logits = model(golden["model/token_ids"])
    assert_near(logits, golden["model/logits"], atol=1e-4)
    made = generation.generate(model, golden["model/token_ids"], 6)
    np.testing.assert_array_equal(made, golden["model/generated"])


def arguments(length):
    """x, time steps, write, read, rates and a first state."""
    return [
        normal(B, length, G, 6),
        np.abs(normal(B, length, G, 3)),
        normal(B, length, G, N),
        normal(B, length, G, N, seed=1),
        -np.abs(normal(G, 3)),
        normal(B, G, N, 6),
    ]


def loop(*given):
    """Token after token."""
    *sequences, rates, state = given
    outputs = []
    for t in range(sequences[0].shape[1]):
        now = [x[:, t : t + 1] for x in sequences]
        made, state = scans.state_space_step(*now, rates, state)
        outputs.append(made)
    return ops.concatenate(outputs, axis=1), state


@pytest.mark.parametrize("length", [2, 3, 8])
def test_scan_equals_a_loop(length, chunks):
    given = [ops.convert_to_tensor(x) for x in arguments(length)]
    outputs, state = scans.state_space_scan(*given)
    expected, expected_state = loop(*given)
    assert_near(outputs, expected)
    assert_near(state, expected_state)


def test_gradients_equal_those_of_a_loop(chunks):
    given = arguments(8)
    weights = normal(B, 8, G, 6, seed=2), normal(B, G, N, 6, seed=2)

    def loss_of(run):
        def loss(vector):
            made = run(*split(vector, given))
            return sum(ops.sum(x * y) for x, y in zip(made, weights))

        return loss

    (expected,) = gradients(loss_of(loop), flat(given))
    (found,) = gradients(loss_of(scans.state_space_scan), flat(given))
    assert_near(found, expected, atol=1e-5 * np.abs(expected).max())


def test_steps_of_any_size(chunks):
    """Decays that underflow, and none at all."""
    x, time_step, *given = [ops.convert_to_tensor(x) for x in arguments(8)]
    for scale in (0.0, 1e4):

        def loss(steps):
            made = scans.state_space_scan(x, steps, *given)
            return sum(ops.sum(y) for y in made)

        (found,) = gradients(loss, scale * time_step)
        assert np.all(np.isfinite(found))


def test_causal(chunks):
    layer = make()

    def run(x):
        return to_numpy(layer(x))

    laws.later_tokens_change_nothing_before(run, normal(B, T, D), lambda x: 2 * x + 1)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding(side, bidirectional, chunks):
    layer = make(bidirectional=bidirectional, use_bias=True)

    def run(x, mask):
        return to_numpy(layer(x, padding_mask=mask))

    padding = 100 * normal(B, 3, D)
    laws.padding_changes_nothing(run, normal(B, T, D), padding, side)


def test_cached_equals_full(chunks):  # FAULTS O27
    layer, x = make(), normal(B, 10, D)
    laws.cached_equals_full(layer, x, to_numpy(layer(x)), 10)


def test_cached_equals_full_with_padding(chunks):  # FAULTS O68
    layer, x = make(use_bias=True), normal(B, T, D)
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 0, 1]], bool)
    covers = np.concatenate([mask, np.ones((B, 2), bool)], axis=1)
    full = to_numpy(layer(x, padding_mask=mask))
    laws.cached_equals_full(layer, x, full, T + 2, padding_mask=covers)


def test_rows_without_a_token_give_the_bias():  # FAULTS O06
    layer, x = make(use_bias=True), normal(B, T, D)
    mask = np.array([[0, 0, 1, 1, 1], [0] * T], bool)
    bias = to_numpy(layer.output_projection.bias)
    laws.masked_rows_are_empty(layer, x, {"padding_mask": mask}, ~mask, bias)


def test_states_are_wide():
    layer = layers.Mamba2Mixer(**CONFIG, dtype="mixed_float16")
    layer.build((B, T, D))
    outputs, cache = layer.call_with_cache(normal(B, T, D), layer.init_cache(B, T), 0)
    assert keras.backend.standardize_dtype(cache["state"].dtype) == "float32"
    wide = layers.Mamba2Mixer(**CONFIG)
    wide.build((B, T, D))
    wide.set_weights(layer.get_weights())
    assert_near(outputs, wide(normal(B, T, D)), atol=3e-2)


def test_refusals():
    with pytest.raises(ValueError, match="takes no `positions`"):
        make()(normal(B, T, D), positions=np.arange(T))
    with pytest.raises(ValueError, match="`num_groups` must divide `num_heads`"):
        layers.Mamba2Mixer(4, num_groups=3)
    with pytest.raises(ValueError, match="`num_heads` must divide the inner width 24"):
        layers.Mamba2Mixer(5).build((B, T, D))
