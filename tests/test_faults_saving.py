"""Files of whole models, also in a process that has just begun."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_tfm import layers, models
from tests import test_battery, test_models
from tests.battery import SIZES
from tests.laws import assert_near, normal, randomize, to_numpy, token_ids
from tests.sources import ROOT

D = 6
READ = """
import pathlib, sys
import keras, numpy as np
import keras_tfm
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    model = keras.models.load_model(path)
    wanted = np.load(path.with_suffix(".npz"))
    inputs = {k[3:]: wanted[k] for k in wanted.files if k.startswith("in/")}
    outputs = model(inputs if isinstance(model.input, dict) else inputs["inputs"])
    for i, x in enumerate(keras.tree.flatten(outputs)):
        x = keras.ops.convert_to_numpy(x)
        np.testing.assert_allclose(x, wanted[f"out/{i}"], rtol=0, atol=1e-6)
    weights = {k[2:]: wanted[k] for k in wanted.files if k.startswith("w/")}
    assert {w.path for w in model.weights} == set(weights), path
    for weight in model.weights:
        value = keras.ops.convert_to_numpy(weight.value)
        np.testing.assert_array_equal(value, weights[weight.path])
    print("read", path.stem, flush=True)
"""


def test_everything_is_read_in_a_new_process(tmp_path):  # FAULTS O43, O46
    cases = [*test_battery.CASES, *test_models.CASES]
    for i, case in enumerate(cases):
        model, arrays = case.model(), case.inputs(*SIZES)
        path = tmp_path / f"{i}.keras"
        model.save(path)
        outputs = keras.tree.flatten(case.run(model, arrays))
        named = arrays if isinstance(arrays, dict) else {"inputs": arrays}
        np.savez(
            path.with_suffix(".npz"),
            **{f"in/{k}": v for k, v in named.items()},
            **{f"out/{k}": v for k, v in enumerate(outputs)},
            **{f"w/{w.path}": to_numpy(w) for w in model.weights},
        )
    run = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.count("read") == len(cases)


def block():
    return layers.TransformerEncoderBlock(
        layers.MultiHeadAttention(3), layers.FeedForward(7)
    )


@keras.saving.register_keras_serializable(package="tests")
class Stack(keras.layers.Layer):
    """A user's layer that keeps blocks in a list of lists and in a dict."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.grid = [[block(), block()], [block()]]
        self.named = {"last": block()}

    def build(self, inputs_shape):
        for each in self.blocks():
            each.build(inputs_shape)

    def blocks(self):
        return [*self.grid[0], *self.grid[1], self.named["last"]]

    def call(self, inputs):
        for each in self.blocks():
            inputs = each(inputs)
        return inputs


def test_blocks_in_nested_containers(tmp_path):  # FAULTS O44
    model = keras.Sequential([keras.Input((None, D)), Stack()])
    assert len(model.weights) == 4 * 16
    randomize(model)
    x = normal(2, 5, D)
    model.save(tmp_path / "model.keras")
    assert_near(
        keras.models.load_model(tmp_path / "model.keras")(x), model(x), atol=1e-6
    )
    model.save_weights(tmp_path / "model.weights.h5")
    other = keras.Sequential([keras.Input((None, D)), Stack(name="other")])
    other.load_weights(tmp_path / "model.weights.h5")
    assert_near(other(x), model(x), atol=1e-6)


def test_a_layer_first_called_inside_a_model(tmp_path):  # FAULTS O43
    class Outer(keras.Model):
        """A subclassed model, which builds its block when it is called."""

        def __init__(self):
            super().__init__()
            self.block = block()

        def call(self, inputs):
            return self.block(inputs)

    x, model, other = normal(2, 5, D), Outer(), Outer()
    model(x), other(x)
    randomize(model).save_weights(tmp_path / "model.weights.h5")
    randomize(other, seed=1).load_weights(tmp_path / "model.weights.h5")
    assert_near(other(x), model(x), atol=1e-6)


def test_files_of_another_model_are_refused(tmp_path):  # FAULTS O43, O47
    config = {
        "vocabulary_size": 31,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 12,
        "max_sequence_length": 16,
    }
    path = tmp_path / "model.weights.h5"
    models.GPT(num_layers=2, **config).save_weights(path)
    for other in (
        models.GPT(num_layers=3, **config),
        models.GPT(num_layers=2, **{**config, "intermediate_dim": 13}),
    ):
        with pytest.raises(ValueError, match="could not be loaded"):
            other.load_weights(path)


@pytest.mark.tensorflow
def test_exported_lengths_are_free_up_to_the_limit(tmp_path):  # FAULTS O48, O25
    import tensorflow as tf

    config = test_models.TEXT
    model = randomize(models.GPT(**config))
    model.export(tmp_path / "model", format="tf_saved_model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    serve = loaded.signatures["serving_default"]
    for batch, length in ((1, 1), (3, 7), (1, 16)):
        ids = token_ids(batch, length)
        (logits,) = serve(
            token_ids=tf.constant(ids), padding_mask=tf.ones(ids.shape, tf.bool)
        ).values()
        assert_near(logits, model(ids), atol=1e-4)
    with pytest.raises(tf.errors.InvalidArgumentError):
        serve(
            token_ids=tf.ones((1, 17), tf.int32), padding_mask=tf.ones((1, 17), tf.bool)
        )
