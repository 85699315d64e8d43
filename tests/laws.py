"""Laws that attention, blocks and models keep, and small tools for tests.

Letters: B batch, T length, S key-value length, D width, M cache length.
"""

import gc
import inspect
import warnings

import keras
import numpy as np
import pytest
from keras import ops

HAS_FLOAT64 = keras.backend.backend() != "jax"  # JAX keeps it behind a switch
# For `compile`: a few steps of a tiny model are done before a graph is made.
EAGER = {"run_eagerly": keras.backend.backend() == "tensorflow"}
POLICIES = ["mixed_float16", "mixed_bfloat16", *["float64"] * HAS_FLOAT64]


def to_numpy(outputs):
    """Tensors of a nest as NumPy arrays; bfloat16, which NumPy lacks, as float32."""

    def convert(x):
        if keras.backend.standardize_dtype(x.dtype) == "bfloat16":
            x = ops.cast(x, "float32")
        return ops.convert_to_numpy(x)

    return keras.tree.map_structure(convert, outputs)


def assert_near(actual, expected, atol=1e-5):
    """Same shape and values; NaN is near nothing."""
    actual, expected = (
        to_numpy(x) if hasattr(x, "dtype") else np.asarray(x)
        for x in (actual, expected)
    )
    assert actual.shape == expected.shape
    np.testing.assert_allclose(
        actual.astype("float64"), expected.astype("float64"), rtol=0, atol=atol
    )
    assert np.all(np.isfinite(actual))


def differs(one, other, atol=1e-4):
    """Whether some value of two arrays of one shape differs."""
    return bool(np.max(np.abs(to_numpy(one) - to_numpy(other))) > atol)


def normal(*shape, seed=0):
    """Random numbers, float32, the same in each run."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def token_ids(*shape, vocabulary_size=31, seed=0):
    """Random ids in [1, vocabulary_size), int32."""
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(1, vocabulary_size, shape).astype("int32")


def randomize(layer, seed=0):
    """Give every weight random numbers, biases and norms too. Returns the layer."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        deviation = 0.3 if len(weight.shape) < 2 else weight.shape[0] ** -0.5
        center = 1.0 if weight.name in ("gamma", "scale") else 0.0
        weight.assign(center + deviation * rng.normal(size=weight.shape))
    return layer


def copy_weights(layer, *shapes):
    """A layer of the same class, config and weights, built from shapes."""
    copy = type(layer).from_config(layer.get_config())
    copy.build(*shapes)
    copy.set_weights(layer.get_weights())
    return copy


def quantize(model):
    """Quantize a model to int8, whatever parts Keras has no quantization for.

    Keras collects garbage after every layer; frozen, what lies around costs nothing.
    """
    gc.freeze()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have a `quantize` method")
        model.quantize("int8")
    gc.unfreeze()


def compiled(function, jit=False):
    """`function` as a graph of the backend; with `jit` through XLA."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=jit)


def gradients(loss, x, layer=None):
    """Gradients of `loss(x)` as NumPy arrays: of x, then of the layer's weights."""
    weights = [] if layer is None else layer.trainable_variables
    if keras.backend.backend() == "jax":
        import jax

        def pure(x, values):
            with keras.StatelessScope(state_mapping=list(zip(weights, values))):
                return loss(x)

        values = [weight.value for weight in weights]
        of_x, of_weights = jax.grad(pure, (0, 1))(ops.convert_to_tensor(x), values)
        return to_numpy([of_x, *of_weights])
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(x)
    sources = [x, *(weight.value for weight in weights)]
    found = tape.gradient(value, sources, unconnected_gradients="zero")
    return to_numpy([tf.convert_to_tensor(gradient) for gradient in found])


def later_tokens_change_nothing_before(run, x, change):
    """Causal: what stands at t or later leaves outputs before t as they are.

    Args:
        run: function of tokens (B, T, ...) -> outputs (B, T, ...).
        x: array (B, T, ...).
        change: function that gives other tokens of the same shape.
    """
    before = run(x)
    for t in range(1, x.shape[1]):
        after = run(np.concatenate([x[:, :t], change(x[:, t:])], axis=1))
        assert_near(after[:, :t], before[:, :t], atol=1e-5)
        assert differs(after[:, t:], before[:, t:])


