import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers.rotary_embedding import RotaryEmbedding

B, T, N, H = 2, 5, 3, 8
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def heads(*shape):
    return np.random.default_rng(0).normal(size=shape or (B, T, N, H)).astype("float32")


def rotate(x, positions, layout="half", rotary_dim=None, base=10000.0):
    """The formula, pair by pair, in float64; positions (T,)."""
    rotary_dim = rotary_dim or x.shape[-1]
    outputs, pairs = x.astype("float64"), rotary_dim // 2
    for i in range(pairs):
        first, second = (i, i + pairs) if layout == "half" else (2 * i, 2 * i + 1)
        angle = (positions * base ** (-2 * i / rotary_dim))[None, :, None]
        a, b = x[..., first], x[..., second]
        outputs[..., first] = a * np.cos(angle) - b * np.sin(angle)
        outputs[..., second] = b * np.cos(angle) + a * np.sin(angle)
    return outputs


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("half", [-1.984111, 1.959901, 2.462378, 4.019800]),
        ("interleaved", [-1.142640, 1.922076, 2.959851, 4.029800]),
    ],
)
def test_pairing(layout, expected):
    # FAULTS O20: both pairings, named and kept in the config.
    x = np.array([1, 2, 3, 4], "float32").reshape(1, 1, 1, 4)
    layer = RotaryEmbedding(layout=layout)
    outputs = layer(x, positions=np.array([1]))
    np.testing.assert_allclose(np.ravel(outputs), expected, atol=1e-6)
    assert layer.get_config()["layout"] == layout


def test_layouts_agree_once_permuted():
    # FAULTS O20: scores are equal once the columns of q and k are permuted.
    q, k = heads(), heads(B, T, N, H)[..., ::-1]
    order = np.arange(H).reshape(2, H // 2).T.reshape(-1)  # half to interleaved

    def scores(layout, q, k):
        layer = RotaryEmbedding(layout=layout)
        return ops.einsum("btnh,bsnh->bnts", layer(q), layer(k))

    np.testing.assert_allclose(
        scores("half", q, k),
        scores("interleaved", q[..., order], k[..., order]),
        atol=1e-5,
    )


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 2, 4, H])
def test_is_the_formula(layout, rotary_dim):
    x, positions = heads(), np.array([0, 3, 1, 700, 2])
    layer = RotaryEmbedding(500.0, layout, rotary_dim)
    expected = rotate(x, np.arange(T), layout, rotary_dim, 500.0)
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    expected = rotate(x, positions, layout, rotary_dim, 500.0)
    np.testing.assert_allclose(layer(x, positions=positions), expected, atol=1e-4)
    each = np.stack([positions, positions + 9])
    outputs = layer(x, positions=each)
    np.testing.assert_allclose(outputs[:1], expected[:1], atol=1e-4)
    expected = rotate(x, positions + 9, layout, rotary_dim, 500.0)
    np.testing.assert_allclose(outputs[1:], expected[1:], atol=1e-4)
    if rotary_dim:
        np.testing.assert_array_equal(outputs[..., rotary_dim:], x[..., rotary_dim:])


@pytest.mark.parametrize(("length", "num_heads"), [(4, 4), (5, 2)])
def test_axis(length, num_heads):
    # FAULTS O21: rotates along the time, not along the heads.
    vector = heads(1, 1, 1, H)
    x = np.broadcast_to(vector, (B, length, num_heads, H))
    outputs = np.array(RotaryEmbedding()(x))
    np.testing.assert_allclose(outputs, outputs[:, :, :1] + 0 * x, atol=1e-6)
    np.testing.assert_allclose(outputs[:, 0], x[:, 0], atol=1e-6)
    for t in range(1, length):
        assert np.abs(outputs[:, t] - outputs[:, t - 1]).max() > 0.1


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_scores_depend_on_distance(layout):
    layer, q, k = RotaryEmbedding(layout=layout), heads(), heads()[:, ::-1]
    near = np.array(ops.einsum("btnh,btnh->btn", layer(q), layer(k)))
    positions = np.arange(T) + 40
    far = ops.einsum(
        "btnh,btnh->btn", layer(q, positions=positions), layer(k, positions=positions)
    )
    np.testing.assert_allclose(near, far, atol=1e-4)
    norms = np.linalg.norm(layer(q), axis=-1)
    np.testing.assert_allclose(norms, np.linalg.norm(q, axis=-1), rtol=1e-5)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("policy", ["mixed_float16", "float16", "mixed_bfloat16"])
def test_far_positions_in_half_precision(policy, layout):
    # FAULTS O19: the angle is float32 even where the input is half precision.
    dtype = policy.removeprefix("mixed_")
    positions = np.array([257, 4095, 15962, 32766, 32767], "int32")
    x = np.zeros((1, 5, 1, 64), "float32")
    x[..., 0] = 1
    layer = RotaryEmbedding(layout=layout, dtype=policy)
    outputs = layer(ops.cast(x, dtype), positions=positions)
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    pair = [0, 32] if layout == "half" else [0, 1]
    found = np.array(ops.cast(outputs, "float32"))[0, :, 0][:, pair]
    expected = np.stack([np.cos(positions), np.sin(positions)], -1)
    np.testing.assert_allclose(found, expected, atol=1e-2)
    np.testing.assert_allclose(
        found[3:], [(0.6885, -0.7252), (0.9823, 0.1875)], atol=0.01
    )
    assert len(np.unique(found, axis=0)) == 5


