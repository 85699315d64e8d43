"""Attention block by block: the numbers of the dense one, gradients too."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from keras_tfm.layers import attention_blocks, blockwise_attention
from keras_tfm.layers import scaled_dot_product_attention as attend
from tests.laws import assert_near, compiled, gradients, normal, to_numpy

B, T, S, N, K, H = 2, 11, 13, 6, 3, 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(attention_blocks, "BLOCK", 4)


def some(*shape, share=0.6):
    return np.random.default_rng(4).random(shape) < share


MASKED = np.ones((T, S), bool)
MASKED[[2, 9]] = False  # two queries without a key
CASES = {
    "plain": {},
    "padding": {"padding_mask": some(B, S)},
    "mask of pairs": {"attention_mask": some(T, S)},
    "mask for each row": {"attention_mask": some(B, T, S)},
    "mask for all heads": {"attention_mask": some(B, 1, T, S)},
    "mask for each head": {"attention_mask": some(B, N, T, S)},
    "rows without a key": {"attention_mask": MASKED},
    "causal": {"use_causal_mask": True},
    "causal, later": {"use_causal_mask": True, "query_offset": 2},
    "window": {"window": 3},
    "window of one": {"window": 1},
    "causal window": {"window": 5, "use_causal_mask": True, "query_offset": 2},
    "soft cap": {"logit_soft_cap": 0.7, "use_causal_mask": True},
    "scale": {"scale": 0.3},
    "bias of pairs": {"attention_bias": normal(1, N, T, S), "logit_soft_cap": 2.0},
    "bias of keys": {"attention_bias": normal(B, 1, 1, S), "use_causal_mask": True},
    "bias of queries": {"attention_bias": normal(N, T, 1)},
}


def triple(length=T, key_length=S):
    return [
        normal(B, length, N, H, seed=1),
        normal(B, key_length, K, H, seed=2),
        normal(B, key_length, K, H, seed=3),
    ]


def both(run):
    """What `run(implementation)` gives, dense and in blocks."""
    return run("dense"), run("blockwise")


@pytest.mark.parametrize("name", CASES)
def test_equals_dense(name):
    def run(implementation):
        return attend(*triple(), **CASES[name], implementation=implementation)

    expected, outputs = both(run)
    assert_near(outputs, expected, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_dense(name):
    sources, factor = triple(), normal(B, T, N, H, seed=5)
    case = CASES[name]
    if "attention_bias" in case:
        sources.append(case["attention_bias"])
    for place, source in enumerate(sources):

        def run(implementation, place=place, source=source):
            def loss(x):
                given = [*sources[:place], x, *sources[place + 1 :]]
                more = {**case}
                if len(given) == 4:
                    more["attention_bias"] = given.pop()
                outputs = attend(*given, **more, implementation=implementation)
                return ops.sum(outputs * factor)

            return gradients(loss, source)[0]

        expected, found = both(run)
        assert_near(found, expected, atol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_equals_dense_in_graphs(jit):
    def run(implementation):
        def outputs_and_sum(query, key, value, mask):
            return attend(
                *(query, key, value, mask),
                use_causal_mask=True,
                implementation=implementation,
            )

        return compiled(outputs_and_sum, jit)(*triple(), some(B, S))

    expected, outputs = both(run)
    assert_near(outputs, expected, atol=1e-6)


@pytest.mark.tensorflow
def test_unknown_lengths():
    import tensorflow as tf

    spec = [tf.TensorSpec((None, None, heads, H)) for heads in (N, K, K)]

    @tf.function(input_signature=[*spec, tf.TensorSpec((None, None), "bool")])
    def slopes(query, key, value, mask):
        with tf.GradientTape() as tape:
            tape.watch((query, key, value))
            outputs = attend(
                *(query, key, value, mask), window=5, implementation="blockwise"
            )
            loss = tf.reduce_sum(outputs * outputs)
        return outputs, tape.gradient(loss, (query, key, value))

    for length, key_length in ((11, 13), (8, 8), (3, 2)):
        sources, mask = triple(length, key_length), some(B, key_length, share=0.8)
        outputs, found = slopes(*map(tf.constant, sources), mask)
        expected = attend(*sources, mask, window=5, implementation="dense")
        assert_near(outputs, expected, atol=1e-6)

        def loss(query, sources=sources, mask=mask):
            outputs = attend(
                query, *sources[1:], mask, window=5, implementation="dense"
            )
            return ops.sum(outputs * outputs)

        assert_near(found[0], gradients(loss, sources[0])[0], atol=1e-5)


def test_dropout_is_the_same_in_both_passes():
    """With an identity for values the outputs are the dropped weights themselves."""
    rate, seed = 0.25, ops.convert_to_tensor([7, 9], "uint32")
    heads = (0, 2, 1, 3)
    query, key = (np.transpose(normal(B, S, N, S, seed=i), heads) for i in (1, 2))
    plain = np.broadcast_to(np.eye(S, dtype="float32"), (B, N, S, S))
    run = blockwise_attention.attend_blockwise
    drawn = {"dropout_rate": rate, "dropout_seed": seed}
    kept = to_numpy(run(query, key, plain)) * (1 / (1 - rate))
    factor = to_numpy(run(query, key, plain, **drawn)) / kept
    assert np.all(np.isclose(factor, 0, atol=1e-5) | np.isclose(factor, 1, atol=1e-5))
    assert 0.6 < factor.mean() < 0.85
    assert len({tuple(row) for row in np.round(factor).reshape(-1, S)}) > 20
    factor = np.round(factor).astype("float32") / (1 - rate)
    value, change = (normal(B, N, S, H, seed=i) for i in (3, 4))

    def dense(query, key, value):
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        return ops.matmul(ops.softmax(scores) * factor, value)

    sources = [query, key, value]
    assert_near(run(*sources, **drawn), dense(*sources), atol=1e-5)
    for place, source in enumerate(sources):

        def slope(function, place=place, source=source):
            def loss(x):
                given = [*sources[:place], x, *sources[place + 1 :]]
                return ops.sum(function(*given) * change)

            return gradients(loss, source)[0]

        found = slope(lambda *given: run(*given, **drawn))
        assert_near(found, slope(dense), atol=2e-5)


@pytest.mark.parametrize("way", ["dense", "blockwise"])
def test_a_layer_does_as_it_is_told(way, monkeypatch):
    blocks = []
    monkeypatch.setattr(
        "keras_tfm.layers.dot_product_attention.attend_blockwise",
        lambda query, *_, **__: blocks.append(query.shape) or query,
    )
    layer = layers.MultiHeadAttention(2, attention_dropout=0.1, implementation=way)
    x = normal(1, 9, 8)
    layer(x)
    layer(x, use_causal_mask=True, training=True)
    assert blocks == [(1, 2, 9, 4)] * 2 * (way == "blockwise")
    layer(x, return_attention_scores=True)  # always dense
    assert len(blocks) == 2 * (way == "blockwise")


def test_dropout_in_a_layer_draws_anew_each_time():
    layer = layers.MultiHeadAttention(
        2, attention_dropout=0.5, implementation="blockwise"
    )
    x = normal(1, 9, 8)
    once, again = layer(x, training=True), layer(x, training=True)
    assert np.max(np.abs(to_numpy(once) - to_numpy(again))) > 1e-3
    assert_near(layer(x), layer(x, training=False))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_is_near_dense(policy):
    plain = layers.MultiHeadAttention(2, num_key_value_heads=1, dtype=policy)
    x = normal(2, 9, 8)
    expected = plain(x, use_causal_mask=True)
    blocks = layers.MultiHeadAttention.from_config(
        {**plain.get_config(), "implementation": "blockwise"}
    )
    blocks.build(x.shape)
    blocks.set_weights(plain.get_weights())
    outputs = blocks(x, use_causal_mask=True)
    assert outputs.dtype == expected.dtype
    assert_near(outputs, expected, atol=0.02)


def test_a_layer_learns_alike():
    """The same weights after some steps of `fit`, a bias's table among them."""
    x, y = normal(4, 9, 8), normal(4, 9, 8, seed=1)
    weights = []
    for implementation in ("dense", "blockwise"):
        keras.utils.set_random_seed(0)
        layer = layers.MultiHeadAttention(
            2,
            relative_bias=layers.RelativePositionBias(2, num_buckets=8),
            implementation=implementation,
        )
        model = keras.Sequential([layer])
        model.compile(keras.optimizers.SGD(0.5), "mse")
        model.fit(x, y, epochs=3, batch_size=2, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        assert_near(other, one, atol=1e-5)


def test_long_lengths_are_cut_into_blocks_by_themselves(monkeypatch):
    called = []
    monkeypatch.setattr(
        "keras_tfm.layers.dot_product_attention.attend_blockwise",
        lambda query, *_, **__: called.append(query.shape[2]) or query,
    )
    monkeypatch.setattr("keras_tfm.layers.dot_product_attention.LONG", 8)
    for length in (7, 8):
        attend(*triple(length, 8))
    assert called == [8]
    assert attend(*triple(8, 8), dropout=lambda weights: weights).shape[1] == 8
    attend(*triple(8, 8), return_attention_scores=True)
    assert called == [8]


@pytest.mark.parametrize("way", ["dense", "blockwise"])
def test_bad_masks_are_refused_alike(way):
    with pytest.raises(ValueError, match=r"`padding_mask` must have shape \(B, S\)"):
        attend(*triple(), np.ones((B, 1, S), bool), implementation=way)
    with pytest.raises(ValueError, match="`attention_mask` must have shape"):
        attend(*triple(), attention_mask=np.ones(S, bool), implementation=way)


def test_bad_arguments():
    with pytest.raises(ValueError, match='"dense" or "blockwise", got .flash.'):
        attend(*triple(), implementation="flash")
    with pytest.raises(ValueError, match="must be a keras.layers.Dropout"):
        attend(*triple(), dropout=lambda x: x, implementation="blockwise")
