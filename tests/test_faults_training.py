"""Training whole models: precision, seeds, compilation, several devices."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import generation, layers, models
from tests.laws import (
    EAGER,
    assert_near,
    compiled,
    differs,
    normal,
    randomize,
    to_numpy,
    token_ids,
)
from tests.sources import ROOT

SMALL = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
TEXT = {"vocabulary_size": 31, **SMALL, "max_sequence_length": 16}


def bert(**more):
    return models.classifier(models.Bert(**TEXT, **more), 5)


def gpt(**more):
    return models.GPT(**TEXT, **more)


def pair(**more):
    return models.Seq2SeqTransformer(**TEXT, **more)


def vit(**more):
    return models.classifier(models.VisionTransformer(4, 2, **SMALL, **more), 5)


IDS = token_ids(2, 5)
SAMPLES = {
    "bert": (
        bert,
        {
            "token_ids": IDS,
            "segment_ids": np.zeros_like(IDS),
            "padding_mask": np.array([[1, 1, 1, 0, 0], [1] * 5], bool),
        },
        np.array([1, 3]),
    ),
    "gpt": (gpt, {"token_ids": IDS, "padding_mask": IDS > 0}, np.roll(IDS, -1, 1)),
    "pair": (
        pair,
        {"source_token_ids": token_ids(2, 7), "target_token_ids": IDS},
        np.roll(IDS, -1, 1),
    ),
    "vit": (vit, normal(2, 4, 4, 3), np.array([1, 3])),
}
recipes = pytest.mark.parametrize("recipe", SAMPLES)


def compile_model(model, **more):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss=loss, **more)
    return model


@recipes
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_every_policy(recipe, policy, tmp_path):  # FAULTS O15
    make, inputs, targets = SAMPLES[recipe]
    exact, model = randomize(make(dropout=0.0)), make(dropout=0.0, dtype=policy)
    model.set_weights(exact.get_weights())
    logits = model(inputs)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    scale = np.abs(to_numpy(exact(inputs))).max()
    assert_near(logits, exact(inputs), atol=3e-2 * max(1.0, scale))
    compile_model(model, **EAGER)
    assert np.isfinite(model.train_on_batch(inputs, targets))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_near(loaded(inputs), model(inputs), atol=1e-6)
    policies = {layer.dtype_policy.name for layer in loaded.layers[1:]}
    assert policies <= {policy, "float32", *(p for p in policies if "int" in p)}
    if recipe in ("gpt", "pair"):
        prompt = inputs["token_ids"] if recipe == "gpt" else inputs
        assert generation.generate(model, prompt, 3).shape == (2, 8)


def train_two_steps(make):
    keras.utils.set_random_seed(7)
    model = compile_model(make(), **EAGER)
    x = {"token_ids": token_ids(4, 5), "padding_mask": np.ones((4, 5), bool)}
    return [float(model.train_on_batch(x, token_ids(4, 5))) for _ in range(2)], model


def test_one_seed_gives_one_training():  # FAULTS O63
    def make():
        attention = layers.MultiHeadAttention(2, attention_dropout=0.3)
        feed_forward = layers.FeedForward(12, dropout=0.3)
        parts = {"attention": attention, "feed_forward": feed_forward}
        return gpt(dropout=0.3, **parts)

    one, model = train_two_steps(make)
    other, _ = train_two_steps(make)
    assert one == other and one[0] != one[1]
    assert_near(model(IDS), model(IDS), atol=0)  # no dropout at inference
    assert differs(model(IDS, training=True), model(IDS, training=True))


def test_blocks_and_steps_drop_differently():  # FAULTS O63
    class Gone(keras.layers.Layer):
        """Leaves nothing of its input, so that a block shows its dropout alone."""

        def call(self, inputs):
            return ops.ones_like(inputs)

    keras.saving.register_keras_serializable("tests")(Gone)
    keras.utils.set_random_seed(1)
    blocks = [
        layers.TransformerEncoderBlock(Gone(), Gone(), dropout=0.5) for _ in range(2)
    ]
    x = np.zeros((2, 5, 8), "float32")
    drops = [to_numpy(block(x, training=True)) for block in (*blocks, blocks[0])]
    assert differs(drops[0], drops[1]) and differs(drops[0], drops[2])


@pytest.mark.tensorflow
def test_one_trace_serves_every_length():  # FAULTS O52
    import tensorflow as tf

    model, traces = randomize(gpt()), []

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32)])
    def run(ids):
        traces.append(1)
        return model(ids)

    for length in (5, 9, 16):
        ids = token_ids(3, length)
        assert_near(run(ids), model(ids), atol=1e-4)
    assert run(token_ids(1, 5)).shape == (1, 5, 31)  # a last, smaller batch
    assert len(traces) == 1
    with pytest.raises(tf.errors.InvalidArgumentError):  # FAULTS O25
        run(token_ids(2, 17))


@pytest.mark.tensorflow
def test_jit_takes_an_unknown_length():  # FAULTS O52
    import tensorflow as tf

    model = randomize(gpt())

    @tf.function(
        jit_compile=True, input_signature=[tf.TensorSpec((None, None), tf.int32)]
    )
    def run(ids):
        return model({"token_ids": ids, "padding_mask": ids > 3})

    for length in (4, 7):
        ids = token_ids(2, length)
        expected = model({"token_ids": ids, "padding_mask": ids > 3})
        assert_near(run(ids), expected, atol=1e-4)


def test_a_compiled_training_step_is_the_plain_one():  # FAULTS O52
    inputs, targets = {"token_ids": IDS, "padding_mask": IDS > 0}, np.roll(IDS, -1, 1)
    losses = []
    for jit in (False, True):
        model = randomize(gpt())
        compile_model(model, jit_compile=jit)
        losses.append([float(model.train_on_batch(inputs, targets)) for _ in range(2)])
    assert_near(losses[0], losses[1], atol=1e-4)


def test_a_step_of_decoding_is_traced_once():  # FAULTS O52
    model, traces, ids = randomize(gpt()), [], token_ids(2, 16)

    def step(ids, cache, index):
        traces.append(1)
        return model.call_with_cache(ids, cache, index)

    step, cache, rows = compiled(step), model.init_cache(2, 16), []
    for i in range(16):
        index = ops.convert_to_tensor(i, "int32")
        logits, cache = step(ops.convert_to_tensor(ids[:, i : i + 1]), cache, index)
        rows.append(to_numpy(logits))
    assert len(traces) == 1
    assert_near(np.concatenate(rows, 1), model(ids), atol=1e-4)


@pytest.mark.tensorflow
def test_ids_outside_the_vocabulary():  # FAULTS O26
    import tensorflow as tf

    ids = token_ids(1, 3)
    ids[0, 1] = 31
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in .0, 31"):
        gpt()(ids)


MIRRORED = """
import os
import sys
os.environ["KERAS_BACKEND"] = "tensorflow"
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, halves)
import numpy as np
import keras
from tests.test_faults_training import SAMPLES, compile_model

keras.utils.set_random_seed(0)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
for name in sys.argv[1:]:
    make, inputs, targets = SAMPLES[name]
    if name in ("bert", "gpt"):  # Keras adds up the first batch, which bools cannot be
        mask = inputs["padding_mask"].astype("int32")
        inputs = {**inputs, "padding_mask": mask}
    with strategy.scope():
        model = compile_model(make(dropout=0.1), jit_compile=False)
    history = model.fit(inputs, targets, batch_size=2, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"][0]), name
    for weight in model.trainable_weights:
        one, other = strategy.experimental_local_results(weight.value)
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    print(name, "trained", flush=True)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "names", [["bert"], pytest.param(["gpt", "pair", "vit"], marks=pytest.mark.long)]
)
def test_every_recipe_on_two_devices(names):  # FAULTS O62
    run = subprocess.run(
        [sys.executable, "-c", MIRRORED, *names],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.count("trained") == len(names)