@pytest.mark.tensorflow
def test_float64():
    layer, x = RotaryEmbedding(dtype="float64"), heads(B, 700, N, H).astype("float64")
    np.testing.assert_allclose(layer(x), rotate(x, np.arange(700)), atol=1e-11)
    dynamic = {**YARN, "type": "dynamic"}
    layer = RotaryEmbedding(dtype="float64", scaling=dynamic)
    assert layer(x).dtype == "float64"


def test_scaling_reaches_the_rotation():
    x = heads()
    linear = RotaryEmbedding(scaling={"type": "linear", "factor": 2.0})
    np.testing.assert_allclose(linear(x), rotate(x, np.arange(T) / 2), atol=1e-5)
    yarn = {**YARN, "attention_factor": 2.0}
    rotated = RotaryEmbedding(scaling=yarn, rotary_dim=4)(x)
    np.testing.assert_allclose(rotated[:, 0, :, :4], 2 * x[:, 0, :, :4], rtol=1e-6)
    np.testing.assert_array_equal(rotated[..., 4:], x[..., 4:])


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_current_length(kind):
    # The whole batch's largest position decides; other layers are not touched.
    scaling = {"type": kind, "factor": 4.0, "original_max_position_embeddings": 6}
    if kind == "longrope":
        scaling |= {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]}
        scaling["attention_factor"] = 1.0
    layer, x = RotaryEmbedding(scaling=scaling), heads()
    np.testing.assert_allclose(layer(x), rotate(x, np.arange(T)), atol=1e-5)
    inside = np.stack([np.arange(T), np.arange(T) + 1])
    np.testing.assert_allclose(
        layer(x, positions=inside)[:1], rotate(x, np.arange(T))[:1], atol=1e-5
    )
    past = np.stack([np.arange(T), np.arange(T) + 2])
    first = layer(x, positions=past)[:1]
    assert np.abs(first - rotate(x, np.arange(T))[:1]).max() > 0.05
    np.testing.assert_allclose(layer(x), rotate(x, np.arange(T)), atol=1e-5)


def test_unknown_length():
    inputs = keras.Input((None, N, H))
    positions = keras.Input((None,), dtype="int32")
    layer = RotaryEmbedding(layout="interleaved", rotary_dim=4)
    model = keras.Model([inputs, positions], layer(inputs, positions=positions))
    assert model.output_shape == (None, None, N, H)
    for length in (1, 4):
        x, at = heads(B, length, N, H), np.arange(length) + 3
        expected = rotate(x, at, "interleaved", 4)
        outputs = model.predict([x, np.stack([at] * B)], verbose=0)
        np.testing.assert_allclose(outputs, expected, atol=1e-5)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("kind", [None, "dynamic", "longrope"])
def test_one_trace(kind, jit_compile):
    import tensorflow as tf

    scaling = kind and {
        "type": kind,
        "factor": 4.0,
        "original_max_position_embeddings": 5,
    }
    if kind == "longrope":
        scaling |= {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]}
    layer, traces = RotaryEmbedding(scaling=scaling), []
    signature = [tf.TensorSpec((None, None, N, H)), tf.TensorSpec((None,), tf.int32)]

    @tf.function(input_signature=signature, jit_compile=jit_compile)
    def run(x, positions):
        traces.append(1)
        return layer(x, positions=positions)

    for length in (1, 4, 9):
        x, positions = heads(B, length, N, H), np.arange(length) * 2
        np.testing.assert_allclose(
            run(x, positions), layer(x, positions=positions), atol=1e-5
        )
    assert len(traces) == 1


def test_empty():
    # FAULTS O66.
    scaling = {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4}
    for layer in (RotaryEmbedding(), RotaryEmbedding(scaling=scaling)):
        for shape in ((0, T, N, H), (B, 0, N, H)):
            assert tuple(layer(np.zeros(shape, "float32")).shape) == shape


def test_config_and_save(tmp_path):
    layer = RotaryEmbedding(
        max_wavelength=500.0, layout="interleaved", rotary_dim=4, scaling=YARN
    )
    config = json.loads(json.dumps(layer.get_config()))
    assert RotaryEmbedding.from_config(config).get_config() == layer.get_config()
    assert type(layer.get_config()["scaling"]) is dict
    inputs = keras.Input((None, N, H))
    model = keras.Model(inputs, layer(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(heads()), loaded(heads()))


def test_errors():
    with pytest.raises(ValueError, match="`max_wavelength` must be positive, got 0"):
        RotaryEmbedding(max_wavelength=0)
    with pytest.raises(ValueError, match="`layout` must be .*, got 'neox'"):
        RotaryEmbedding(layout="neox")
    for rotary_dim in (0, 3, -2):
        with pytest.raises(ValueError, match="`rotary_dim` must be even and > 0"):
            RotaryEmbedding(rotary_dim=rotary_dim)
    with pytest.raises(ValueError, match="rotated width 10 .* of a head, 8"):
        RotaryEmbedding(rotary_dim=10).build((B, T, N, H))
    with pytest.raises(ValueError, match="rotated width 7 must be even"):
        RotaryEmbedding().build((B, T, N, 7))
    with pytest.raises(ValueError, match="`positions` must have the shape"):
        RotaryEmbedding()(heads(), positions=np.arange(T + 1))
    scaling = {
        "type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "short_factor": [1.0] * 4,
        "long_factor": [1.0] * 3,
    }
    with pytest.raises(ValueError, match='"long_factor"]` must have 4 numbers, got 3'):
        RotaryEmbedding(scaling=scaling).build((B, T, N, H))
