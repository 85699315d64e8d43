"""Small models of every kind, and inputs for them, for the tests of export."""

import numpy as np

from keras_tfm import models

VOCABULARY, LONGEST, CLASSES = 30, 80, 3
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
HEIGHT, WIDTH = 8, 12


def bert(dtype=None):
    """A classifier over Bert; the backbone has 16-wide outputs."""
    backbone = models.Bert(
        VOCABULARY, max_sequence_length=LONGEST, dtype=dtype, **SIZES
    )
    return models.classifier(backbone, CLASSES)


def gpt(dtype=None):
    return models.GPT(VOCABULARY, max_sequence_length=LONGEST, dtype=dtype, **SIZES)


def translator(dtype=None):
    return models.Seq2SeqTransformer(
        VOCABULARY, max_sequence_length=LONGEST, dtype=dtype, **SIZES
    )


def vision(dtype=None):
    """Two outputs of the same width and different meaning."""
    return models.VisionTransformer((HEIGHT, WIDTH), 4, dtype=dtype, **SIZES)


def feed(model, batch, length, seed=0):
    """Inputs of one of these models; the last row is padded from the middle on."""
    rng = np.random.default_rng(seed)
    if model.name.startswith("vision"):
        return rng.normal(size=(batch, HEIGHT, WIDTH, 3)).astype("float32")
    ids = rng.integers(1, VOCABULARY, (batch, length)).astype("int32")
    ids[-1:, length // 2 + 1 :] = 0
    values = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": ids > 0,
        "source_token_ids": ids,
        "target_token_ids": ids[:, : length // 2 + 1],
    }
    return {name: values[name] for name in model.input}
