"""The laws of attention with global tokens: LongformerAttention, BigBirdAttention."""

import numpy as np
import pytest

from keras_tfm import layers, models
from tests import laws
from tests.laws import assert_near, differs, normal, randomize, to_numpy, token_ids

B, T, D = 2, 131, 12
BIG_BIRD, LONGFORMER = layers.BigBirdAttention, layers.LongformerAttention
LAYERS = {
    "window": (LONGFORMER, {"num_heads": 3, "window": 5}),
    "tokens": (LONGFORMER, {"num_heads": 2, "window": 33, "global_tokens": 4}),
    "blocks": (BIG_BIRD, {"num_heads": 3, "block_size": 8, "last_blocks": 2}),
    "both": (BIG_BIRD, {"num_heads": 3, "block_size": 7, "global_tokens": 2}),
    "etc": (
        BIG_BIRD,
        {
            "num_heads": 3,
            "block_size": 9,
            "first_blocks": 0,
            "last_blocks": 0,
            "global_tokens": 3,
        },
    ),
}
every = pytest.mark.parametrize("name", LAYERS)
each = pytest.mark.parametrize("name", ["tokens", "both"])


def make(name, **more):
    cls, config = LAYERS[name]
    layer = cls(**config, **more)
    layer.build((None, None, D))
    return randomize(layer)


@every
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(name, side):
    layer = make(name)

    def run(x, mask):
        return to_numpy(layer(x, padding_mask=mask))

    laws.padding_changes_nothing(run, normal(B, T, D), 100 * normal(B, 37, D), side)


@every
def test_left_padding_is_the_same_when_computed_densely(name):
    layer, x = make(name), normal(B, T, D)
    mask = np.arange(T) >= [[0], [40]]
    expected = to_numpy(layer(x, padding_mask=mask))[mask]
    dense = layer(x, padding_mask=mask, return_attention_scores=True)[0]
    assert_near(to_numpy(dense)[mask], expected)


@each
def test_rows_without_a_key_give_the_bias(name):  # FAULTS O06
    layer, x = make(name), normal(B, T, D)
    mask = np.array([[True] * T, [False] * T])
    bias = to_numpy(layer.output_projection.bias)
    laws.masked_rows_are_empty(layer, x, {"padding_mask": mask}, ~mask, bias)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["tokens", "blocks", "both"])
def test_unknown_length(name):
    import tensorflow as tf

    layer = make(name)
    given = tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), "bool")
    run = tf.function(lambda x, mask: layer(x, padding_mask=mask))
    run = run.get_concrete_function(*given)
    for length in (T, 64, 3, 1):
        x, mask = normal(B, length, D), np.arange(length) < [[length], [50]]
        actual = run(tf.constant(x), tf.constant(mask)).numpy()
        assert_near(actual[mask], to_numpy(layer(x, padding_mask=mask))[mask])


@pytest.mark.tensorflow
@each
def test_memory_grows_with_the_length(name):  # FAULTS O67
    layer = make(name)
    largest = [laws.largest_tensor(layer, (1, length, D)) for length in (1024, 4096)]
    assert largest[1] < 4.5 * largest[0]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@each
def test_half_precision(name, policy):  # FAULTS O13
    exact, x = make(name), normal(B, T, D)
    layer = make(name, dtype=policy)
    layer.set_weights(exact.get_weights())
    assert_near(layer(x), exact(x), atol=6e-2 if "bf" in policy else 2e-2)


@pytest.mark.parametrize("name", ["window", "blocks"])
def test_every_argument_counts(name):
    layer, x = make(name, attention_dropout=0.5), normal(B, T, D)
    keep = np.arange(T) < [[60], [T]]
    variants = {
        "padding_mask": keep,
        "attention_mask": np.tril(np.ones((T, T), bool)),
        "attention_bias": normal(3, T, T),
        "return_attention_scores": True,
        "training": True,
        "mask": keep,
        "inputs_mask": keep,
    }
    refused = {
        "context": x,
        "context_mask": keep,
        "positions": np.arange(T),
        "use_causal_mask": True,
    }
    laws.every_argument_counts(layer, x, variants, refused)


@pytest.mark.parametrize(
    "attention",
    [LONGFORMER(2, 4), [BIG_BIRD(2, 4, seed=seed) for seed in (1, 2)]],
    ids=["longformer", "big_bird"],
)
def test_a_long_bert(attention):
    model = models.Bert(
        vocabulary_size=31,
        num_layers=2,
        num_heads=2,
        hidden_dim=12,
        intermediate_dim=16,
        max_sequence_length=128,
        attention=attention,
    )
    ids = token_ids(B, 100)
    mask = np.arange(100) < [[100], [80]]
    outputs = model({"token_ids": ids, "padding_mask": mask})["sequence_output"]
    other = np.where(mask, ids, 1)
    again = model({"token_ids": other, "padding_mask": mask})["sequence_output"]
    assert_near(to_numpy(outputs)[mask], to_numpy(again)[mask])
    assert differs(outputs[:, :1], outputs[:, 1:2])


@each
def test_refused_calls(name):
    layer, x = make(name), normal(B, T, D)
    with pytest.raises(ValueError, match="sees all; use SlidingWindowAttention"):
        layer(x, use_causal_mask=True)
    with pytest.raises(ValueError, match="takes no `use_causal_mask`"):
        layer.init_cache(B, T)
