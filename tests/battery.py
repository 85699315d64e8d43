"""What every layer and every model must prove, a case at a time.

A `Case` names a class, its arguments and its inputs; `check_layer` and, on
TensorFlow, `check_exports` of tests/exports.py do the rest. tests/test_battery.py
lists the layers, tests/test_models.py the models.

Letters: B batch, T length.
"""

import dataclasses
import inspect
import json

import keras
import numpy as np

from tests.laws import (
    POLICIES,
    assert_near,
    normal,
    quantize,
    randomize,
    to_numpy,
)

FROM_KERAS = {"name", "trainable", "dtype"}
SIZES, OTHER_SIZES = (2, 5), (3, 7)  # B and T; coprime, so no axis hides


@dataclasses.dataclass(frozen=True)
class Case:
    """One configuration of one class.

    Args:
        cls: subclass of `keras.layers.Layer` or of `keras.Model`.
        config: constructor arguments. Unless `plain`, all of them, and none at its
            default, so that one that the config forgets is missed.
        inputs: function (B, T) -> dict from call arguments to arrays; for a model
            what it is called with.
        weights: int, number of trainable weights.
        free: axes that are not known when a graph is made.
        call: further, static call arguments.
        plain: bool, defaults are allowed.
    """

    cls: type
    config: dict
    inputs: object
    weights: int
    free: tuple = (0, 1)
    call: dict = dataclasses.field(default_factory=dict)
    plain: bool = False

    @property
    def is_model(self):
        return issubclass(self.cls, keras.Model)

    def make(self, **more):
        """The layer or model; `more` are `name`, `dtype`, `trainable`."""
        return self.cls(**self.config, **more)

    def shapes(self, arrays):
        return {f"{name}_shape": array.shape for name, array in arrays.items()}

    def run(self, layer, arrays):
        """Outputs of the layer as NumPy arrays."""
        if isinstance(layer, keras.Model):
            return to_numpy(layer(arrays))
        return to_numpy(layer(**arrays, **self.call))

    def model(self, **more):
        """A functional model of the layer, free axes unknown, random weights."""
        model = layer = self.make(**more)
        if not self.is_model:
            symbols = {}
            for name, array in self.inputs(*SIZES).items():
                shape = [
                    None if i in self.free else n for i, n in enumerate(array.shape)
                ]
                symbols[name] = keras.Input(
                    batch_shape=shape, dtype=array.dtype.name, name=name
                )
            model = keras.Model(symbols, layer(**symbols, **self.call))
        return randomize(model)


def label(case):
    return case.cls.__name__


def check_layer(case, folder):
    """All that holds on every backend; `folder` is for files."""
    check_config(case)
    if not case.is_model:
        check_build(case)
    check_graphs(case)
    check_nothing(case)
    check_policies(case)
    check_training(case)
    check_files(case, folder)
    check_quantized(case, folder)
    check_frozen(case, folder)


def check_config(case):
    """The config is the constructor's arguments, in JSON."""  # FAULTS O45
    parameters = inspect.signature(case.cls.__init__).parameters
    names = set(parameters) - {"self", "kwargs"} - FROM_KERAS
    layer = case.make(name="given", dtype="mixed_bfloat16", trainable=False)
    config = layer.get_config()
    assert set(config) == names | FROM_KERAS
    if not case.plain:
        assert set(case.config) == names
        for name, value in case.config.items():
            assert value is not parameters[name].default, name
            assert not _plain(value) or value != parameters[name].default, name
    for name, value in case.config.items():
        assert _written(config[name]) == _written(value), name
    assert config["name"] == "given" and config["trainable"] is False
    text = json.dumps(config)
    again = case.cls.from_config(json.loads(text))
    assert json.dumps(again.get_config()) == text
    assert again.dtype_policy.name == "mixed_bfloat16"


def _plain(value):
    return isinstance(value, (int, float, str, tuple, list, dict, type(None)))


def _written(value):
    """A value as JSON, without what the owner of a nested layer decides."""
    if not _plain(value):
        if inspect.isfunction(value):
            value = keras.activations.serialize(value)
        else:
            value = keras.saving.serialize_keras_object(value)
    if isinstance(value, (list, tuple)):
        return [_written(item) for item in value]
    if isinstance(value, dict):
        dropped = FROM_KERAS | {"build_config", "registered_name", "module"}
        return {k: _written(v) for k, v in value.items() if k not in dropped}
    return value


def _fitting(function, shapes):
    """The shapes that a function asks for."""
    parameters = inspect.signature(function).parameters
    return {name: shape for name, shape in shapes.items() if name in parameters}


def check_build(case):
    """Shapes alone make every weight; config and weights are the whole function."""
    arrays = case.inputs(*SIZES)
    shapes = case.shapes(arrays)
    layers = [case.make(), case.cls.from_config(case.make().get_config())]
    for layer in layers:
        if case.cls.build is not keras.layers.Layer.build:
            layer.build(**_fitting(layer.build, shapes))
        assert len(layer.trainable_weights) == case.weights
    layer, clone = layers
    randomize(layer)
    outputs = case.run(layer, arrays)
    assert len(layer.trainable_weights) == case.weights
    clone.set_weights(layer.get_weights())
    assert_near(case.run(clone, arrays), outputs, atol=1e-6)

    # Declared and real shapes agree, also where sizes are not known.
    declared = layer.compute_output_shape(
        **_fitting(layer.compute_output_shape, shapes)
    )
    assert tuple(declared) == outputs.shape
    symbols = {k: keras.KerasTensor(x.shape, x.dtype.name) for k, x in arrays.items()}
    symbol = layer(**symbols, **case.call)
    assert tuple(symbol.shape) == outputs.shape
    assert symbol.dtype == outputs.dtype.name
    free = case.model().output.shape
    for known, size in zip(free, outputs.shape, strict=True):
        assert known in (None, size)
    assert 0 not in case.free or free[0] in (None, 1)


