"""VisionTransformer against Hugging Face and timm, and its shapes."""

import keras
import numpy as np
import pytest

from keras_tfm import layers, models
from tests.laws import assert_near, differs, normal, randomize, to_numpy
from tests.sources import ROOT

SIZES = {"num_layers": 2, "num_heads": 3, "hidden_dim": 12, "intermediate_dim": 20}
CONFIG = {"image_size": (4, 6), "patch_size": 2, **SIZES}


@pytest.fixture(scope="module")
def golden():
    return np.load(ROOT / "tests" / "golden" / "vit.npz")


def set_dense(layer, kernel, bias):
    layer.set_weights([kernel.T, bias])


def set_patches(layer, kernel, bias):
    """A convolution's (D, channels, rows, columns) as the kernel of a product."""
    kernel = kernel.transpose(2, 3, 1, 0).reshape(-1, kernel.shape[0])
    layer.projection.set_weights([kernel, bias])


def load_token(model, golden):
    """Copy the golden weights of Hugging Face's classifier into ours."""

    def pair(name):
        return golden[f"token/{name}.weight"], golden[f"token/{name}.bias"]

    backbone = model.layers[1]
    embeddings = "vit.embeddings"
    set_patches(
        backbone.get_layer("patch_embedding"),
        *pair(f"{embeddings}.patch_embeddings.projection"),
    )
    token = golden[f"token/{embeddings}.cls_token"][0]
    backbone.get_layer("class_token").set_weights([token])
    table = golden[f"token/{embeddings}.position_embeddings"][0]
    backbone.get_layer("position_embedding").set_weights([table])
    for i, block in enumerate(backbone.blocks):
        name, attention = f"vit.layers.{i}", block.attention
        block.attention_residual.norm_before.set_weights(
            pair(f"{name}.layernorm_before")
        )
        set_dense(attention.query, *pair(f"{name}.attention.q_proj"))
        set_dense(attention.key, *pair(f"{name}.attention.k_proj"))
        set_dense(attention.value, *pair(f"{name}.attention.v_proj"))
        set_dense(attention.output_projection, *pair(f"{name}.attention.o_proj"))
        norm = block.feed_forward_residual.norm_before
        norm.set_weights(pair(f"{name}.layernorm_after"))
        set_dense(block.feed_forward.up, *pair(f"{name}.mlp.fc1"))
        set_dense(block.feed_forward.down, *pair(f"{name}.mlp.fc2"))
    backbone.get_layer("final_norm").set_weights(pair("vit.layernorm"))
    set_dense(model.get_layer("logits"), *pair("classifier"))


def load_mean(model, golden):
    """Copy the golden weights of timm's model into ours."""

    def pair(name):
        return golden[f"mean/{name}.weight"], golden[f"mean/{name}.bias"]

    backbone = model.layers[1]
    set_patches(backbone.get_layer("patch_embedding"), *pair("patch_embed.proj"))
    table = golden["mean/pos_embed"][0]
    backbone.get_layer("position_embedding").set_weights([table])
    for i, block in enumerate(backbone.blocks):
        name, attention = f"blocks.{i}", block.attention
        before = block.attention_residual, block.feed_forward_residual
        for number, residual in enumerate(before, 1):
            residual.norm_before.set_weights(pair(f"{name}.norm{number}"))
            residual.scale.set_weights([golden[f"mean/{name}.ls{number}.gamma"]])
        kernels, biases = (np.split(w, 3) for w in pair(f"{name}.attn.qkv"))
        parts = attention.query, attention.key, attention.value
        for part, kernel, bias in zip(parts, kernels, biases):
            set_dense(part, kernel, bias)
        set_dense(attention.output_projection, *pair(f"{name}.attn.proj"))
        set_dense(block.feed_forward.up, *pair(f"{name}.mlp.fc1"))
        set_dense(block.feed_forward.down, *pair(f"{name}.mlp.fc2"))
    backbone.get_layer("final_norm").set_weights(pair("norm"))
    set_dense(model.get_layer("logits"), *pair("head"))


