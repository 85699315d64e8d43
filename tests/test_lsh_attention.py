"""LSHAttention against the reference's numbers, NumPy, dense attention, its laws."""

import numpy as np
import pytest
from keras import ops

from keras_tfm import generation, layers, models
from keras_tfm.layers import bucket_attention, hash_buckets
from tests import laws, numpy_layers
from tests.laws import assert_near, differs, normal, randomize, to_numpy
from tests.sources import ROOT

B, T, N, D, H = 2, 11, 3, 12, 4
GOLDEN = ROOT / "tests" / "golden" / "lsh_attention.npz"
CHUNK = 4  # of the reference's runs
VARIANTS = {
    "plain": {"num_buckets": 4, "num_rounds": 3},
    "one_round": {"num_buckets": 2, "num_rounds": 1, "use_bias": False},
    "factors": {"num_buckets": (2, 2), "num_rounds": 2},
    "one_bucket": {"num_buckets": 1, "num_rounds": 2},
}
variants = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def make(config, width=D):
    layer = layers.LSHAttention(
        **{"num_heads": N, "bucket_size": 3, "seed": 1, **config}
    )
    layer.build((None, None, width))
    return randomize(layer)


def heads_of(layer, x):
    """Queries that are keys, and values, (B, N, T, H) in NumPy."""
    return [
        numpy_layers.dense(part, x)
        .reshape(*x.shape[:2], layer.num_heads, -1)
        .transpose(0, 2, 1, 3)
        for part in (layer.query_key, layer.value)
    ]


def reference_weights(query, buckets, size, keep=None, causal=False):
    """The weights of every pair, token by token; `query` (B, N, T, H)."""
    batch, heads, length, width = query.shape
    keep = np.ones((batch, length), bool) if keep is None else keep
    key = query / np.sqrt((query**2).mean(-1, keepdims=True) + 1e-6) / width**0.5
    weights = np.zeros((batch, heads, length, length))
    for b, n, t in np.ndindex(batch, heads, length):
        scores = key[b, n] @ query[b, n, t]
        scores[t] = -1e5
        found = []  # of each round: who is seen, and the scores
        for bucket in buckets[b, n].T:
            mine = np.flatnonzero((bucket == bucket[t]) & keep[b])
            if not keep[b, t]:
                break
            place = list(mine).index(t)
            low, high = max(place - size + 1, 0), place + (1 if causal else size)
            found.append(mine[low:high])
        if found:
            every = np.concatenate(found)
            shares = numpy_layers.softmax(scores[every])
            np.add.at(weights[b, n, t], every, shares)
    return weights


def reference(layer, x, keep=None, causal=False):
    query, value = heads_of(layer, x)
    hashes = layer.rotations, layer.num_rounds, layer._factors
    buckets = to_numpy(hash_buckets.buckets_of(query.astype("float32"), *hashes))
    weights = reference_weights(query, buckets, layer.bucket_size, keep, causal)
    heads = (weights @ value).transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
    return numpy_layers.dense(layer.output_projection, heads), weights


@variants
@pytest.mark.parametrize("causal", [False, True])
def test_matches_numpy(config, causal):
    layer, x = make(config), normal(B, T, D)
    for keep in (None, np.arange(T) % 4 != [[1], [0]]):
        outputs, weights = layer(
            x, padding_mask=keep, use_causal_mask=causal, return_attention_scores=True
        )
        expected = reference(layer, x, keep, causal)
        assert_near(outputs, expected[0])
        assert_near(weights, expected[1])


