"""Blocks that compute twice: the same training, with less kept."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers, models, training
from tests.laws import assert_near, normal, to_numpy, token_ids

SIZE = {
    "vocabulary_size": 31, "num_layers": 2, "num_heads": 2, "hidden_dim": 8,
    "intermediate_dim": 16, "max_sequence_length": 12,
}  # fmt: skip


def learn(make, x, y, loss, jit):
    """Weights and losses after some steps, from the same seed."""
    keras.utils.set_random_seed(0)
    model = make()
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit)
    history = model.fit(x, y, epochs=2, batch_size=4, shuffle=False, verbose=0)
    return model.get_weights(), history.history["loss"], model


def same(make, x, y, loss, jit=False):
    """`make(remat)` learns alike either way."""
    plain, plain_losses, _ = learn(lambda: make(False), x, y, loss, jit)
    found, losses, model = learn(lambda: make(True), x, y, loss, jit)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    for one, other in zip(plain, found):
        assert_near(other, one, atol=1e-5)
    return model


@pytest.mark.parametrize("jit", [False, True])
def test_gpt_with_dropout_and_tied_embeddings_learns_alike(jit):
    """Dropout draws the same numbers in both computations, or weights would differ."""
    ids = token_ids(8, 10)
    loss = training.SmoothedCrossentropy()
    model = same(
        lambda remat: models.GPT(**SIZE, dropout=0.3, remat=remat),
        ids[:, :-1],
        ids[:, 1:],
        loss,
        jit,
    )
    again = keras.models.model_from_json(model.to_json())
    assert again.remat and again.count_params() == model.count_params()


def test_losses_of_experts_have_gradients():
    def make(remat):
        experts = layers.MixtureOfExperts(
            layers.FeedForward(16), num_experts=3, top_k=2
        )
        return models.GPT(**SIZE, feed_forward=experts, remat=remat)

    ids = token_ids(8, 10)
    same(make, ids[:, :-1], ids[:, 1:], training.SmoothedCrossentropy())


def test_encoder_decoder_learns_alike():
    inputs = {
        "source_token_ids": token_ids(8, 7),
        "target_token_ids": token_ids(8, 6, seed=1),
    }
    same(
        lambda remat: models.Seq2SeqTransformer(**SIZE, remat=remat),
        inputs,
        token_ids(8, 6, seed=2),
        training.SmoothedCrossentropy(),
    )


def test_bert_and_vision_transformer_learn_alike():
    ids = token_ids(8, 10)

    def bert(remat):
        return models.classifier(models.Bert(**SIZE, remat=remat), 3)

    labels, loss = np.arange(8) % 3, training.SmoothedCrossentropy()
    same(bert, ids, labels, loss)

    def vit(remat):
        backbone = models.VisionTransformer(
            8, 4, 2, 2, 8, 16, dropout=0.1, drop_path=0.2, remat=remat
        )
        return models.classifier(backbone, 3)

    same(vit, normal(8, 8, 8, 3), labels, loss)


@pytest.mark.tensorflow  # JAX compiles the second computation without calling anew
def test_the_block_is_computed_again():
    """Once for the outputs and once more for the gradient."""
    calls = []

    class Counted(layers.FeedForward):
        def call(self, inputs, training=None):
            calls.append(1)
            return super().call(inputs, training=training)

    def count(remat):
        calls.clear()
        keras.utils.set_random_seed(0)
        scope = keras.RematScope("list_of_layers", layer_names=["block"])
        if not remat:
            scope = keras.RematScope(None)
        with scope:
            block = layers.TransformerEncoderBlock(
                layers.MultiHeadAttention(2), layers.FeedForward(8), name="block"
            )
        block.build((2, 5, 4))
        block.feed_forward.__class__ = Counted
        from tests.laws import gradients

        x = normal(2, 5, 4)
        found = gradients(lambda x: ops.sum(block(x, training=True) ** 2), x)
        return len(calls), to_numpy(found[0])

    once, expected = count(False)
    twice, found = count(True)
    assert (once, twice) == (1, 2)
    assert_near(found, expected)


def test_inference_leaves_the_random_generators_alone():
    model = models.GPT(**SIZE, dropout=0.3, remat=True)
    before = [to_numpy(v) for v in model.non_trainable_variables]
    plain = models.GPT.from_config({**model.get_config(), "remat": False})
    plain.set_weights(model.get_weights())
    ids = token_ids(2, 5)
    assert_near(model(ids), plain(ids))
    for one, other in zip(model.non_trainable_variables, before):
        np.testing.assert_array_equal(to_numpy(one), other)
