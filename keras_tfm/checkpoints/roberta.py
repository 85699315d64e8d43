"""RoBERTa checkpoints, XLM-RoBERTa and CamemBERT too: BERT's names but for the heads.

Positions count real tokens, from the padding's id on, which is padding's own row of
the table; the rows before it are nobody's.
"""

import dataclasses

import numpy as np

from keras_tfm.checkpoints import bert
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.weight_map import Entry, Layout, linear, norm
from keras_tfm.models import Bert

MASKED_TOKENS = (
    *linear("token_transform", "lm_head.dense"),
    *norm("token_norm", "lm_head.layer_norm"),
    Entry("token_logits/bias", "lm_head.bias"),
)
CLASSIFICATION = (
    *linear("pooler", "classifier.dense"),
    *linear("logits", "classifier.out_proj"),
)
PADDING_ID = 1  # as written


def rows_from(count):
    """The layout of a table without its first rows, which are zero when written.

    Args:
        count: int.
    """
    return Layout(
        lambda table: table[count:],
        lambda table: np.pad(table, ((count, 0), (0, 0))),
    )


def entries(config, _backbone):
    """The `Entry`s of the backbone; see `Family`."""
    layout = rows_from(config["pad_token_id"])
    positions = dataclasses.replace(bert.POSITIONS, layout=layout)
    return (*bert.EMBEDDINGS, positions, *bert.BLOCKS, *bert.POOLER)


def build(config, **changes):
    """A `Bert` with the sizes of a config; see `Family`."""
    rows = config["max_position_embeddings"]
    fields = {
        **bert.fields_of(config),
        "max_sequence_length": rows - config["pad_token_id"] - 1,
        "positions": "real",
    }
    return Bert(**{**fields, **changes})


def describe(model):
    """The config of a `Bert` that counts real tokens; see `Family`."""
    config = bert.described(model, positions="real", embedding_dim=None)
    if config is None:
        return None
    rows = model.max_sequence_length + PADDING_ID + 1
    return {**config, "max_position_embeddings": rows, "pad_token_id": PADDING_ID}


def named(ending):
    """The names of a class in the three libraries' words, RoBERTa's first."""
    return tuple(f"{name}{ending}" for name in ("Roberta", "XLMRoberta", "Camembert"))


FAMILY = Family(
    model_types=("roberta", "xlm-roberta", "camembert"),
    build=build,
    entries=entries,
    tasks={
        "backbone": Task(named("Model"), changes=bert.TANH),
        "masked_tokens": Task(
            named("ForMaskedLM"),
            prefix="roberta.",
            entries=MASKED_TOKENS,
            build=lambda backbone, config, _: bert.masked_tokens(
                backbone, config, activation="gelu"
            ),
            changes={"pooler_activation": None},
            fits=bert.has_gelu,
        ),
        "classification": Task(
            named("ForSequenceClassification"),
            prefix="roberta.",
            entries=CLASSIFICATION,
            build=bert.classification,
            changes=bert.TANH,
        ),
    },
    describe=describe,
    optional=("pooler/.*",),
    redundant=(*bert.BUFFERS, r"lm_head\.decoder\.(weight|bias)"),
)