def check_graphs(case):
    """Eager, graph and jit agree; one graph serves every free size."""
    model = case.model()
    for jit, sizes in ((False, SIZES), (False, OTHER_SIZES), (True, SIZES)):
        arrays = case.inputs(*sizes)
        if jit or sizes is SIZES:
            model.compile(jit_compile=jit)
        outputs = model.predict_on_batch(arrays)
        keras.tree.map_structure(
            lambda x, y: assert_near(x, y, atol=1e-4), case.run(model, arrays), outputs
        )


def check_nothing(case):
    """No rows give as many; no tokens too, in a layer that leaves T free."""
    model = case.model()  # FAULTS O66
    model.compile(jit_compile=False)
    graph = model.predict_on_batch
    graph(case.inputs(*SIZES))
    axes = (0,) if case.is_model else case.free
    for sizes in [(0, SIZES[1]), (SIZES[0], 0)][: len(axes)]:
        arrays = case.inputs(*sizes)
        symbols = keras.tree.map_structure(
            lambda x: keras.KerasTensor(x.shape, x.dtype.name), arrays
        )
        expected = [x.shape for x in keras.tree.flatten(model(symbols))]
        for run in (lambda x: case.run(model, x), graph):
            outputs = keras.tree.flatten(run(arrays))
            assert [x.shape for x in outputs] == expected, sizes


def check_policies(case):
    """Computes in the policy's dtype, stores in its own, says the same."""
    arrays = case.inputs(*SIZES)
    model = case.model()
    expected = _first(case.run(model, arrays))
    scale = max(1.0, float(np.max(np.abs(expected))))
    tolerances = {"float64": 1e-5, "mixed_float16": 2e-2, "mixed_bfloat16": 6e-2}
    for policy in POLICIES:
        other = case.model(dtype=policy)
        other.set_weights(model.get_weights())
        outputs = _first(case.run(other, arrays))
        assert_near(outputs, expected, atol=tolerances[policy] * scale)
        stored = keras.dtype_policies.get(policy).variable_dtype
        # A layer that makes logits stays in float32.
        assert {w.dtype for w in other.trainable_weights} <= {stored, "float32"}
        if not case.is_model:
            declared = other.output.dtype
            assert declared == _first(other(arrays)).dtype
            assert declared in (other.layers[-1].compute_dtype, "float32")


def _first(outputs):
    return keras.tree.flatten(outputs)[0]


def check_training(case):
    """A step of training lowers the loss, and every weight has a gradient."""
    if not case.weights:
        return
    arrays = case.inputs(*SIZES)
    model = case.model()
    assert len(model.trainable_weights) == case.weights
    targets = keras.tree.map_structure(
        lambda x: normal(*x.shape, seed=1), case.run(model, arrays)
    )

    def loss():
        pairs = keras.tree.map_structure(
            lambda x, y: np.mean((x - y) ** 2), case.run(model, arrays), targets
        )
        return sum(keras.tree.flatten(pairs))

    before = loss()
    losses = keras.tree.map_structure(lambda _: "mse", targets)
    model.compile(keras.optimizers.SGD(1e-3), loss=losses, jit_compile=False)
    model.train_on_batch(arrays, targets)  # warns, so raises, without a gradient
    assert loss() < before


def check_files(case, folder):
    """What was saved comes back, by path and bit by bit."""  # FAULTS O43, O46
    arrays = case.inputs(*SIZES)
    model = case.model()
    model.save(folder / "model.keras")
    same_model(case, keras.models.load_model(folder / "model.keras"), model, arrays)
    model.save_weights(folder / "model.weights.h5")
    other = randomize(type(model).from_config(model.get_config()), seed=9)
    other.load_weights(folder / "model.weights.h5")
    same_model(case, other, model, arrays)


def same_model(case, actual, expected, arrays):
    """Two models have the same class, weights by path, and outputs."""
    assert type(actual) is type(expected)
    weights = {w.path: to_numpy(w) for w in expected.weights}
    assert {w.path for w in actual.weights} == set(weights)
    assert len(actual.trainable_weights) == len(expected.trainable_weights)
    for weight in actual.weights:
        np.testing.assert_array_equal(to_numpy(weight), weights[weight.path])
    keras.tree.map_structure(
        lambda x, y: assert_near(x, y, atol=1e-6),
        case.run(actual, arrays),
        case.run(expected, arrays),
    )


def check_quantized(case, folder):
    """A model quantized by Keras survives two rounds of saving and loading."""
    arrays = case.inputs(*SIZES)
    model = case.model()
    expected = _first(case.run(model, arrays))
    quantize(model)
    outputs = _first(case.run(model, arrays))
    assert_near(outputs, expected, atol=0.1 * max(1.0, float(np.max(np.abs(expected)))))
    for name in ("first.keras", "second.keras"):
        model.save(folder / name)
        model = keras.models.load_model(folder / name)
    assert_near(_first(case.run(model, arrays)), outputs, atol=1e-6)


def check_frozen(case, folder):
    """A frozen layer stays frozen in its file."""
    model = case.model()
    model.trainable = False  # a model of ours writes this down, not each layer's
    model.save(folder / "frozen.keras")
    loaded = keras.models.load_model(folder / "frozen.keras")
    assert loaded.trainable_weights == []
    assert len(loaded.weights) == len(model.weights)
