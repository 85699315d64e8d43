"""Mamba against its reference, the laws of a mixer, its states as a cache."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import generation, layers, models
from tests import laws, real_weights
from tests.laws import (
    assert_near,
    compiled,
    differs,
    normal,
    randomize,
    to_numpy,
    token_ids,
)
from tests.sources import ROOT

B, T, D, N, K = 2, 5, 12, 5, 3
CONFIG = {"state_size": N, "kernel_size": K, "time_step_rank": 2}
THEIRS = {
    "time_step_bias": "dt_proj.bias",
    "log_rates": "A_log",
    "skip": "D",
    "input": "in_proj",
    "convolution": "conv1d",
    "selection": "x_proj",
    "time_step": "dt_proj",
    "output": "out_proj",
}


def make(**more):
    layer = layers.MambaMixer(**CONFIG, **more)
    layer.build((B, T, D))
    return randomize(layer)


def take(golden, prefix, path, value):
    """The reference's value of one of a mixer's weights."""
    owner, _, kind = path.rpartition("/")
    if not owner:
        return golden[f"{prefix}{THEIRS[kind]}"]
    name = f"{prefix}{THEIRS[owner]}.{'bias' if kind == 'bias' else 'weight'}"
    if name not in golden:  # the reference has no bias here
        return np.zeros_like(value)
    found = golden[name]
    return found.T if kind == "bias" else found.reshape(len(found), -1).T


@pytest.fixture(scope="module")
def golden():
    with np.load(ROOT / "tests" / "golden" / "mamba.npz") as file:
        return {k.removeprefix("mamba/"): file[k] for k in file if "mamba/" in k}


@pytest.fixture(scope="module")
def language_model(golden):
    model = models.GPT(
        vocabulary_size=31,
        num_layers=2,
        num_heads=1,
        hidden_dim=D,
        intermediate_dim=None,
        max_sequence_length=16,
        position=None,
        norm="rms",
        attention=layers.MambaMixer(**CONFIG),
    )
    theirs = "model/weights/backbone"
    for weight in model.weights:
        block, _, path = weight.path.partition("/")
        if path.startswith("attention/"):
            prefix = f"{theirs}.layers.{block[-1]}.mixer."
            path = path.removeprefix("attention/")
            weight.assign(take(golden, prefix, path, weight))
        elif block == "token_embedding":
            weight.assign(golden[f"{theirs}.embeddings.weight"])
        elif block == "final_norm":
            weight.assign(golden[f"{theirs}.norm_f.weight"])
        else:
            weight.assign(golden[f"{theirs}.layers.{block[-1]}.norm.weight"])
    return model


def test_mixer_matches(golden):
    layer = layers.MambaMixer(**CONFIG, use_bias=True)
    layer.build((B, T, D))
    for weight in layer.weights:
        path = weight.path.removeprefix(f"{layer.name}/")
        weight.assign(take(golden, "mixer/weights/", path, weight))
    assert_near(layer(golden["mixer/inputs"]), golden["mixer/outputs"])


def test_language_model_matches(golden, language_model):
    logits = language_model(golden["model/token_ids"])
    assert_near(logits, golden["model/logits"], atol=1e-4)


def test_greedy_ids_match(golden, language_model):
    made = generation.generate(language_model, golden["model/token_ids"], 6)
    np.testing.assert_array_equal(made, golden["model/generated"])


def test_causal():
    layer = make()

    def run(x):
        return to_numpy(layer(x))

    laws.later_tokens_change_nothing_before(run, normal(B, T, D), lambda x: 2 * x + 1)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding(side, bidirectional):
    layer = make(bidirectional=bidirectional, use_bias=True)

    def run(x, mask):
        return to_numpy(layer(x, padding_mask=mask))

    padding = 100 * normal(B, 3, D)
    laws.padding_changes_nothing(run, normal(B, T, D), padding, side)


def test_both_ways_is_one_way_and_back():
    """A kernel of one token to each side, the same both ways, sees no direction."""
    layer, x = make(bidirectional=True), normal(B, T, D)
    kernel = to_numpy(layer.convolution.kernel)
    layer.convolution.kernel.assign(kernel + kernel[::-1])
    assert_near(layer(x[:, ::-1]), to_numpy(layer(x))[:, ::-1])
    later = np.concatenate([x[:, :4], 2 * x[:, 4:]], axis=1)
    assert differs(to_numpy(layer(later))[:, 0], to_numpy(layer(x))[:, 0])


def test_cached_equals_full():  # FAULTS O27, O68
    layer, x = make(), normal(B, 10, D)
    chunks = [1] * 10, [10], [2, 1, 7], [3, 4, 3]
    laws.cached_equals_full(layer, x, to_numpy(layer(x)), 10, chunks=chunks)


def test_cached_equals_full_with_padding():  # FAULTS O27, O29
    layer, x = make(use_bias=True), normal(B, T, D)
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 0, 1]], bool)
    covers = np.concatenate([mask, np.ones((B, 2), bool)], axis=1)
    full = to_numpy(layer(x, padding_mask=mask))
    laws.cached_equals_full(layer, x, full, T + 2, padding_mask=covers)
    alone = to_numpy(layer(x[1:, [0, 1, 2, 4]]))
    assert_near(full[1:, [0, 1, 2, 4]], alone)


def test_a_prompt_padded_on_the_right():  # FAULTS O68
    layer = layers.MambaMixer(state_size=N, kernel_size=4)
    layer.build((2, 7, D))
    randomize(layer)
    x, after = normal(2, 7, D), normal(2, 3, D, seed=1)
    covers = np.array([[1] * 2 + [0] * 5 + [1] * 3, [1] * 10], bool)
    cache, index = layer.init_cache(2, 10), 0
    rows = []
    for part in (x, *np.split(after, 3, axis=1)):
        place = ops.convert_to_tensor(index, "int32")
        outputs, cache = layer.call_with_cache(part, cache, place, covers)
        rows.append(to_numpy(outputs))
        index += part.shape[1]
    rows = np.concatenate(rows, axis=1)
    for row, length in enumerate((2, 7)):
        alone = np.concatenate([x[row, :length], after[row]])
        expected = to_numpy(layer(np.expand_dims(alone, 0)))[0]
        assert_near(rows[row, covers[row]], expected)


def test_rows_without_a_token_give_the_bias():  # FAULTS O06
    layer, x = make(use_bias=True), normal(B, T, D)
    mask = np.array([[0, 0, 1, 1, 1], [0] * T], bool)
    bias = to_numpy(layer.output_projection.bias)
    laws.masked_rows_are_empty(layer, x, {"padding_mask": mask}, ~mask, bias)


def test_masks_are_joined():  # FAULTS O02
    layer, x = make(), normal(B, T, D)
    one, other = np.arange(T) < [[3], [T]], np.arange(T) >= [[1], [2]]
    expected = layer(x, padding_mask=one & other)
    assert_near(layer(x, padding_mask=one, mask=other), expected)
    assert_near(layer(x, padding_mask=other, inputs_mask=one), expected)
    assert differs(expected, layer(x, padding_mask=one))


def test_states_are_wide():  # FAULTS O68
    layer = layers.MambaMixer(**CONFIG, dtype="mixed_bfloat16")
    layer.build((B, T, D))
    cache = layer.init_cache(B, T)
    kinds = {k: keras.backend.standardize_dtype(v.dtype) for k, v in cache.items()}
    assert kinds == {"convolution": "bfloat16", "state": "float32"}
    outputs, cache = layer.call_with_cache(normal(B, T, D), cache, 0)
    assert keras.backend.standardize_dtype(cache["state"].dtype) == "float32"
    wide = layers.MambaMixer(**CONFIG)
    wide.build((B, T, D))
    wide.set_weights(layer.get_weights())
    assert_near(outputs, wide(normal(B, T, D)), atol=3e-2)


def test_first_time_steps_and_rates():
    layer = layers.MambaMixer(state_size=3, time_step_range=(0.01, 0.2))
    layer.build((B, T, 64))
    steps = to_numpy(ops.softplus(layer.time_step_bias.value))
    assert 0.0099 < steps.min() < 0.02 and 0.1 < steps.max() < 0.2001
    rates = np.exp(to_numpy(layer.log_rates))
    assert_near(rates, np.broadcast_to([1.0, 2.0, 3.0], (128, 3)))


def test_beams_take_their_states_along():  # FAULTS O39
    model = randomize(
        models.GPT(
            31, 1, 1, D, None, 16, position=None, attention=layers.MambaMixer(**CONFIG)
        )
    )
    prompt, strategy = token_ids(1, 3), generation.BeamSearch(3)
    made = generation.generate(model, prompt, 4, strategy=strategy)
    beams = [(0.0, prompt[0].tolist())]
    for _ in range(4):  # from scratch each step
        ids = np.array([ids for _, ids in beams], "int32")
        logits = to_numpy(compiled(model)(ids))[:, -1]
        chances = to_numpy(ops.log_softmax(logits))
        longer = [
            (score + chances[row, token], [*ids, token])
            for row, (score, ids) in enumerate(beams)
            for token in range(31)
        ]
        beams = sorted(longer, key=lambda pair: -pair[0])[:3]
    np.testing.assert_array_equal(to_numpy(made)[0], beams[0][1])


def test_in_the_blocks_and_models():
    mixer = layers.MambaMixer(**CONFIG)
    block = layers.TransformerEncoderBlock(mixer, layers.FeedForward(7))
    assert tuple(block(normal(B, T, D)).shape) == (B, T, D)
    alone = layers.TransformerEncoderBlock(mixer, None)
    alone.build((B, T, D))
    randomize(alone)
    x = normal(B, T, D)
    inner = alone.attention(alone.attention_residual.norm_before(x))
    assert_near(alone(x), x + to_numpy(inner))
    again = type(alone).from_config(alone.get_config())
    assert again.feed_forward is None


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"context": normal(B, T, D)}, "context"),
        ({"attention_mask": np.ones((T, T), bool)}, "attention_mask"),
        ({"attention_bias": np.zeros((1, 1, T, T))}, "attention_bias"),
        ({"positions": np.arange(T)}, "positions"),
        ({"return_attention_scores": True}, "return_attention_scores"),
    ],
)
def test_refused_arguments(given, name):
    with pytest.raises(ValueError, match=f"takes no `{name}`.*no pairs"):
        make()(normal(B, T, D), **given)


def test_refusals():
    x = normal(B, T, D)
    with pytest.raises(ValueError, match="no `use_causal_mask`: it is bidirectional"):
        make(bidirectional=True)(x, use_causal_mask=True)
    with pytest.raises(ValueError, match="bidirectional.*no cache"):
        make(bidirectional=True).init_cache(B, T)
    with pytest.raises(ValueError, match="must be built"):
        layers.MambaMixer().init_cache(B, T)
    with pytest.raises(ValueError, match="must be 12 wide.*got 7"):
        make()(normal(B, T, 7))
    with pytest.raises(ValueError, match="`state_size` must be positive"):
        layers.MambaMixer(state_size=0)
    with pytest.raises(ValueError, match="`kernel_size` must be at least 2"):
        layers.MambaMixer(kernel_size=1)
    with pytest.raises(ValueError, match="`time_step_range` must be two positive"):
        layers.MambaMixer(time_step_range=(0.1, 0.01))


NAMES = {
    "input": "Dense_0",
    "selection": "Dense_1",
    "time_step": "Dense_2",
    "output": "Dense_3",
}


def typeseg(folder):
    """A bidirectional model of real weights: bytes to kinds of content."""
    with np.load(folder / "data" / "mamba_al.npz") as file:
        theirs = dict(file)
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(130, 256, name="embedding")(ids)
    for i in range(6):
        x = layers.TransformerEncoderBlock(
            layers.MambaMixer(
                expand=1, time_step_offset=1e-4, bidirectional=True, use_bias=True
            ),
            None,
            norm_epsilon=1e-6,
            name=f"block_{i}",
        )(x)
    x = keras.layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    model = keras.Model(ids, keras.layers.Dense(35, name="logits")(x))
    tops = {"embedding": "Embed_0", "norm": "LayerNorm_0", "logits": "Dense_0"}
    kinds = {"gamma": "scale", "beta": "bias", "embeddings": "embedding"}
    own = {"time_step_bias": "Dense_2__bias", "log_rates": "A_log", "skip": "D"}
    for weight in model.weights:
        block, *inner, kind = weight.path.split("/")
        name = kinds.get(kind, kind)
        prefix = f"CheckpointMambaBlock1D_{block[-1]}__"
        if block in tops:
            value = theirs[f"{tops[block]}__{name}"]
        elif inner == ["attention"]:
            value = theirs[prefix + own[kind]]
        elif inner == ["attention", "convolution"]:
            value = theirs[f"{prefix}Conv_0__{name}"].reshape(weight.shape)
        elif inner[0] == "attention":
            value = theirs[f"{prefix}{NAMES[inner[1]]}__{name}"]
        else:
            value = theirs[f"{prefix}LayerNorm_0__{name}"]
        weight.assign(value)
    return model


def test_real_weights():
    found = real_weights.golden("typeseg_mamba")
    model = typeseg(real_weights.package_folder("typeseg"))
    ids = found["tokens"]
    ids = np.where(ids < 128, ids, np.where(ids == 256, 129, 128))
    logits = to_numpy(compiled(model)(np.expand_dims(ids, 0)))[0]
    assert_near(logits, found["logits"], atol=2e-4)
