import keras
import numpy as np
import pytest

from keras_tfm import layers, models
from keras_tfm.visualize import attention_scores

SIZES = dict(num_layers=2, num_heads=2, hidden_dim=4, intermediate_dim=6)
IDS = np.array([[1, 2, 3, 4, 5], [6, 5, 1, 0, 0]])
REAL = IDS > 0


def language(cls=models.GPT, **kwargs):
    return cls(vocabulary_size=7, max_sequence_length=8, dropout=0.5, **SIZES, **kwargs)


def test_gpt_weights_are_causal_and_masked():
    scores = attention_scores(language(), {"token_ids": IDS, "padding_mask": REAL})
    assert list(scores) == ["block_0/attention", "block_1/attention"]
    for weights in scores.values():
        assert weights.shape == (2, 2, 5, 5) and weights.dtype == np.float32
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
        assert np.abs(np.triu(weights, 1)).max() == 0.0
        assert weights[1, :, :, 3:].max() == 0.0
        assert weights[0, :, 4, 3:].min() > 0.0


def test_bert_sees_both_ways_and_bare_ids_do():
    scores = attention_scores(language(models.Bert), IDS)
    assert scores["block_1/attention"].shape == (2, 2, 5, 5)
    assert scores["block_1/attention"].min() > 0.0


def test_the_same_as_a_block_by_itself():
    model = language()
    inputs = {"token_ids": IDS, "padding_mask": np.ones_like(REAL)}
    first = keras.Model(model.input, model.get_layer("block_0").input[0])
    stream = first(inputs)
    _, expected = model.get_layer("block_0")(stream, return_attention_scores=True)
    actual = attention_scores(model, inputs)["block_0/attention"]
    np.testing.assert_allclose(actual, expected["attention"], atol=1e-6)


def test_encoder_decoder():
    model = language(models.Seq2SeqTransformer)
    inputs = {"source_token_ids": IDS, "target_token_ids": IDS[:, :3]}
    shapes = {k: v.shape for k, v in attention_scores(model, inputs).items()}
    assert shapes == {
        "encoder_block_0/attention": (2, 2, 5, 5),
        "encoder_block_1/attention": (2, 2, 5, 5),
        "decoder_block_0/attention": (2, 2, 3, 3),
        "decoder_block_0/cross_attention": (2, 2, 3, 5),
        "decoder_block_1/attention": (2, 2, 3, 3),
        "decoder_block_1/cross_attention": (2, 2, 3, 5),
    }


def test_a_backbone_inside_a_classifier_is_left_as_it_was():
    backbone = models.VisionTransformer(image_size=(4, 4), patch_size=2, **SIZES)
    model = models.classifier(backbone, num_classes=3)
    images = np.random.default_rng(0).normal(size=(2, 4, 4, 3)).astype("float32")
    before = keras.ops.convert_to_numpy(model(images))
    scores = attention_scores(model, images)
    assert scores["block_1/attention"].shape == (2, 2, 5, 5)
    assert "call" not in vars(backbone.get_layer("block_0"))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(model(images)), before)
    again = attention_scores(model, images)
    np.testing.assert_array_equal(
        again["block_0/attention"], scores["block_0/attention"]
    )


def test_an_error_leaves_the_model_as_it_was():
    model = language()
    with pytest.raises(ValueError):
        attention_scores(model, {"token_ids": IDS, "unknown": IDS})
    assert "call" not in vars(model.get_layer("block_0"))
    assert tuple(model(IDS).shape) == (2, 5, 7)


def test_a_shared_block_is_kept_twice():
    inputs = keras.Input((None, 4))
    block = layers.TransformerEncoderBlock(
        layers.MultiHeadAttention(2), layers.FeedForward(6), name="shared"
    )
    model = keras.Model(inputs, block(block(inputs)))
    x = np.random.default_rng(0).normal(size=(1, 3, 4)).astype("float32")
    scores = attention_scores(model, x)
    assert list(scores) == ["shared/attention", "shared/attention_2"]
    one, two = scores.values()
    assert not np.allclose(one, two)


def test_refuses_a_model_without_attention():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"`return_attention_scores`, got \['Dense'\]"):
        attention_scores(model, np.zeros((1, 2)))