def test_class_token_matches_hugging_face(golden):
    model = models.classifier(models.VisionTransformer(**CONFIG), 5)
    load_token(model, golden)
    backbone = model.layers[1]
    states = [backbone.get_layer("position_embedding"), *backbone.blocks]
    probe = keras.Model(backbone.input, [layer.output for layer in states])
    expected = golden["token_hidden_states"]
    for actual, wanted in zip(probe(golden["images"]), expected, strict=True):
        assert_near(actual, wanted)
    assert_near(model(golden["images"]), golden["token_logits"])


def test_mean_pooling_and_layer_scale_match_timm(golden):
    config = {**CONFIG, "intermediate_dim": 24, "pooling": "mean", "layer_scale": 0.1}
    model = models.classifier(models.VisionTransformer(**config), 5)
    load_mean(model, golden)
    outputs = model.layers[1](golden["images"])
    assert_near(outputs["sequence_output"], golden["mean_sequence"])
    assert_near(outputs["pooled_output"], golden["mean_sequence"].mean(1))
    assert_near(model(golden["images"]), golden["mean_logits"])


@pytest.mark.parametrize("pooling", ["token", "mean"])
def test_shapes(pooling):
    model = models.VisionTransformer(**CONFIG, pooling=pooling, channels=1)
    outputs = model(normal(3, 4, 6, 1))
    tokens = 7 if pooling == "token" else 6
    assert outputs["sequence_output"].shape == (3, tokens, 12)
    assert outputs["pooled_output"].shape == (3, 12)
    assert model.output["sequence_output"].shape == (None, tokens, 12)


def test_every_pixel_counts():  # FAULTS O54
    model, image = randomize(models.VisionTransformer(**CONFIG)), normal(1, 4, 6, 3)
    plain = to_numpy(model(image)["pooled_output"])
    for row in range(4):
        for column in range(6):
            changed = image.copy()
            changed[0, row, column] += 1.0
            assert differs(model(changed)["pooled_output"], plain)


def test_drop_path_rises_from_zero():
    model = models.VisionTransformer(**{**CONFIG, "num_layers": 3, "drop_path": 0.4})
    assert [block.drop_path for block in model.blocks] == [0.0, 0.2, 0.4]
    single = models.VisionTransformer(**{**CONFIG, "num_layers": 1, "drop_path": 0.4})
    assert [block.drop_path for block in single.blocks] == [0.0]


def test_one_number_stands_for_both_sides():
    model = models.VisionTransformer(8, 4, **SIZES)
    assert (model.image_size, model.patch_size) == ((8, 8), (4, 4))


def test_a_rotary_attention_is_a_value():
    attention = layers.MultiHeadAttention(3, rotary=layers.RotaryEmbedding())
    model = models.VisionTransformer(**CONFIG, attention=attention)
    again = models.VisionTransformer.from_config(model.get_config())
    assert all(block.attention.rotary is not None for block in again.blocks)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"pooling": "max"}, '"token", "pooler" or "mean", got \'max\''),
        (
            {"pooling": "mean", "distillation_token": True},
            "`distillation_token` does not go",
        ),
        ({"patch_size": 4}, r"`patch_size` must divide `image_size`, got \(4, 4\)"),
        ({"num_heads": 5}, "`num_heads` must divide the width"),
    ],
)
def test_refused(config, message):
    with pytest.raises(ValueError, match=message):
        models.VisionTransformer(**{**CONFIG, **config})


def test_images_of_another_size_are_refused():  # FAULTS O54
    model = models.VisionTransformer(**CONFIG)
    for shape in ((1, 6, 4, 3), (1, 8, 6, 3), (1, 5, 6, 3)):
        with pytest.raises(ValueError):
            model(normal(*shape))