@pytest.mark.parametrize("causal", ["both", "causal"])
@pytest.mark.parametrize("name", ["dense", "balanced", "near", "padded", "factors"])
def test_golden(name, causal):
    golden = np.load(GOLDEN)
    case = {
        key.rpartition("/")[2]: golden[key]
        for key in golden.files
        if key.startswith(f"{name}_{causal}/")
    }
    num_heads, key_dim, rounds, half = case["rotations"].shape
    length = case["inputs"].shape[1]
    factors = [2, 4] if name == "factors" else 1 if name == "dense" else 2 * half
    layer = make(
        {
            "num_heads": num_heads,
            "key_dim": key_dim,
            "bucket_size": length if name == "dense" else CHUNK,
            "num_buckets": factors,
            "num_rounds": rounds,
            "use_bias": False,
        },
        width=case["inputs"].shape[2],
    )
    layer.query_key.kernel.assign(case["query_key"])
    layer.value.kernel.assign(case["value"])
    if name == "factors":  # each hash has its columns together, of all rounds
        parts = np.split(case["rotations"], [1], axis=-1)
        parts = [part.reshape(num_heads, key_dim, -1) for part in parts]
        layer.rotations.assign(np.concatenate(parts, axis=-1))
    elif name != "dense":
        layer.rotations.assign(case["rotations"].reshape(num_heads, key_dim, -1))
    keep = golden["keep"] if name == "padded" else np.ones((2, length), bool)
    query_key, value, buckets = layer._hashed(case["inputs"])
    if "buckets" in case:
        theirs = case["buckets"].transpose(0, 1, 3, 2)  # (B, N, T, G)
        total = hash_buckets.bucket_count(layer._factors) + (name == "padded")
        theirs = theirs - np.arange(rounds) * total
        actual = to_numpy(buckets)
        for b in range(2):
            np.testing.assert_array_equal(actual[b][:, keep[b]], theirs[b][:, keep[b]])
    given = layer.bucket_size, keep, causal == "causal"
    heads = bucket_attention.attend_in_buckets(query_key, value, buckets, *given)
    heads = to_numpy(heads).transpose(0, 2, 1, 3).reshape(2, length, -1)
    # A token that is alone in every round has theirs rounded: -1e5 + log(rounds).
    weights = reference_weights(to_numpy(query_key), to_numpy(buckets), *given)
    alone = np.any(np.diagonal(weights, axis1=2, axis2=3) > 0.999, axis=1)
    assert_near(heads[keep & ~alone], case["outputs"][keep & ~alone], atol=2e-5)
    assert_near(heads[keep], case["outputs"][keep], atol=0.03)


@pytest.mark.parametrize("causal", [False, True])
def test_one_bucket_and_one_chunk_equal_dense(causal):
    layer, x = make({"num_buckets": 1, "bucket_size": T}), normal(B, T, D)
    query, value = heads_of(layer, x)
    key = query / np.linalg.norm(query, axis=-1, keepdims=True)
    swapped = [y.transpose(0, 2, 1, 3) for y in (query, key, value)]
    alone = np.where(np.eye(T), -1e5, 0.0)
    keep = numpy_layers.causal(T) if causal else None
    heads, _ = numpy_layers.attention(*swapped, keep=keep, bias=alone, scale=1.0)
    expected = numpy_layers.dense(layer.output_projection, heads.reshape(B, T, -1))
    assert_near(layer(x, use_causal_mask=causal), expected, atol=1e-4)


def test_vectors_of_one_direction_share_their_buckets():
    rotations = hash_buckets.draw_rotations(N, H, 2, (4, 6), seed=0)
    assert rotations.shape == (N, H, 10)
    x = normal(B, N, T, H)
    buckets = to_numpy(hash_buckets.buckets_of(x, rotations, 2, (4, 6)))
    assert buckets.shape == (B, N, T, 2) and buckets.dtype == "int32"
    assert 0 <= buckets.min() and 18 <= buckets.max() < 24
    again = to_numpy(hash_buckets.buckets_of(5 * x, rotations, 2, (4, 6)))
    np.testing.assert_array_equal(again, buckets)
    opposite = to_numpy(hash_buckets.buckets_of(-x, rotations, 2, (4, 6)))
    assert np.all(opposite != buckets)


def test_values_of_ones_give_ones():
    ones = np.ones((B, N, T, H), "float32")
    buckets = laws.token_ids(B, N, T, 2, vocabulary_size=4)
    for causal in (False, True):
        heads = bucket_attention.attend_in_buckets(
            normal(B, N, T, H), ones, buckets, 3, causal=causal
        )
        assert_near(heads, ones)


@variants
def test_causal(config):  # FAULTS O72
    layer = make(config)

    def run(x):
        return to_numpy(layer(x, use_causal_mask=True))

    laws.later_tokens_change_nothing_before(run, normal(B, T, D), lambda x: 2 * x + 1)


@variants
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding(config, side, causal):  # FAULTS O72
    layer = make(config)

    def run(x, mask):
        return to_numpy(layer(x, padding_mask=mask, use_causal_mask=causal))

    laws.padding_changes_nothing(run, normal(B, T, D), 100 * normal(B, 4, D), side)


@pytest.mark.parametrize("name", ["one_bucket"])
def test_any_length(name):  # FAULTS O72
    layer = make(VARIANTS[name])
    for length in (1, 3, 16, 2, 7):
        x = normal(B, length, D)
        for causal in (False, True):
            expected = reference(layer, x, causal=causal)[0]
            assert_near(layer(x, use_causal_mask=causal), expected)