def padding_changes_nothing(run, x, padding, side, atol=1e-5):
    """Padding on one side leaves the outputs of real tokens as they are.

    Args:
        run: function (tokens (B, T, ...), padding_mask (B, T)) -> (B, T, ...).
        x: array (B, T, ...).
        padding: array (B, P, ...) of what stands at padding.
        side: "left" or "right".
        atol: float, largest difference.
    """
    real, pads = np.ones(x.shape[:2], bool), np.zeros(padding.shape[:2], bool)
    pairs = [(padding, pads), (x, real)]
    tokens, mask = zip(*(pairs if side == "left" else pairs[::-1]))
    outputs = run(np.concatenate(tokens, axis=1), np.concatenate(mask, axis=1))
    where = slice(padding.shape[1], None) if side == "left" else slice(x.shape[1])
    assert_near(outputs[:, where], run(x, real), atol=atol)


def cached_equals_full(
    layer, x, full, capacity, context=None, chunks=None, atol=1e-5, **masks
):
    """Decoding with a cache gives the rows of the full pass, in any chunks.

    Args:
        layer: has `init_cache` and `call_with_cache`.
        x: array (B, T, ...).
        full: array (B, T, ...), outputs of one causal pass.
        capacity: int M.
        context: array (B, S, ...) or None.
        chunks: lists of chunk lengths; by default ones, all at once, and uneven.
        atol: float, largest difference.
        **masks: arguments of `call_with_cache`; `positions` (B, T) are cut.
    """
    length = x.shape[1]
    positions = masks.pop("positions", None)
    for lengths in chunks or ([1] * length, [length], [2, 1, length - 3]):
        cache, start, rows = layer.init_cache(len(x), capacity, context), 0, []
        for size in lengths:
            step = slice(start, start + size)
            if positions is not None:
                masks["positions"] = positions[:, step]
            index = ops.convert_to_tensor(start, "int32")
            outputs, cache = layer.call_with_cache(x[:, step], cache, index, **masks)
            assert all(len(leaf.shape) <= 4 for leaf in keras.tree.flatten(cache))
            rows.append(to_numpy(outputs))
            start += size
        assert_near(np.concatenate(rows, axis=1), full, atol=atol)


def permutation_commutes(run, x):
    """Without positions, permuted tokens give permuted outputs."""
    order = np.random.default_rng(0).permutation(x.shape[1])
    assert_near(run(x[:, order]), run(x)[:, order])


def masked_rows_are_empty(layer, x, masks, empty, expected):
    """A query with nothing to attend to: a known output, finite gradients.

    Args:
        layer: attention layer.
        x: array (B, T, D).
        masks: call arguments that leave some queries without any key.
        empty: bool (B, T), those queries.
        expected: array (D,), their output.
    """
    outputs = to_numpy(layer(x, **masks))
    assert_near(outputs[empty], np.broadcast_to(expected, outputs[empty].shape))
    assert differs(outputs[~empty], np.broadcast_to(expected, outputs[~empty].shape))
    for gradient in gradients(lambda x: ops.sum(layer(x, **masks) ** 2), x, layer):
        assert np.all(np.isfinite(gradient))


def every_argument_counts(layer, inputs, variants, refused=None, idle=()):
    """Each call argument changes the output or is refused: none is dropped.

    Args:
        layer: a built layer.
        inputs: array, the first argument.
        variants: dict from every other argument of `call` to a value, or to a pair
            of a value and the arguments that it needs beside it.
        refused: dict from the arguments that a variant cannot honour to values.
        idle: names of arguments that say nothing to this layer.
    """
    refused = refused or {}
    names = set(inspect.signature(layer.call).parameters) - {"inputs"}
    assert {*variants, *refused, *idle} == names
    for name, value in refused.items():
        with pytest.raises(ValueError, match=f"`{name}`"):
            layer(inputs, **{name: value})
    for name, value in variants.items():
        value, beside = value if isinstance(value, tuple) else (value, {})
        plain = layer(inputs, **beside)
        changed = layer(inputs, **beside, **{name: value})
        if name == "return_attention_scores":
            assert len(changed) == 2
            continue
        assert differs(changed, plain), name


def largest_tensor(function, *shapes):
    """Entries of the largest tensor in a TensorFlow graph of a function.

    Args:
        function: of float32 tensors.
        *shapes: theirs.
    """
    import tensorflow as tf

    specs = [tf.TensorSpec(shape) for shape in shapes]
    graph = tf.function(function).get_concrete_function(*specs).graph
    tensors = [tensor for op in graph.get_operations() for tensor in op.outputs]
    sizes = [tensor.shape.num_elements() for tensor in tensors if tensor.shape.rank]
    assert None not in sizes
    return max(sizes)
