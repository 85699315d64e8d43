import keras
import numpy as np
import pytest

from keras_tfm import layers, models
from keras_tfm.training import exclude_norms_and_biases, layer_wise_decay

RATE, DECAY = 0.1, 0.5
SIZES = dict(num_layers=2, num_heads=2, hidden_dim=4, intermediate_dim=6)


def bert():
    return models.Bert(vocabulary_size=7, max_sequence_length=5, **SIZES)


def gpt():
    return models.GPT(
        vocabulary_size=7,
        max_sequence_length=5,
        attention=layers.MultiHeadAttention(
            2, qk_norm="rms", relative_bias=layers.RelativePositionBias(2)
        ),
        feed_forward=layers.MixtureOfExperts(layers.FeedForward(6), num_experts=3),
        **SIZES,
    )


def vision():
    backbone = models.VisionTransformer(
        image_size=(4, 4), patch_size=2, layer_scale=0.1, **SIZES
    )
    return models.classifier(backbone, num_classes=3)


def steps_with_zero_gradients(model, optimizer):
    """How each weight moves when only weight decay can move it, as a share."""
    for weight in model.trainable_variables:
        weight.assign(keras.ops.ones(weight.shape))
    zeros = [keras.ops.zeros(w.shape) for w in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    return {
        w.path: np.unique(keras.ops.convert_to_numpy(w) - 1.0)
        for w in model.trainable_variables
    }


@pytest.mark.parametrize("make", [bert, gpt, vision])
@pytest.mark.parametrize("kind", [keras.optimizers.AdamW, keras.optimizers.SGD])
def test_only_matrices_move_under_zero_gradients(make, kind):
    model = make()
    optimizer = kind(RATE, weight_decay=DECAY)
    assert exclude_norms_and_biases(optimizer, model) is optimizer
    moved = steps_with_zero_gradients(model, optimizer)
    decayed = {path for path, change in moved.items() if change.any()}
    for path in decayed:
        np.testing.assert_allclose(moved[path], -RATE * DECAY, rtol=1e-5)
    last = {path.rsplit("/", 1)[-1] for path in decayed}
    assert last <= {"kernel", "embeddings"}, last
    spared = set(moved) - decayed
    assert all(path.endswith("kernel") is False for path in spared), spared
    assert {w.path for w in model.trainable_variables if len(w.shape) < 2} <= spared


def test_what_is_spared_by_name():
    model = vision()
    optimizer = keras.optimizers.AdamW(RATE, weight_decay=DECAY)
    moved = steps_with_zero_gradients(model, exclude_norms_and_biases(optimizer, model))
    for part in ("class_token/", "position_embedding/", "layer_scale/", "final_norm/"):
        changes = [change for path, change in moved.items() if part in path]
        assert changes and not np.concatenate(changes).any(), part
    for path in ("block_1/attention/query/kernel", "logits/kernel"):
        assert moved[path].all()
    moved = steps_with_zero_gradients(
        bert(), exclude_norms_and_biases(keras.optimizers.AdamW(RATE), bert())
    )
    assert moved["token_embedding/embeddings"].all()
    assert moved["segment_embedding/embeddings"].all()


def test_a_stacked_bias_is_a_bias():
    dense = keras.layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de")
    model = keras.Sequential([keras.Input((5, 4)), dense])
    assert len(dense.bias.shape) == 2
    optimizer = keras.optimizers.AdamW(RATE, weight_decay=DECAY)
    moved = steps_with_zero_gradients(model, exclude_norms_and_biases(optimizer, model))
    assert not moved[dense.bias.path].any() and moved[dense.kernel.path].all()


def test_inside_other_optimizers():
    model = bert()
    optimizer = layer_wise_decay(
        keras.optimizers.AdamW(RATE, weight_decay=DECAY), model, decay=0.5
    )
    moved = steps_with_zero_gradients(model, exclude_norms_and_biases(optimizer, model))
    assert not moved["block_0/attention/query/bias"].any()
    np.testing.assert_allclose(
        moved["block_0/attention/query/kernel"], -RATE * DECAY / 4, rtol=1e-4
    )
    scaled = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.AdamW(RATE, weight_decay=DECAY)
    )
    assert exclude_norms_and_biases(scaled, model) is scaled
    moved = steps_with_zero_gradients(model, scaled.inner_optimizer)
    assert not moved["pooler/bias"].any() and moved["pooler/kernel"].all()


def test_in_fit_only_kernels_shrink():
    """Nothing to learn: the loss is zero whatever the weights are."""
    norm, head = keras.layers.LayerNormalization(), keras.layers.Dense(2)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, 0.0 * head(norm(inputs)))
    optimizer = keras.optimizers.AdamW(RATE, weight_decay=DECAY)
    before = keras.ops.convert_to_numpy(head.kernel)
    model.compile(exclude_norms_and_biases(optimizer, model), "mse", jit_compile=False)
    model.fit(np.ones((4, 3)), np.zeros((4, 2)), batch_size=2, verbose=0)
    np.testing.assert_allclose(head.kernel, before * (1 - RATE * DECAY) ** 2, rtol=1e-5)
    np.testing.assert_array_equal(norm.gamma, np.ones(3))


def test_refuses():
    model = bert()
    adam = keras.optimizers.Adam()
    with pytest.raises(ValueError, match="`optimizer` must have a weight decay"):
        exclude_norms_and_biases(adam, model)
    built = keras.optimizers.AdamW()
    built.build(model.trainable_variables)
    with pytest.raises(ValueError, match="`optimizer` must be a new one"):
        exclude_norms_and_biases(built, model)
    empty = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="`model` must be built"):
        exclude_norms_and_biases(keras.optimizers.AdamW(), empty)