@variants
def test_cached_equals_full(config):
    layer, x = make(config), normal(B, T, D)
    full = to_numpy(layer(x, use_causal_mask=True))
    chunks = [1, 1, 4, 5], [T]  # a few look at all, or all are sorted again
    laws.cached_equals_full(layer, x, full, T + 2, chunks=chunks)
    mask = np.array([[0, 0, *[1] * 9], [1, 1, 1, 0, *[1] * 7]], bool)
    full = to_numpy(layer(x, padding_mask=mask, use_causal_mask=True))
    laws.cached_equals_full(layer, x, full, T, chunks=[[4, 2, 5]], padding_mask=mask)


@variants
def test_rows_without_a_key_give_the_bias(config):
    layer, x = make(config), normal(B, T, D)
    mask = np.array([[0, 0, *[1] * 9], [0] * T], bool)
    bias = layer.output_projection.bias
    bias = np.zeros(D) if bias is None else to_numpy(bias)
    masks = {"padding_mask": mask, "use_causal_mask": True}
    laws.masked_rows_are_empty(layer, x, masks, ~mask, bias)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_the_weights(causal):
    layer, x = make(VARIANTS["plain"]), normal(B, T, D)
    target, given = normal(B, T, D, seed=1), {"use_causal_mask": causal}

    def through_chunks(x):
        return ops.sum(layer(x, **given) * target)

    def through_weights(x):
        weights = layer(x, return_attention_scores=True, **given)[1]
        value = ops.reshape(layer.value(x), (B, T, N, -1))
        heads = ops.einsum("bnts,bsnh->btnh", weights, value)
        return ops.sum(layer.output_projection(ops.reshape(heads, x.shape)) * target)

    pairs = zip(
        laws.gradients(through_chunks, x, layer),
        laws.gradients(through_weights, x, layer),
        strict=True,
    )
    for actual, expected in pairs:
        assert_near(actual, expected, atol=1e-4)


def test_every_argument_counts():
    x, keep = normal(B, T, D), np.arange(T) < [[3], [T]]
    laws.every_argument_counts(
        make({"attention_dropout": 0.5, **VARIANTS["plain"]}),
        x,
        {
            "padding_mask": keep,
            "use_causal_mask": True,
            "return_attention_scores": True,
            "training": True,
            "mask": keep,
            "inputs_mask": keep,
        },
        refused={
            "context": x,
            "attention_mask": np.ones((T, T), bool),
            "attention_bias": normal(N, T, T),
            "positions": np.arange(T),
            "context_mask": keep,
        },
    )


def test_the_same_at_every_call():
    layer, x = make(VARIANTS["plain"]), normal(B, T, D)
    assert not differs(layer(x), layer(x), atol=0)
    assert [w.name for w in layer.non_trainable_weights] == ["rotations"]
    one, other = layers.LSHAttention(N, seed=3), layers.LSHAttention(N, seed=4)
    one.build(x.shape), other.build(x.shape)
    assert differs(one.rotations, other.rotations)


def test_generates_as_the_full_pass():
    model = models.GPT(
        vocabulary_size=31,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=16,
        attention=layers.LSHAttention(2, bucket_size=3, num_buckets=2, seed=0),
    )
    randomize(model)
    prompts = expected = laws.token_ids(B, 4)
    for _ in range(6):
        logits = to_numpy(model(expected))[:, -1]
        best = logits.argmax(-1).reshape(-1, 1).astype("int32")
        expected = np.concatenate([expected, best], axis=1)
    outputs = to_numpy(generation.generate(model, prompts, 6))
    np.testing.assert_array_equal(outputs, expected)


@pytest.mark.tensorflow
def test_no_tensor_grows_with_the_square_of_the_length():  # FAULTS O67
    layer = make({"bucket_size": 16, "num_buckets": 8, "num_rounds": 2})
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
        ({"bucket_size": 0}, "`bucket_size` must be positive, got 0"),
        ({"num_rounds": 0}, "`num_rounds` must be positive, got 0"),
        ({"num_buckets": 3}, "`num_buckets` must be 1, an even int .* got 3"),
        ({"num_buckets": (4, 1)}, "`num_buckets` must be 1, an even int"),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        layers.LSHAttention(**{"num_heads": N, **config})(normal(B, T, D))


def test_refused_caches():
    layer, x = make(VARIANTS["plain"]), normal(B, T, D)
    with pytest.raises(ValueError, match="must be built"):
        layers.LSHAttention(N).init_cache(B, 4)
    with pytest.raises(ValueError, match="`inputs` has 11 tokens.*holds 4"):
        layer.call_with_cache(x, layer.init_cache(B, 4), 0)
    with pytest.raises(ValueError, match="takes no `context`"):
        layer.init_cache(B, T, x)
