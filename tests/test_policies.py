"""Dtype policies of parts: handed out, collected, quantized, saved."""

import keras

from keras_tfm import layers
from keras_tfm.layers.policies import owner_dtype, part_policy
from tests.laws import quantize

DTypePolicy = keras.dtype_policies.DTypePolicy
DTypePolicyMap = keras.dtype_policies.DTypePolicyMap
INT8 = keras.dtype_policies.get("int8_from_float32")


def test_a_plain_policy_is_that_of_every_part():
    policy = DTypePolicy("mixed_bfloat16")
    assert part_policy(policy, "query") is policy


def test_a_map_is_cut_for_the_part():
    policy = DTypePolicyMap(
        "float32", {"attention/query": INT8, "attention/key": INT8, "head": INT8}
    )
    assert part_policy(policy, "head") == INT8
    assert part_policy(policy, "feed_forward") == DTypePolicy("float32")
    inner = part_policy(policy, "attention")
    assert isinstance(inner, DTypePolicyMap) and set(inner) == {"query", "key"}
    assert part_policy(inner, "query") == INT8
    assert part_policy(inner, "value") == DTypePolicy("float32")


def test_a_part_is_not_taken_for_another_with_a_longer_name():
    policy = DTypePolicyMap("float32", {"block_10/query": INT8})
    assert part_policy(policy, "block_1") == DTypePolicy("float32")


def test_owners_collect_what_quantization_changed():
    block = layers.TransformerEncoderBlock(
        layers.MultiHeadAttention(3),
        layers.MixtureOfExperts(layers.FeedForward(7), 2),
        dtype="mixed_bfloat16",
    )
    model = keras.Sequential([keras.Input((None, 6)), block])
    parts = [block.attention, block.feed_forward]
    assert owner_dtype(block, parts) == {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": "mixed_bfloat16"},
        "registered_name": None,
    }
    quantize(model)
    written = keras.dtype_policies.deserialize(owner_dtype(block, parts))
    assert set(written) == {
        *(f"attention/{name}" for name in ("query", "key", "value", "output")),
        *(f"feed_forward/expert_{e}/{w}" for e in (0, 1) for w in ("up", "down")),
        "feed_forward/router",
    }
    assert written.default_policy == DTypePolicy("mixed_bfloat16")
    assert written["attention/query"].name == "int8_from_mixed_bfloat16"
    assert written["feed_forward/router"].name == "int8_from_float32"


def test_parts_that_cannot_say_a_policy_are_skipped():
    layer = keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    plain = keras.dtype_policies.serialize(layer.dtype_policy)
    assert (
        owner_dtype(layer, [None, model, keras.Input((3,))._keras_history[0]]) == plain
    )
