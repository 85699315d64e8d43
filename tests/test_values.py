"""Layers given to layers: recreated, owned, refused with a reason."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.values import (
    build_value,
    deserialize_values,
    given,
    recreate,
    serialize_value,
    takes,
)
from tests.laws import POLICIES, assert_near, differs, normal, randomize, to_numpy

D = 6


@keras.saving.register_keras_serializable(package="tests")
class NoBuild(keras.layers.Layer):
    """A layer of a user's, whose weights are made by its parts when called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(D)

    def call(self, inputs):
        return self.inner(inputs)

    def compute_output_shape(self, shape):
        return shape


class Lost(keras.layers.Layer):
    """A layer whose argument no config can hold."""

    def __init__(self, thing, **kwargs):
        super().__init__(**kwargs)
        self.thing = thing

    def call(self, inputs):
        return inputs


def owner(**kwargs):
    return keras.layers.Layer(name="owner", **kwargs)


def block(attention=None, feed_forward=None, **kwargs):
    attention = attention or layers.MultiHeadAttention(3)
    feed_forward = feed_forward or layers.FeedForward(7)
    return layers.TransformerEncoderBlock(attention, feed_forward, **kwargs)


def test_a_value_is_recreated_under_the_part_s_name():
    value = layers.FeedForward(7, activation="relu", name="mine")
    copy = recreate(value, "feed_forward", owner())
    assert copy is not value and type(copy) is layers.FeedForward
    assert copy.name == "feed_forward" and not copy.built
    assert copy.intermediate_dim == 7 and copy.activation is value.activation
    assert recreate(None, "rotary", owner()) is None


def test_one_value_serves_many_blocks():
    attention, feed_forward = layers.MultiHeadAttention(3), layers.FeedForward(7)
    blocks = [block(attention, feed_forward, name=f"block_{i}") for i in range(3)]
    for each in blocks:
        each.build((None, None, D))
    paths = [w.path for each in blocks for w in each.weights]
    assert len(set(paths)) == len(paths) == 3 * 16
    assert "block_2/attention/query/kernel" in paths
    assert "block_2/feed_forward/down/bias" in paths
    kernels = [each.attention.query.kernel for each in blocks]
    assert differs(kernels[0], kernels[1])


def test_calling_one_block_twice_shares_its_weights(tmp_path):
    shared = block(name="shared")
    inputs = keras.Input((None, D))
    model = randomize(keras.Model(inputs, shared(shared(inputs))))
    assert len(model.weights) == 16
    model.save(tmp_path / "model.keras")
    x = normal(2, 5, D)
    assert_near(keras.models.load_model(tmp_path / "model.keras")(x), model(x))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_value_takes_the_block_s_dtype(policy):
    value = layers.MixtureOfExperts(layers.FeedForward(7), 2)
    each = block(feed_forward=value, dtype=policy)
    each.build((None, None, D))
    wanted = keras.dtype_policies.get(policy)
    for layer in each._flatten_layers():
        if layer.name != "router":  # decides, so it stays in float32
            assert layer.dtype_policy.name == wanted.name, layer.path


def test_a_value_is_trainable_if_both_are():
    for mine, yours in ((True, False), (False, True), (False, False)):
        value = layers.MultiHeadAttention(3, trainable=yours)
        each = block(attention=value, trainable=mine)
        each.build((None, None, D))
        assert not each.attention.trainable_weights
        assert len(each.trainable_weights) == (8 if mine else 0)


def test_a_frozen_value_stays_frozen_in_the_file(tmp_path):
    value = layers.MultiHeadAttention(3, trainable=False)
    model = keras.Sequential([keras.Input((None, D)), block(attention=value)])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert len(loaded.trainable_weights) == len(model.trainable_weights) == 8


@pytest.mark.parametrize("value", [keras.layers.Dense(D), NoBuild()])
def test_a_layer_of_the_user_s_is_a_value(value, tmp_path):
    model = keras.Sequential([keras.Input((None, D)), block(feed_forward=value)])
    assert len(model.weights) == 8 + 2 + 4
    randomize(model).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = normal(2, 5, D)
    assert_near(loaded(x), model(x), atol=1e-6)


def test_a_model_is_a_value(tmp_path):
    inner = keras.Sequential(
        [keras.Input((None, D)), keras.layers.Dense(9), keras.layers.Dense(D)]
    )
    model = keras.Sequential([keras.Input((None, D)), block(feed_forward=inner)])
    x = normal(2, 5, D)
    randomize(model).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_near(loaded(x), model(x), atol=1e-6)


@pytest.mark.parametrize("activation", [keras.ops.silu, keras.layers.LeakyReLU(0.3)])
def test_activations_that_are_no_names(activation, tmp_path):
    value = layers.FeedForward(7, activation=activation)
    model = keras.Sequential([keras.Input((None, D)), block(feed_forward=value)])
    x = normal(2, 5, D)
    randomize(model).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_near(loaded(x), model(x), atol=1e-6)


def test_keras_attention_is_refused_with_a_reason_or_works():
    theirs = keras.layers.MultiHeadAttention(3, key_dim=2)
    with pytest.raises((ValueError, TypeError)):
        block(attention=theirs)(normal(2, 5, D))


def test_a_built_value_is_refused():
    value = layers.FeedForward(7)
    value.build((None, None, D))
    with pytest.raises(
        ValueError, match="`feed_forward` must be a layer that is not built"
    ):
        block(feed_forward=value)


@pytest.mark.parametrize(
    "value", [Lost(object()), layers.FeedForward(7, activation=lambda x: x)]
)
def test_a_value_without_a_config_is_refused(value):
    with pytest.raises(ValueError, match="`feed_forward` cannot be rebuilt.*register"):
        block(feed_forward=value)


@pytest.mark.parametrize("value", ["gelu", layers.FeedForward, 7])
def test_a_value_that_is_no_layer_is_refused(value):
    with pytest.raises(
        ValueError, match="`feed_forward` must be a Keras layer instance"
    ):
        block(feed_forward=value)


def test_the_config_of_a_value_does_not_build_it():
    each = block()
    each.build((None, None, D))
    config = serialize_value(each.attention)
    assert "build_config" not in config
    loaded = deserialize_values(
        {"attention": config, "other": 3}, ("attention", "gone")
    )
    assert loaded["other"] == 3 and not loaded["attention"].built
    assert serialize_value(None) is None


def test_build_value_makes_the_weights_of_any_layer():
    for value in (NoBuild(), layers.FeedForward(7)):
        build_value(value, (None, None, D))
        assert value.built and len(value.weights) in (2, 4)
        randomize(value)


def test_given_and_takes():
    assert given(a=None, b=False, c=True, d=0) == {"c": True, "d": 0}
    assert takes(layers.MixtureOfExperts(layers.FeedForward(7), 2), "padding_mask")
    assert not takes(layers.FeedForward(7), "padding_mask")


def test_lora_reaches_the_projections():
    each = block()
    each.build((None, None, D))
    x = normal(2, 5, D)
    before = to_numpy(each(x))
    each.attention.query.enable_lora(2)
    assert_near(each(x), before)
    assert len(each.attention.query.trainable_weights) == 3
    for weight in each.attention.query.trainable_weights:
        weight.assign(ops.ones(weight.shape))
    assert np.all(np.isfinite(to_numpy(each(x)))) and differs(each(x), before)
