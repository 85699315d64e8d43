import keras
import numpy as np
import pytest

from keras_tfm import models
from keras_tfm.training import (
    LinearWarmup,
    SmoothedCrossentropy,
    layer_depths,
    layer_wise_decay,
)
from tests.laws import EAGER

RATE, DECAY, LAYERS = 0.5, 0.5, 2
SIZES = dict(num_layers=LAYERS, num_heads=2, hidden_dim=4, intermediate_dim=6)
IDS = np.array([[1, 2, 3, 4, 5], [6, 5, 1, 1, 2]])


def gpt():
    keras.utils.set_random_seed(1)
    return models.GPT(vocabulary_size=7, max_sequence_length=5, **SIZES)


def vision():
    backbone = models.VisionTransformer(image_size=(4, 4), patch_size=2, **SIZES)
    return models.classifier(backbone, num_classes=3)


def bert():
    return models.BertPretrainer(
        models.Bert(vocabulary_size=7, max_sequence_length=5, **SIZES)
    )


def seq2seq():
    return models.Seq2SeqTransformer(
        vocabulary_size=7,
        target_vocabulary_size=9,
        max_sequence_length=5,
        **SIZES,
    )


def small(dtype=None):
    """The names and paths of a GPT, with dense layers for blocks."""
    keras.utils.set_random_seed(1)
    names = ("block_0", "block_1", "final_norm", "logits")
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(7, 4, name="token_embedding", dtype=dtype)(inputs)
    for name in names:
        x = keras.layers.Dense(7, name=name, dtype=dtype)(x)
    return keras.Model(inputs, x)


def compiled(optimizer, build=small, jit_compile=False):
    model = build()
    make = optimizer if callable(optimizer) else lambda model: optimizer
    how = {"jit_compile": True} if jit_compile else EAGER
    model.compile(make(model), SmoothedCrossentropy(), **how)
    return model


def moves(model):
    """What one step of training adds to each weight."""
    before = {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}
    model.train_on_batch(IDS, IDS)
    return {
        w.path: keras.ops.convert_to_numpy(w) - before[w.path] for w in model.weights
    }


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            gpt,
            {
                "token_embedding/embeddings": 0,
                "position_embedding/table": 0,
                "block_0/attention/query/kernel": 1,
                "block_1/feed_forward/down/bias": 2,
                "final_norm/gamma": 3,
            },
        ),
        (
            vision,
            {
                "class_token/token": 0,
                "patch_embedding/projection/kernel": 0,
                "block_1/attention/output/bias": 2,
                "final_norm/beta": 3,
                "logits/kernel": 3,
            },
        ),
        (
            bert,
            {
                "segment_embedding/embeddings": 0,
                "embedding_norm/gamma": 0,
                "block_0/attention_residual/norm_after/gamma": 1,
                "pooler/kernel": 3,
                "token_transform/kernel": 3,
                "next_sentence_logits/bias": 3,
            },
        ),
        (
            seq2seq,
            {
                "encoder_block_1/attention/key/kernel": 2,
                "decoder_block_0/cross_attention/key/kernel": 1,
                "decoder_block_1/feed_forward/up/bias": 2,
            },
        ),
    ],
)
def test_depths_and_rates(make, expected):
    model = make()
    depths = layer_depths(model)
    assert set(depths) == {w.path for w in model.weights}
    assert set(depths.values()) <= set(range(LAYERS + 2))
    assert {path: depths[path] for path in expected} == expected
    assert all(d == 0 for path, d in depths.items() if path.endswith("embeddings"))
    # The optimizer that each weight is given is that of its depth.
    optimizer = layer_wise_decay(keras.optimizers.SGD(RATE), model, DECAY)
    chosen = keras.optimizers.OptimizerMap.from_config(
        optimizer.get_config()["optimizer_map"]["config"]
    )
    for path, depth in depths.items():
        rate = float(chosen[path].learning_rate)
        assert rate == pytest.approx(RATE * DECAY ** (LAYERS + 1 - depth)), path


@pytest.mark.parametrize("jit", [False, True])
def test_plain_descent_moves_by_the_factor(jit):
    plain = moves(compiled(keras.optimizers.SGD(RATE), jit_compile=jit))
    scaled = moves(
        compiled(
            lambda model: layer_wise_decay(keras.optimizers.SGD(RATE), model, DECAY),
            jit_compile=jit,
        )
    )
    for path, depth in layer_depths(small()).items():
        np.testing.assert_allclose(
            scaled[path], plain[path] * DECAY ** (LAYERS + 1 - depth), atol=1e-6
        )
    assert np.abs(plain["block_0/kernel"]).max() > 1e-3


