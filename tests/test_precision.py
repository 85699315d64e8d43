import keras
import numpy as np
import pytest

from keras_tfm import layers
from keras_tfm.export import precision
from tests import export_models

pytestmark = pytest.mark.tensorflow
B, T, D = 2, 5, 8


def functional(dtype):
    """A user's model: our block in a nested model, a Sequential, a tied layer."""
    x = keras.Input((None, D), name="x")
    block = layers.TransformerEncoderBlock(
        layers.MultiHeadAttention(2), layers.FeedForward(12), dtype=dtype
    )
    inner = keras.Model(x, block(x), name="inner")
    tail = keras.Sequential(
        [keras.layers.Dense(D, dtype=dtype), keras.layers.LayerNormalization()]
    )
    y = keras.Input((None, D), name="y")
    shared = keras.layers.Dense(D, dtype=dtype, name="shared")
    outputs = tail(shared(inner(shared(y))))
    return keras.Model({"y": y}, {"one": outputs, "two": outputs * 2})


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
@pytest.mark.parametrize(
    "make",
    [export_models.bert, export_models.gpt, functional],
    ids=lambda f: f.__name__,
)
def test_twin_is_the_same_function_in_float32(make, dtype):
    model = make(dtype)
    assert precision.is_low_precision(model)
    twin = precision.float32_model(model)
    assert not precision.is_low_precision(twin)
    assert "float16" not in str(twin.get_config())
    for one, other in zip(model.weights, twin.weights, strict=True):
        assert other.dtype == "float32"
        np.testing.assert_array_equal(
            keras.ops.cast(one.value, "float32"), other.numpy()
        )
    inputs = (
        {"y": np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")}
        if make is functional
        else export_models.feed(model, B, T)
    )
    for one, other in zip(
        keras.tree.flatten(model(inputs)), keras.tree.flatten(twin(inputs)), strict=True
    ):
        one, other = keras.ops.cast(one, "float32"), keras.ops.cast(other, "float32")
        np.testing.assert_allclose(one, other, atol=0.06)
        assert np.abs(other).max() > 0


def test_own_classes_stay_what_they_are():
    twin = precision.float32_model(export_models.gpt("mixed_bfloat16"))
    assert type(twin) is type(export_models.gpt())


def test_a_float32_model_is_its_own_twin():
    model = export_models.vision()
    assert precision.float32_model(model) is model


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_quantized_models_are_known(mode):
    model = functional("float32")
    assert not precision.is_quantized(model)
    model.quantize(mode)
    assert precision.is_quantized(model)


def test_a_class_that_is_not_its_config_is_refused():
    @keras.saving.register_keras_serializable(package="test_precision")
    class Growing(keras.layers.Layer):
        made = 0

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            Growing.made += 1
            self.dense = keras.layers.Dense(Growing.made, dtype=self.dtype_policy)

        def call(self, inputs):
            return self.dense(inputs)

        def compute_output_shape(self, shape):
            return (*shape[:-1], self.dense.units)

    x = keras.Input((D,))
    model = keras.Model(x, Growing(dtype="mixed_bfloat16")(x))
    with pytest.raises(ValueError, match="must be rebuilt by its config"):
        precision.float32_model(model)


def test_integer_inputs_of_a_sequential_stay_integer():
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            keras.layers.Embedding(300, D, dtype="mixed_bfloat16"),
        ]
    )
    twin = precision.float32_model(model)
    assert (twin.inputs[0].dtype, twin.inputs[0].name) == ("int32", "ids")
    ids = np.array([[257, 299]])  # bfloat16 would make 256 and 300 of them
    np.testing.assert_array_equal(twin(ids)[0], model.get_weights()[0][ids[0]])


def test_layers_without_a_config_are_looked_at_too():
    class Plain(keras.layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)

        def call(self, inputs):
            return inputs

    x = keras.Input((D,))
    assert not precision.is_low_precision(keras.Model(x, Plain(3)(x)))
    half = keras.Model(x, Plain(3, dtype="mixed_bfloat16")(x))
    assert precision.is_low_precision(half)
