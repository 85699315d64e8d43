"""MultiHeadAttention against NumPy and Keras, its laws, its cache, its errors."""

import keras
import numpy as np
import pytest

from keras_tfm import layers
from tests import laws, numpy_layers
from tests.laws import assert_near, differs, normal, randomize, to_numpy

B, T, S, D, SOURCE = 2, 5, 7, 12, 3  # coprime where they may be
VARIANTS = {
    "plain": {"num_heads": 3},
    "grouped": {"num_heads": 6, "num_key_value_heads": 2, "key_dim": 4},
    "one_key_head": {"num_heads": 4, "num_key_value_heads": 1},
    "rotary": {"num_heads": 3, "rotary": layers.RotaryEmbedding(100.0)},
    "alibi": {"num_heads": 3, "relative_bias": layers.AlibiBias(3)},
    "buckets": {"num_heads": 3, "relative_bias": layers.RelativePositionBias(3)},
    "window": {"num_heads": 3, "window": 3},
    "rms": {"num_heads": 3, "qk_norm": "rms", "use_bias": False},
    "layer": {"num_heads": 3, "qk_norm": "layer"},
    "cap": {"num_heads": 3, "logit_soft_cap": 0.5},
    "no_output_bias": {"num_heads": 3, "use_output_bias": False},
}
variants = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def make(config, *shapes):
    layer = layers.MultiHeadAttention(**config)
    layer.build(*(shapes or [(None, None, D)]))
    return randomize(layer)


@pytest.mark.parametrize(
    "name",
    ["plain", "grouped", "one_key_head", "rms", "layer", "cap", "no_output_bias"],
)
@pytest.mark.parametrize("cross", [False, True])
def test_matches_numpy(name, cross):
    context = normal(B, S, SOURCE) if cross else None
    layer = make(VARIANTS[name], (B, T, D), (B, S, SOURCE if cross else D))
    x, keys = normal(B, T, D), S if cross else T
    padding = np.arange(keys) < [[keys - 2], [keys]]
    mask = np.random.default_rng(0).random((B, T, keys)) < 0.7
    bias = normal(layer.num_heads, T, keys)
    outputs, weights = layer(
        x,
        context=context,
        padding_mask=padding,
        attention_mask=mask,
        attention_bias=bias,
        return_attention_scores=True,
    )
    keep = padding[:, None, None] & mask[:, None]
    expected = numpy_layers.multi_head_attention(layer, x, context, keep, bias)
    assert_near(outputs, expected[0])
    assert_near(weights, expected[1])


def test_biases_of_the_output_alone_and_of_all_but_it():
    def biases(**config):
        layer = make({"num_heads": 3, **config})
        paths = [weight.path.partition("/")[2] for weight in layer.weights]
        return [path for path in paths if path.endswith("bias")]

    assert biases(use_bias=False, use_output_bias=True) == ["output/bias"]
    three = ["query/bias", "key/bias", "value/bias"]
    assert biases(use_output_bias=False) == three
    assert biases() == [*three, "output/bias"] and biases(use_bias=False) == []


def theirs_from_ours(ours, theirs, *shapes):
    """A Keras attention layer with the weights of one of ours."""
    theirs.build(*shapes)
    parts = ours.query, ours.key, ours.value, ours.output_projection
    sizes = [w.shape for w in theirs.weights]
    values = [w for part in parts for w in part.get_weights()]
    theirs.set_weights([v.reshape(shape) for v, shape in zip(values, sizes)])
    return theirs


@pytest.mark.parametrize("cross", [False, True])
def test_equals_keras(cross):
    x, context = normal(B, T, D), normal(B, S, SOURCE)
    ours = make(VARIANTS["plain"], x.shape, context.shape if cross else x.shape)
    theirs = keras.layers.MultiHeadAttention(3, key_dim=4)
    keys = context if cross else x
    theirs_from_ours(ours, theirs, x.shape, keys.shape)
    mask = np.random.default_rng(0).random((B, T, keys.shape[1])) < 0.7
    mask[:, :, 0] = True
    for causal in (False, True):
        masks = {"attention_mask": mask, "use_causal_mask": causal}
        expected = theirs(x, keys, return_attention_scores=True, **masks)
        given = {"context": context} if cross else {}
        actual = ours(x, return_attention_scores=True, **given, **masks)
        assert_near(actual[0], expected[0])
        assert_near(actual[1], expected[1])


def test_equals_keras_grouped():
    x = normal(B, T, D)
    ours = make(VARIANTS["grouped"])
    theirs = keras.layers.GroupQueryAttention(
        head_dim=4, num_query_heads=6, num_key_value_heads=2
    )
    theirs_from_ours(ours, theirs, x.shape, x.shape)
    assert_near(ours(x, use_causal_mask=True), theirs(x, x, use_causal_mask=True))


def test_rotary_turns_queries_and_keys_only():
    layer = make(VARIANTS["rotary"])
    x, positions = normal(B, T, D), np.array([[4, 5, 6, 7, 8], [0, 2, 4, 6, 8]])
    turn = layers.RotaryEmbedding(100.0)
    q, k, v = (
        numpy_layers.dense(part, x).reshape(B, T, 3, 4)
        for part in (layer.query, layer.key, layer.value)
    )
    q, k = (to_numpy(turn(y, positions)) for y in (q, k))
    heads = numpy_layers.attention(q, k, v)[0].reshape(B, T, -1)
    expected = numpy_layers.dense(layer.output_projection, heads)
    assert_near(layer(x, positions=positions), expected)


@pytest.mark.parametrize("name", ["alibi", "buckets"])
def test_relative_bias_is_added_to_the_scores(name):
    layer, x = make(VARIANTS[name]), normal(B, T, D)
    bias, more = to_numpy(layer.relative_bias(x)), normal(1, 3, T, T)
    expected = numpy_layers.multi_head_attention(layer, x, bias=bias + more)[0]
    assert_near(layer(x, attention_bias=more), expected)


