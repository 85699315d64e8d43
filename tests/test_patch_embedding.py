import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.patch_embedding import PatchEmbedding

B, D = 2, 5


def images(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def counting_image(height, width, channels):
    """Every pixel says where it is: 100 row + column + 10000 channel."""
    row, column, channel = np.indices((height, width, channels))
    return (100 * row + column + 10000 * channel).astype("float32")[None]


@pytest.mark.parametrize("patch", [(2, 2), (2, 3)])
def test_patch_order(patch):
    # FAULTS O55: token k holds exactly the pixels of patch k, row by row.
    image, (height, width) = counting_image(4, 6, 3), patch
    expected = [
        image[0, row : row + height, column : column + width].reshape(-1)
        for row in range(0, 4, height)
        for column in range(0, 6, width)
    ]
    layer = PatchEmbedding(height * width * 3, patch)
    layer.build(image.shape)
    layer.set_weights([np.eye(height * width * 3), np.zeros(height * width * 3)])
    np.testing.assert_array_equal(layer(image)[0], expected)
    first = PatchEmbedding(height * width * 3, patch, data_format="channels_first")
    first.build((None, 3, 4, 6))
    first.set_weights(layer.get_weights())
    np.testing.assert_array_equal(first(image.transpose(0, 3, 1, 2))[0], expected)


def test_equals_convolution():
    # FAULTS O55: dense on patches with the reshaped kernel is the convolution.
    image = images(B, 8, 9, 4)
    layer = PatchEmbedding(D, (2, 3))
    tokens = layer(image)
    kernel, bias = layer.get_weights()
    assert layer.projection.kernel.path.endswith("/projection/kernel")
    convolution = keras.layers.Conv2D(D, (2, 3), strides=(2, 3))
    convolution.build(image.shape)
    convolution.set_weights([kernel.reshape(2, 3, 4, D), bias])
    expected = ops.reshape(convolution(image), (B, 12, D))
    np.testing.assert_allclose(tokens, expected, atol=1e-5)


def test_data_format_of_the_configuration(monkeypatch):
    assert PatchEmbedding(D, 2).data_format == keras.config.image_data_format()
    monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_first")
    assert PatchEmbedding(D, 2).data_format == "channels_first"


def test_integer_images():
    layer, image = PatchEmbedding(D, 2), np.arange(48).reshape(1, 4, 4, 3)
    np.testing.assert_allclose(
        layer(image.astype("uint8")), layer(image.astype("float32")), atol=1e-5
    )


def test_shapes():
    layer = PatchEmbedding(D, (2, 3))
    assert layer(keras.Input((8, 9, 4))).shape == (None, 12, D)
    assert layer(keras.Input((None, 9, 4))).shape == (None, None, D)
    assert tuple(layer(images(0, 8, 9, 4)).shape) == (0, 12, D)
    first = PatchEmbedding(D, (2, 3), data_format="channels_first")
    assert first(keras.Input((4, 8, 9))).shape == (None, 12, D)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_sides_that_do_not_divide(data_format):
    # FAULTS O54: refused, known or not, symbolic or not.
    def shape(height, width):
        if data_format == "channels_first":
            return 3, height, width
        return height, width, 3

    message = r"`patch_size` \(16, 16\) divides, got \(220, 230\)"
    layer = PatchEmbedding(D, 16, data_format=data_format)
    with pytest.raises(ValueError, match=message):
        layer.build((None, *shape(220, 230)))
    layer.build((None, *shape(None, None)))
    with pytest.raises(ValueError, match=message):
        layer(images(1, *shape(220, 230)))
    with pytest.raises(ValueError, match=message):
        layer(keras.Input(shape(220, 230)))
    for sides in ((32, 30), (30, 32), (None, 30), (8, 16)):
        with pytest.raises(ValueError, match="divides, got"):
            layer(keras.Input(shape(*sides)))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_unknown_sides(data_format, jit_compile):
    # FAULTS O54: what turns out not to divide is an error at run time.
    import tensorflow as tf

    def pictures(height, width):
        image = images(B, height, width, 3)
        last = data_format == "channels_last"
        return image if last else image.transpose(0, 3, 1, 2)

    layer = PatchEmbedding(D, (4, 2), data_format=data_format)
    shape = [None, None, None, None]
    shape[-1 if data_format == "channels_last" else 1] = 3
    layer.build(shape)
    run = tf.function(
        lambda x: layer(x),
        input_signature=[tf.TensorSpec(shape)],
        jit_compile=jit_compile,
    )
    for sides in ((8, 6), (4, 2)):
        np.testing.assert_allclose(
            run(pictures(*sides)), layer(pictures(*sides)), atol=1e-5
        )
    for sides in ((8, 5), (7, 6), (2, 6), (6, 8)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(pictures(*sides))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(policy):
    layer, image = PatchEmbedding(D, 2, dtype=policy), images(B, 4, 6, 3)
    reference = PatchEmbedding(D, 2)
    reference.build(image.shape)
    reference.set_weights((layer.build(image.shape), layer.get_weights())[1])
    for outputs in (layer(image), layer.call(ops.array(image))):
        dtype = keras.backend.standardize_dtype(outputs.dtype)
        assert dtype == policy.removeprefix("mixed_")
        np.testing.assert_allclose(
            ops.cast(outputs, "float32"), reference(image), atol=3e-2
        )
    assert layer.projection.kernel.dtype == "float32"


def model_of(layer, shape):
    inputs = keras.Input(shape)
    return keras.Model(inputs, layer(inputs))


def test_config_and_save(tmp_path):
    layer = PatchEmbedding(
        hidden_dim=D, patch_size=(2, 3), data_format="channels_first"
    )
    config = json.loads(json.dumps(layer.get_config()))
    assert PatchEmbedding.from_config(config).get_config() == layer.get_config()
    model, image = model_of(layer, (3, 4, 6)), images(B, 3, 4, 6)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(image), loaded(image))


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`")
def test_quantized_save_twice(tmp_path):
    model, image = model_of(PatchEmbedding(D, 2), (4, 6, 3)), images(B, 4, 6, 3)
    before = model(image)
    model.quantize("int8")
    quantized = model(image)
    assert model.layers[1].projection.kernel.dtype == "int8"
    np.testing.assert_allclose(quantized, before, atol=0.1)
    for name in ("once.keras", "twice.keras"):
        model.save(tmp_path / name)
        model = keras.models.load_model(tmp_path / name)
        np.testing.assert_allclose(model(image), quantized, atol=1e-5)


def test_frozen_stays_frozen(tmp_path):
    layer = PatchEmbedding(D, 2, trainable=False)
    model = model_of(layer, (4, 6, 3))
    model.save(tmp_path / "model.keras")
    assert not keras.models.load_model(tmp_path / "model.keras").trainable_weights
    assert len(model.weights) == 2


def test_lora():
    model = model_of(PatchEmbedding(D, 2), (4, 6, 3))
    model.layers[1].projection.enable_lora(2)
    assert len(model.trainable_weights) == 3
    assert tuple(model(images(B, 4, 6, 3)).shape) == (B, 6, D)


def test_errors():
    with pytest.raises(ValueError, match="`hidden_dim` must be positive, got 0"):
        PatchEmbedding(0, 2)
    for patch in (0, (2, 0), (2, 2, 2)):
        with pytest.raises(ValueError, match="`patch_size` must be one or two"):
            PatchEmbedding(D, patch)
    with pytest.raises(ValueError, match="`data_format` must be .*, got 'NHWC'"):
        PatchEmbedding(D, 2, data_format="NHWC")
    with pytest.raises(ValueError, match="`inputs` must have 4 axes"):
        PatchEmbedding(D, 2).build((4, 6, 3))
