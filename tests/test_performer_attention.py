"""PerformerAttention against NumPy, the softmax, its laws and its cache."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import generation, layers, models
from keras_tfm.layers import kernel_features, linear_attention
from tests import laws, numpy_layers
from tests.laws import assert_near, differs, normal, randomize, to_numpy

B, T, S, N, D, SOURCE = 2, 10, 7, 3, 12, 5
VARIANTS = {
    "favor": {"num_heads": N, "num_features": 11, "seed": 1},
    "elu": {"num_heads": N, "kernel": "elu"},
    "rotary": {
        "num_heads": N,
        "rotary": layers.RotaryEmbedding(100.0),
        "use_bias": False,
    },
}
variants = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    """Several chunks, the last one cut short."""
    monkeypatch.setattr(linear_attention, "CHUNK", 4)


def make(config, *shapes):
    layer = layers.PerformerAttention(**config)
    layer.build(*(shapes or [(None, None, D)]))
    features = None if layer.features is None else to_numpy(layer.features)
    randomize(layer)
    if features is not None:
        layer.features.assign(features)
    return layer


def heads_of(layer, x, context=None):
    """Queries, keys and values (B, N, T, H) in NumPy."""
    context = x if context is None else context
    parts = (layer.query, x), (layer.key, context), (layer.value, context)
    return [
        numpy_layers.dense(part, y).reshape(*y.shape[:2], N, -1).transpose(0, 2, 1, 3)
        for part, y in parts
    ]


def softmax_kernel(x, projection, axes):
    """The published features: exp(w x - |x|^2 / 2 - max) + epsilon."""
    x = x * x.shape[-1] ** -0.25
    exponents = x @ projection.T - np.sum(x**2, -1, keepdims=True) / 2
    top = exponents.max(axis=axes, keepdims=True)
    return (np.exp(exponents - top) + 1e-6) * len(projection) ** -0.5


def elu_kernel(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def reference(layer, x, context=None, keep=None, causal=False):
    """Outputs by sums over the features, token by token."""
    q, k, v = heads_of(layer, x, context)
    if layer.kernel == "elu":
        q, k = elu_kernel(q), elu_kernel(k)
    else:
        projection = to_numpy(layer.features).astype("float64")
        q, k = softmax_kernel(q, projection, -1), softmax_kernel(k, projection, (2, 3))
    if keep is not None:
        k = k * keep[:, None, :, None]
    outer = k[..., None] * v[..., None, :]  # (B, N, S, M, H)
    if causal:
        sums, total = np.cumsum(outer, axis=2), np.cumsum(k, axis=2)
    else:
        sums = np.broadcast_to(outer.sum(2, keepdims=True), (*q.shape, v.shape[-1]))
        total = np.broadcast_to(k.sum(2, keepdims=True), q.shape)
    heads = np.einsum("bntm,bntmh->bnth", q, sums)
    heads = heads / np.einsum("bntm,bntm->bnt", q, total)[..., None]
    heads = heads.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    return numpy_layers.dense(layer.output_projection, heads)


@pytest.mark.parametrize("name", ["favor", "elu"])
def test_matches_the_published_formulas(name):
    layer, x = make(VARIANTS[name]), normal(B, T, D)
    keep = np.arange(T) < [[T - 3], [T]]
    for causal in (False, True):
        actual = layer(x, padding_mask=keep, use_causal_mask=causal)
        expected = reference(layer, x, keep=keep, causal=causal)
        assert_near(actual, expected, atol=1e-4)
    context = normal(B, S, SOURCE)
    layer = make(VARIANTS[name], x.shape, context.shape)
    keep = np.arange(S) < [[S], [S - 2]]
    expected = reference(layer, x, context, keep)
    assert_near(layer(x, context=context, padding_mask=keep), expected, atol=1e-4)


def test_the_error_falls_with_the_number_of_features():
    keras.utils.set_random_seed(0)
    dense, x = layers.MultiHeadAttention(N), 0.5 * normal(B, 40, D)
    dense.build(x.shape)
    for causal in (False, True):
        expected, errors = to_numpy(dense(x, use_causal_mask=causal)), []
        for count in (64, 512, 4096):
            layer = make({**VARIANTS["favor"], "num_features": count})
            for weight in dense.weights:
                path = weight.path.split("/", 1)[1]
                [mine] = [w for w in layer.weights if w.path.endswith(path)]
                mine.assign(weight)
            actual = to_numpy(layer(x, use_causal_mask=causal))
            errors.append(np.sqrt(np.mean((actual - expected) ** 2)))
        assert errors[0] > errors[1] > errors[2]
        assert errors[2] < 0.3 * errors[0]  # an eighth, by theory
        assert errors[-1] < 0.1 * np.std(expected)


def test_features_are_orthogonal_and_as_long_as_normal_vectors():
    drawn = kernel_features.draw_features(1000, 16, seed=3)
    assert drawn.shape == (1000, 16) and drawn.dtype == "float32"
    angles = drawn[:16] @ drawn[:16].T
    assert_near(angles, np.diag(np.diag(angles)), atol=1e-5)
    assert abs(np.mean(np.sum(drawn**2, axis=1)) - 16) < 1
    assert np.abs(drawn.mean(axis=0)).max() < 0.2
    assert not differs(drawn, kernel_features.draw_features(1000, 16, seed=3))
    assert kernel_features.default_num_features(64) == 266


@variants
@pytest.mark.parametrize("causal", [False, True])
def test_the_weights_are_those_of_the_sums(config, causal):
    layer, x = make(config), normal(B, T, D)
    keep = np.arange(T) < [[T - 3], [T]]
    outputs, weights = layer(
        x, padding_mask=keep, use_causal_mask=causal, return_attention_scores=True
    )
    assert_near(np.sum(to_numpy(weights), axis=-1), np.ones((B, N, T)))
    heads = (to_numpy(weights) @ heads_of(layer, x)[2]).transpose(0, 2, 1, 3)
    heads = heads.reshape(B, T, D)
    assert_near(outputs, numpy_layers.dense(layer.output_projection, heads))


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_values_of_ones_give_ones(size):  # FAULTS O69
    query, key = size * normal(B, N, T, 4), size * normal(B, N, T, 4, seed=1)
    key[:, :, 5] *= 0.01  # far larger factors come late
    ones = np.ones((B, N, T, 2), "float32")
    features = kernel_features.draw_features(9, 4, seed=0)
    favor = [kernel_features.favor_features(x, features) for x in (query, key)]
    elu = [kernel_features.elu_features(x) for x in (query, key)]
    for (q, _), k in (favor, elu):
        parts = q + kernel_features.EPSILON, *k, ones
        assert_near(linear_attention.mix_by_features(*parts), ones)
        assert_near(linear_attention.mix_by_features_causally(*parts)[0], ones)


@variants
def test_causal(config):
    layer = make(config)

    def run(x):
        return to_numpy(layer(x, use_causal_mask=True))

    for change in (lambda x: 2 * x + 1, lambda x: 100 * x):
        laws.later_tokens_change_nothing_before(run, normal(B, T, D), change)


@variants
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding(config, side, causal):
    layer = make(config)

    def run(x, mask):
        given = {}
        if layer.rotary is not None:
            given["positions"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        return to_numpy(layer(x, padding_mask=mask, use_causal_mask=causal, **given))

    padding = 100 * normal(B, 3, D)
    laws.padding_changes_nothing(run, normal(B, T, D), padding, side)


def test_rows_do_not_feel_each_other():  # FAULTS O69
    layer, x = make(VARIANTS["favor"]), normal(B, T, D)
    other = np.concatenate([x[:1], 1000 * x[1:]])
    for causal in (False, True):
        expected = layer(x, use_causal_mask=causal)[0]
        assert_near(layer(other, use_causal_mask=causal)[0], expected)


@variants
def test_cached_equals_full(config):
    layer, x = make(config), normal(B, T, D)
    full = to_numpy(layer(x, use_causal_mask=True))
    laws.cached_equals_full(layer, x, full, T, chunks=([1, 1, 2, 6], [T], [5, 5]))
    mask = np.array([[0, 0, *[1] * 8], [1, 1, 1, 0, *[1] * 6]], bool)
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype("int32")
    where = {} if layer.rotary is None else {"positions": positions}
    full = to_numpy(layer(x, padding_mask=mask, use_causal_mask=True, **where))
    covers = np.concatenate([mask, np.ones((B, 2), bool)], axis=1)
    laws.cached_equals_full(
        layer, x, full, T + 2, padding_mask=covers, chunks=[[3, 1, 6]], **where
    )


@variants
def test_cached_cross_attention(config):
    x, context = normal(B, T, D), normal(B, S, SOURCE)
    layer = make(config, x.shape, context.shape)
    mask = np.arange(S) < [[S], [S - 3]]
    full = to_numpy(layer(x, context=context, padding_mask=mask))
    laws.cached_equals_full(layer, x, full, T, context, context_padding_mask=mask)


@pytest.mark.parametrize("name", ["favor", "elu"])
def test_the_cache_is_as_large_after_any_number_of_tokens(name):
    layer = make(VARIANTS[name])
    sizes = [
        [tuple(leaf.shape) for leaf in keras.tree.flatten(layer.init_cache(B, length))]
        for length in (1, 65536)
    ]
    assert sizes[0] == sizes[1]
    half = layers.PerformerAttention(**VARIANTS[name], dtype="mixed_float16")
    half.build((None, None, D))
    cache = half.call_with_cache(normal(B, T, D), half.init_cache(B, 5), 0)[1]
    assert {leaf.dtype for leaf in to_numpy(cache).values()} == {np.dtype("float32")}


@pytest.mark.parametrize("name", ["favor", "elu"])
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_long_sums_in_half_precision(name, policy, monkeypatch):  # FAULTS O16
    monkeypatch.undo()  # chunks of their true length
    x = normal(1, 8192, 4)
    config = {**VARIANTS[name], "num_heads": 1}
    layer = make(config, x.shape)
    if name == "elu":  # features about 10
        layer.key.bias.assign(np.full(4, 9.0))
    half = layers.PerformerAttention(**config, dtype=policy)
    half.build(x.shape)
    half.set_weights(layer.get_weights())
    expected = to_numpy(layer(x, use_causal_mask=True))
    actual = half(x, use_causal_mask=True)
    assert_near(actual, expected, atol=0.02 * max(1.0, float(np.abs(expected).max())))


@variants
def test_rows_without_a_key_give_the_bias(config):
    layer, x = make(config), normal(B, T, D)
    mask = np.array([[0, 0, *[1] * 8], [0] * T], bool)
    empty = np.array([[1, 1, *[0] * 8], [1] * T], bool)
    bias = layer.output_projection.bias
    bias = np.zeros(D) if bias is None else to_numpy(bias)
    masks = {"padding_mask": mask, "use_causal_mask": True}
    laws.masked_rows_are_empty(layer, x, masks, empty, bias)


@pytest.mark.parametrize("name", ["favor", "elu"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_the_weights(name, causal):
    layer, x = make(VARIANTS[name]), normal(B, T, D)
    target = normal(B, T, D, seed=1)

    def through_sums(x):
        return ops.sum(layer(x, use_causal_mask=causal) * target)

    def through_weights(x):
        weights = layer(x, use_causal_mask=causal, return_attention_scores=True)[1]
        value = ops.reshape(layer.value(x), (B, T, N, -1))
        heads = ops.einsum("bnts,bsnh->btnh", weights, value)
        return ops.sum(layer.output_projection(ops.reshape(heads, x.shape)) * target)

    pairs = zip(
        laws.gradients(through_sums, x, layer),
        laws.gradients(through_weights, x, layer),
        strict=True,
    )
    for actual, expected in pairs:
        assert_near(actual, expected, atol=1e-4)


def test_every_argument_counts():
    x, context = normal(B, T, D), normal(B, S, D)
    keep, seen = np.arange(T) < [[3], [T]], np.arange(S) < [[3], [S]]
    laws.every_argument_counts(
        make(VARIANTS["rotary"]),
        x,
        {
            "context": context,
            "padding_mask": keep,
            "positions": 3 * np.arange(T),
            "use_causal_mask": True,
            "return_attention_scores": True,
            "mask": keep,
            "inputs_mask": keep,
            "context_mask": (seen, {"context": context}),
        },
        refused={
            "attention_mask": np.ones((T, T), bool),
            "attention_bias": normal(N, T, T),
        },
        idle=("training",),
    )


def test_redraw():  # FAULTS O69
    layer, x = make(VARIANTS["favor"]), normal(B, T, D)
    before = layer(x)
    assert not differs(layer(x), before, atol=0)
    layer.redraw(seed=2)
    after = layer(x)
    assert differs(after, before)
    layer.redraw(seed=1)  # that of the constructor
    assert_near(layer(x), before, atol=0)
    layer.redraw()
    assert differs(layer(x), before) and differs(layer(x), after)
    assert [w.name for w in layer.non_trainable_weights] == ["features"]
    make(VARIANTS["elu"]).redraw()  # nothing to draw


def test_generates_as_the_full_pass():
    model = models.GPT(
        vocabulary_size=31,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=16,
        attention=[
            layers.PerformerAttention(2, seed=0),
            layers.PerformerAttention(2, kernel="elu"),
        ],
    )
    randomize(model)
    prompts = laws.token_ids(B, 4)
    expected = prompts
    for _ in range(6):
        logits = to_numpy(model(expected))[:, -1]
        best = logits.argmax(-1).reshape(-1, 1).astype("int32")
        expected = np.concatenate([expected, best], axis=1)
    outputs = to_numpy(generation.generate(model, prompts, 6))
    np.testing.assert_array_equal(outputs, expected)
    with pytest.raises(ValueError, match="takes back tokens"):
        generation.generate(model, prompts, 6, strategy=generation.Speculative())


@pytest.mark.tensorflow
def test_no_tensor_grows_with_the_square_of_the_length(monkeypatch):  # FAULTS O67
    monkeypatch.undo()
    layer = make(VARIANTS["favor"])
    for causal in (False, True):
        largest = [
            laws.largest_tensor(
                lambda x: layer(x, use_causal_mask=causal), (1, length, D)
            )
            for length in (1024, 4096)
        ]
        assert largest[1] <= 4.2 * largest[0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_heads": 0}, "`num_heads` must be positive, got 0"),
        ({"num_heads": 5}, "`num_heads` must divide the width of `inputs`, got 5"),
        ({"num_heads": 3, "kernel": "relu"}, '`kernel` must be "favor" or "elu"'),
        ({"num_heads": 3, "num_features": 0}, "`num_features` must be positive"),
        (
            {"num_heads": 3, "num_features": 4, "kernel": "elu"},
            '`num_features` .* for `kernel="favor"` alone, got 4',
        ),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        layers.PerformerAttention(**config)(normal(B, T, D))


def test_refused_calls():
    layer, x = make(VARIANTS["favor"]), normal(B, T, D)
    with pytest.raises(ValueError, match="`positions` needs .* `rotary`"):
        layer(x, positions=np.arange(T))
    with pytest.raises(ValueError, match="takes no `use_causal_mask`"):
        layer(x, context=x, use_causal_mask=True)
    for call in ("init_cache", "redraw"):
        arguments = (B, 4) if call == "init_cache" else ()
        with pytest.raises(ValueError, match="must be built"):
            getattr(layers.PerformerAttention(3), call)(*arguments)