def test_adam_and_its_weight_decay_move_by_the_factor():
    adam = keras.optimizers.AdamW(1e-2, weight_decay=0.3, epsilon=1e-3)
    plain = moves(compiled(type(adam).from_config(adam.get_config()), gpt))
    scaled = moves(compiled(lambda model: layer_wise_decay(adam, model, DECAY), gpt))
    for path, depth in layer_depths(gpt()).items():
        factor = DECAY ** (LAYERS + 1 - depth)
        # Decay comes first and the update does not see it: both scale.
        np.testing.assert_allclose(scaled[path], plain[path] * factor, atol=2e-6)


def test_a_decay_of_one_changes_nothing():
    plain = moves(compiled(keras.optimizers.SGD(RATE)))
    same = moves(
        compiled(lambda model: layer_wise_decay(keras.optimizers.SGD(RATE), model, 1.0))
    )
    for path in plain:
        np.testing.assert_allclose(same[path], plain[path], atol=1e-7)


def test_schedules_are_scaled():
    schedule = LinearWarmup(RATE, 2, 10)
    model = compiled(
        lambda model: layer_wise_decay(keras.optimizers.SGD(schedule), model, DECAY)
    )
    for step in range(4):
        rates = [float(part.learning_rate) for part in model.optimizer.optimizers]
        expected = [float(schedule(step)) * DECAY**d for d in range(LAYERS + 2)]
        np.testing.assert_allclose(sorted(rates), sorted(expected), rtol=1e-6)
        model.train_on_batch(IDS, IDS)


@pytest.mark.parametrize(
    "rate", [0.01, LinearWarmup(0.01, 2, 10)], ids=["rate", "plan"]
)
def test_saved_and_reloaded_goes_on_the_same(rate, tmp_path):
    model = compiled(
        lambda model: layer_wise_decay(
            keras.optimizers.AdamW(rate, weight_decay=0.1, clipnorm=1.0), model, 0.7
        )
    )
    model.fit(IDS, IDS, epochs=3, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert len(again.optimizer.optimizers) == LAYERS + 2
    for one, other in zip(model.optimizer.variables, again.optimizer.variables):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other)
        )
    one = model.fit(IDS, IDS, epochs=3, verbose=0).history["loss"]
    other = again.fit(IDS, IDS, epochs=3, verbose=0).history["loss"]
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert one[-1] < one[0]


def test_frozen_layers_keep_the_depths_and_the_weights():
    model = small()
    model.get_layer("block_0").trainable = False
    model.get_layer("token_embedding").trainable = False
    model.compile(
        layer_wise_decay(keras.optimizers.SGD(RATE), model, DECAY),
        SmoothedCrossentropy(),
        **EAGER,
    )
    moved = moves(model)
    assert not moved["block_0/kernel"].any()
    assert not moved["token_embedding/embeddings"].any()
    plain = moves(compiled(keras.optimizers.SGD(RATE)))["block_1/kernel"]
    np.testing.assert_allclose(moved["block_1/kernel"], plain * DECAY, atol=1e-6)


def test_loss_scaling_of_mixed_float16():
    model = small(dtype="mixed_float16")
    model.compile(
        layer_wise_decay(keras.optimizers.AdamW(1e-2), model, DECAY),
        SmoothedCrossentropy(),
        **EAGER,
    )
    losses = model.fit(IDS, IDS, epochs=20, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_refuses():
    model = gpt()
    sgd = keras.optimizers.SGD
    for decay in (0.0, 1.5):
        with pytest.raises(
            ValueError, match=rf"`decay` must be in \(0, 1\], got {decay}"
        ):
            layer_wise_decay(sgd(), model, decay)
    with pytest.raises(ValueError, match="`global_clipnorm`.*got 1.0; use `clipnorm`"):
        layer_wise_decay(sgd(global_clipnorm=1.0), model)
    built = sgd()
    built.build(model.trainable_variables)
    with pytest.raises(ValueError, match="`optimizer` must be a new one"):
        layer_wise_decay(built, model)
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="head")])
    with pytest.raises(ValueError, match=r"layers named `block_<i>`, got \['head'\]"):
        layer_wise_decay(sgd(), plain)