def test_no_length_is_remembered():  # FAULTS O11
    layer = make(VARIANTS["plain"])
    for length in (8, 5, 12, 1):
        x = normal(B, length, D)
        fresh = laws.copy_weights(layer, (None, None, D))
        expected = fresh(x, use_causal_mask=True)
        assert_near(layer(x, use_causal_mask=True), expected, atol=1e-6)


@pytest.mark.tensorflow
def test_one_graph_serves_every_length():  # FAULTS O11, O52
    import tensorflow as tf

    layer, traces = make(VARIANTS["plain"]), []

    @tf.function(input_signature=[tf.TensorSpec((None, None, D))])
    def run(x):
        traces.append(x.shape)
        return layer(x, use_causal_mask=True)

    for length in (8, 5, 12, 1):
        x = normal(B, length, D)
        assert_near(run(x), layer(x, use_causal_mask=True))
    assert len(traces) == 1


def test_scores_in_symbolic_calls_are_those_of_the_context():
    layer = layers.MultiHeadAttention(3)
    x, context = keras.Input((T, D)), keras.Input((S, SOURCE))
    outputs, weights = layer(x, context=context, return_attention_scores=True)
    assert outputs.shape == (None, T, D) and weights.shape == (None, 3, T, S)
    model = keras.Model([x, context], [outputs, weights])
    actual = model([normal(B, T, D), normal(B, S, SOURCE)])
    assert [x.shape for x in actual] == [(B, T, D), (B, 3, T, S)]


def test_inputs_and_context_of_other_widths():  # FAULTS O66
    x, context = normal(B, T, 16), normal(B, S, 12)
    layer = randomize(make({"num_heads": 2}, x.shape, context.shape))
    symbols = keras.Input((None, 16)), keras.Input((None, 12))
    model = keras.Model(symbols, layer(symbols[0], context=symbols[1]))
    assert_near(model([x, context]), layer(x, context=context), atol=1e-6)
    for batch, length in ((0, T), (B, 0)):
        empty = np.zeros((batch, length, 16), "float32")
        some = np.zeros((batch, S, 12), "float32")
        assert layer(empty, context=some).shape == (batch, length, 16)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "mixed_bfloat16"])
@variants
def test_half_precision(config, policy):  # FAULTS O13
    exact, x = make(config), normal(B, T, D)
    layer = layers.MultiHeadAttention(**config, dtype=policy)
    layer.build((None, None, D))
    layer.set_weights(exact.get_weights())
    masks = {"padding_mask": np.arange(T) < [[3], [T]], "use_causal_mask": True}
    outputs, weights = layer(x, **masks, return_attention_scores=True)
    weights = to_numpy(weights)
    assert np.all(weights[0, :, :, 3:] == 0)
    assert np.all(weights * ~numpy_layers.causal(T) == 0)
    assert_near(outputs, exact(x, **masks), atol=6e-2 if "bf" in policy else 2e-2)


def test_a_float32_bias_stays_float32():
    layer = layers.MultiHeadAttention(1, key_dim=2, dtype="mixed_bfloat16")
    layer.build((1, 1, 4))
    bias = np.array([[[[1000.0, 1001.0]]]], "float32")  # equal in bfloat16
    weights = layer(
        np.zeros((1, 1, 4), "float32"),
        context=np.zeros((1, 2, 4), "float32"),
        attention_bias=bias,
        return_attention_scores=True,
    )[1]
    assert_near(to_numpy(weights).reshape(-1), np.array([0.2689, 0.7311]), atol=2e-3)


def test_initializers_are_cloned():
    initializer = keras.initializers.GlorotUniform(seed=1)
    layer = layers.MultiHeadAttention(3, kernel_initializer=initializer)
    layer.build((None, None, D))
    assert not differs(layer.query.kernel, layer.key.kernel)  # one seed, as was asked
    layer = layers.MultiHeadAttention(
        3, kernel_initializer=keras.initializers.GlorotUniform()
    )
    layer.build((None, None, D))
    assert differs(layer.query.kernel, layer.key.kernel)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_heads": 0}, "`num_heads` must be positive, got 0"),
        ({"num_heads": 5}, "`num_heads` must divide the width of `inputs`, got 5"),
        ({"num_heads": 6, "num_key_value_heads": 4}, "must divide `num_heads`, got 4"),
        ({"num_heads": 6, "num_key_value_heads": 0}, "must divide `num_heads`, got 0"),
        ({"num_heads": 3, "qk_norm": "batch"}, '`qk_norm` must be "rms"'),
        ({"num_heads": 3, "rotary": 10000.0}, "`rotary` must be a Keras layer"),
        ({"num_heads": 3, "window": 0}, "`window` must be at least 1, got 0"),
        ({"num_heads": 3, "attention_dropout": 1.5}, "1.5"),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        layers.MultiHeadAttention(**config)(normal(B, T, D))


def test_refused_calls():
    layer, x = make(VARIANTS["plain"]), normal(B, T, D)
    with pytest.raises(
        ValueError, match="`positions` needs an attention with `rotary`"
    ):
        layer(x, positions=np.arange(T))
    with pytest.raises(ValueError, match="`context` must be 12 wide.*got 3"):
        layer(x, context=normal(B, S, SOURCE))
    with pytest.raises(ValueError, match="`inputs` must be 12 wide"):
        layer.call_with_cache(normal(B, 1, 6), layer.init_cache(B, 4), 0)
    with pytest.raises(ValueError, match=r"`attention_mask` must have shape \(T, S\)"):
        layer(x, attention_mask=np.ones((T,), bool))
