"""Batches of one row: the same numbers, and no copies of a cache."""

import re

import numpy as np
import pytest
from keras import ops

from keras_tfm import models
from keras_tfm.generation import Greedy
from keras_tfm.generation.decoder import Decoder
from keras_tfm.layers.one_row import by_rows, plain_rows
from tests.laws import assert_near, normal, token_ids


@pytest.mark.parametrize("rows", [1, 2])
def test_by_rows(rows):
    x, y = normal(rows, 3, 4), normal(rows, 4, 5)
    ranks = []

    def product(x, y):
        ranks.append(len(x.shape))
        return ops.matmul(x, y)

    assert_near(by_rows(product, x, y), np.matmul(x, y))
    with plain_rows():
        assert_near(by_rows(product, x, y), np.matmul(x, y))
    assert ranks == [2 if rows == 1 else 3, 3]


@pytest.mark.tensorflow
@pytest.mark.xla
@pytest.mark.parametrize("rows", [1, 2])
def test_the_loop_writes_caches_where_they_are(rows):
    import tensorflow as tf

    model = models.GPT(11, 2, 2, 8, 16, max_sequence_length=24)
    decoder = Decoder(model, 24, Greedy())
    inputs = {
        "token_ids": token_ids(rows, 5, vocabulary_size=11),
        "padding_mask": np.ones((rows, 5), bool),
        "limit": np.int32(19),
        "seed": np.int32(0),
    }
    inputs = {name: tf.constant(value) for name, value in inputs.items()}

    @tf.function(jit_compile=True)
    def run(inputs):
        fixed, moving = decoder.start(inputs)
        return decoder.advance(fixed, moving, inputs["limit"])["token_ids"]

    text = run.experimental_get_compiler_ir(inputs)(stage="optimized_hlo")
    [body] = re.findall(r"while\(.*?body=%?([\w.\-]+)", text)
    [body] = re.findall(rf"\n%?{re.escape(body)} \(.*?\n}}\n", text, re.DOTALL)
    # What is made there of a cache's shape: keys and values of 2 blocks, in place.
    made = re.findall(r"%(\S+) = f32\[(?:\d+,)?2,(?:23,4|4,23)\]\S* (\w+)", body)
    made = [name for name, kind in made if kind not in ("get", "parameter")]
    assert len(made) == 4
    assert all("dynamic-update-slice" in name for name in made)
