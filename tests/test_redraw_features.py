"""The callback that draws a Performer's features anew."""

import keras
import numpy as np
import pytest

from keras_tfm import layers, training
from tests.laws import normal, to_numpy


def make(kernel="favor", **config):
    attention = layers.PerformerAttention(2, kernel=kernel, **config)
    block = layers.TransformerEncoderBlock(attention, layers.FeedForward(4))
    model = keras.Sequential([keras.Input((None, 4)), block])
    model.compile("sgd", "mse", jit_compile=False)
    return model, model.layers[0].attention


def features_of_each_step(every, seed, steps=5):
    model, attention = make(seed=0)
    seen = [to_numpy(attention.features)]

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model  # on JAX, what brings its weights up to date
            seen.append(to_numpy(attention.features))

    callback = training.RedrawFeatures(every, seed)
    x = normal(steps, 3, 4)
    model.fit(x, x, batch_size=1, verbose=0, callbacks=[callback, Look()])
    return seen


def test_features_change_every_so_many_steps():
    seen = features_of_each_step(every=2, seed=3)
    changed = [not np.array_equal(a, b) for a, b in zip(seen, seen[1:])]
    assert changed == [False, True, False, True, False]
    for one, other in zip(seen, features_of_each_step(every=2, seed=3)):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(seen[-1], features_of_each_step(every=2, seed=4)[-1])


def test_refused():
    with pytest.raises(ValueError, match="`every` must be at least 1, got 0"):
        training.RedrawFeatures(0)
    dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="d")])
    dense.compile("sgd", "mse")
    with pytest.raises(ValueError, match="needs a model with a PerformerAttention"):
        x = normal(2, 4)
        dense.fit(x, x, verbose=0, callbacks=[training.RedrawFeatures()])
