"""SlidingWindowAttention against dense attention, its laws, its cache, its errors."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import generation, layers, models
from tests import laws
from tests.laws import assert_near, compiled, normal, randomize, to_numpy, token_ids

B, T, D = 2, 101, 12  # T: four blocks of 32
VARIANTS = {
    "plain": {"window": 5},
    "one": {"window": 1},
    "two_blocks_back": {"window": 40},
    "grouped": {"window": 33, "num_heads": 6, "num_key_value_heads": 2, "key_dim": 4},
    "rotary": {"window": 7, "rotary": layers.RotaryEmbedding(100.0)},
    "alibi": {"window": 7, "relative_bias": layers.AlibiBias(3)},
    "buckets": {"window": 34, "relative_bias": layers.RelativePositionBias(3)},
    "rms": {"window": 3, "qk_norm": "rms", "use_bias": False},
    "cap": {"window": 5, "logit_soft_cap": 0.5},
    "dilated": {"window": 5, "dilation": 2},
    "dilated_grouped": {"window": 3, "dilation": 3, "num_key_value_heads": 1},
}
variants = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def make(config):
    layer = layers.SlidingWindowAttention(**{"num_heads": 3, **config})
    layer.build((None, None, D))
    return randomize(layer)


def dense_twin(layer, config, length=T):
    """A MultiHeadAttention of the same weights, and the mask that it needs."""
    config = {"num_heads": 3, **config}
    window, dilation = config.pop("window"), config.pop("dilation", 1)
    twin = layers.MultiHeadAttention(**config, implementation="dense")
    twin.build((None, None, D))
    twin.set_weights(layer.get_weights())
    distance = np.arange(length).reshape(-1, 1) - np.arange(length)
    near = (abs(distance) < window * dilation) & (distance % dilation == 0)
    return twin, near


@variants
@pytest.mark.parametrize("causal", [False, True])
def test_equals_dense(config, causal):
    layer, x = make(config), normal(B, T, D)
    twin, near = dense_twin(layer, config)
    masks = {
        "use_causal_mask": causal,
        "padding_mask": np.arange(T) < [[T - 40], [T]],
    }
    expected = twin(x, attention_mask=near, return_attention_scores=True, **masks)
    assert_near(layer(x, **masks), expected[0])
    both = layer(x, return_attention_scores=True, **masks)
    assert_near(both[0], expected[0])
    assert_near(both[1], expected[1])
    twin, near = dense_twin(layer, config, 20)  # all in one block
    short = twin(x[:, :20], attention_mask=near, use_causal_mask=causal)
    assert_near(layer(x[:, :20], use_causal_mask=causal), short)


def test_gradients_equal_those_of_dense():
    config = VARIANTS["grouped"]
    layer, x = make(config), normal(B, T, D)
    twin, near = dense_twin(layer, config)
    ours = laws.gradients(lambda x: ops.mean(layer(x) ** 2), x, layer)

    def dense(x):
        return ops.mean(twin(x, attention_mask=near) ** 2)

    for actual, expected in zip(ours, laws.gradients(dense, x, twin)):
        assert_near(actual, expected)


def test_window_counts_the_own_position():  # FAULTS O32
    layer = make({"window": 4})
    x = normal(1, 10, D)
    for length in (10, T):
        x = normal(1, length, D)
        far = np.concatenate([x[:, :1] + 100, x[:, 1:]], axis=1)
        changed = layer(far, use_causal_mask=True) - layer(x, use_causal_mask=True)
        moved = np.abs(to_numpy(changed)).max((0, 2)) > 1e-3
        assert np.flatnonzero(moved).tolist() == [0, 1, 2, 3]


@variants
def test_causal(config):
    layer, x = make(config), normal(B, T, D)
    before = to_numpy(layer(x, use_causal_mask=True))
    for t in (1, 32, 63):
        after = layer(
            np.concatenate([x[:, :t], 2 * x[:, t:] + 1], axis=1), use_causal_mask=True
        )
        assert_near(to_numpy(after)[:, :t], before[:, :t])


@pytest.mark.parametrize("name", ["rotary", "alibi", "two_blocks_back", "dilated"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(name, side):
    layer = make(VARIANTS[name])

    def run(x, mask):
        given = {}
        if layer.rotary is not None:
            given["positions"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        return to_numpy(layer(x, padding_mask=mask, **given))

    laws.padding_changes_nothing(run, normal(B, T, D), 100 * normal(B, 37, D), side)


@pytest.mark.parametrize("name", ["plain", "dilated"])
def test_rows_without_a_key_give_the_bias(name):  # FAULTS O06
    layer, x = make(VARIANTS[name]), normal(B, T, D)
    mask = np.arange(T) >= [[50], [T]]
    bias = to_numpy(layer.output_projection.bias)
    masks = {"padding_mask": mask, "use_causal_mask": True}
    laws.masked_rows_are_empty(layer, x, masks, ~mask, bias)


@variants
def test_cached_equals_full(config):  # FAULTS O27, O32
    layer, x = make(config), normal(B, T, D)
    full = to_numpy(layer(x, use_causal_mask=True))
    span = layer.init_cache(B, T)["key"].shape[2]
    assert span == (config["window"] - 1) * config.get("dilation", 1) + 1
    chunks = [70, 1, 30], [span, 1, T - span - 1]
    laws.cached_equals_full(layer, x, full, T, chunks=chunks)
    if span > 2:  # a cache that never rolls
        few, chunks = span - 1, [[1, span - 2]]
        laws.cached_equals_full(layer, x[:, :few], full[:, :few], few, chunks=chunks)


def test_cached_equals_full_with_padding():  # FAULTS O27, O29
    layer, x = make(VARIANTS["rotary"]), normal(B, T, D)
    mask = np.arange(T) >= [[0], [40]]
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype("int32")
    where = {"padding_mask": mask, "positions": positions}
    full = to_numpy(layer(x, use_causal_mask=True, **where))
    chunks = [T], [70, 1, 30]
    laws.cached_equals_full(layer, x, full, T, chunks=chunks, **where)


@pytest.mark.parametrize("name", ["plain", "dilated"])
def test_unknown_length(name):
    layer = make(VARIANTS[name])
    mask = np.arange(T) < [[60], [T]]
    run = compiled(lambda x, mask: layer(x, padding_mask=mask))
    if hasattr(run, "get_concrete_function"):
        import tensorflow as tf

        given = tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), "bool")
        run = run.get_concrete_function(*given)
    for length in (T, 64, 1):
        x, seen = normal(B, length, D), mask[:, :length]
        actual = run(ops.convert_to_tensor(x), ops.convert_to_tensor(seen))
        assert_near(actual, layer(x, padding_mask=seen))


@pytest.mark.tensorflow
def test_memory_grows_with_the_length():  # FAULTS O67
    layer = make({"window": 33, "dilation": 2})
    largest = [laws.largest_tensor(layer, (1, length, D)) for length in (1024, 4096)]
    assert largest[1] < 4.5 * largest[0]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy):  # FAULTS O13
    config, x = VARIANTS["grouped"], normal(B, T, D)
    exact = make(config)
    layer = layers.SlidingWindowAttention(**config, dtype=policy)
    layer.build((None, None, D))
    layer.set_weights(exact.get_weights())
    atol = 6e-2 if "bf" in policy else 2e-2
    assert_near(layer(x), exact(x), atol=atol)


def test_every_argument_counts():
    x = normal(B, T, D)
    layer = make({**VARIANTS["rotary"], "attention_dropout": 0.5})
    keep = np.arange(T) < [[60], [T]]
    variants = {
        "padding_mask": keep,
        "attention_mask": np.tril(np.ones((T, T), bool)),
        "attention_bias": normal(3, T, T),
        "positions": 3 * np.arange(T),
        "use_causal_mask": True,
        "return_attention_scores": True,
        "training": True,
        "mask": keep,
        "inputs_mask": keep,
    }
    refused = {"context": x, "context_mask": keep}
    laws.every_argument_counts(layer, x, variants, refused)


def test_a_language_model_generates_what_a_full_pass_says():
    model = models.GPT(
        vocabulary_size=31,
        num_layers=1,
        num_heads=4,
        hidden_dim=16,
        intermediate_dim=24,
        max_sequence_length=64,
        position=None,
        attention=layers.SlidingWindowAttention(
            4, 3, num_key_value_heads=2, rotary=layers.RotaryEmbedding()
        ),
    )
    randomize(model)
    made = prompt = token_ids(B, 5)
    for _ in range(4):
        best = np.argmax(to_numpy(model(made))[:, -1:], axis=-1)
        made = np.concatenate([made, best.astype("int32")], axis=1)
    answer = to_numpy(generation.generate(model, prompt, 4))
    np.testing.assert_array_equal(answer, made)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"window": 0}, "`window` must be at least 1, got 0"),
        ({"window": 2, "dilation": 0}, "`dilation` must be at least 1, got 0"),
        ({"window": 2, "num_heads": 5}, "`num_heads` must divide"),
        ({"window": 2, "qk_norm": "batch"}, '`qk_norm` must be "rms"'),
        (
            {"window": 2, "dilation": 2, "relative_bias": layers.AlibiBias(3)},
            "`relative_bias` needs a `dilation` of 1, got 2",
        ),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        make(config)


def test_refused_calls():
    layer, x = make(VARIANTS["plain"]), normal(B, T, D)
    with pytest.raises(ValueError, match="takes no `context`: a window"):
        layer(x, context=x)
    with pytest.raises(ValueError, match="takes no `context`"):
        layer.init_cache(B, T, x)
    with pytest.raises(ValueError, match="`positions` needs an attention with"):
        layer(x, positions=np.arange(T))
    with pytest.raises(ValueError, match="must be built"):
        layers.SlidingWindowAttention(3, 2).init_cache(B, 4)
