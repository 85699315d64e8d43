"""ELECTRA checkpoints, generators and discriminators: BERT's names but in the heads."""

from keras_tfm.checkpoints import bert
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.weight_map import Entry, linear, norm
from keras_tfm.models import Bert, ReplacedTokenDetector

ENTRIES = (
    *bert.EMBEDDINGS,
    bert.POSITIONS,
    *linear("embedding_projection", "embeddings_project"),
    *bert.BLOCKS,
)
MASKED_TOKENS = (
    *linear("token_transform", "generator_predictions.dense"),
    *norm("token_norm", "generator_predictions.LayerNorm"),
    Entry("token_logits/bias", "generator_lm_head.bias"),
)
REPLACED_TOKENS = (
    *linear("token_transform", "discriminator_predictions.dense"),
    *linear("replaced_logits", "discriminator_predictions.dense_prediction"),
)
CLASSIFICATION = (
    *linear("pooler", "classifier.dense"),
    *linear("logits", "classifier.out_proj"),
)


def build(config, **changes):
    """A `Bert` with the sizes of a config; see `Family`."""
    width = config["embedding_size"]
    fields = {
        **bert.fields_of(config),
        "embedding_dim": None if width == config["hidden_size"] else width,
    }
    return Bert(**{**fields, **changes})


def describe(model):
    """The config of a `Bert`; see `Family`."""
    config = bert.described(model, positions="all")
    if config is None:
        return None
    return {**config, "embedding_size": model.embedding_dim or model.hidden_dim}


FAMILY = Family(
    model_types=("electra",),
    build=build,
    entries=ENTRIES,
    tasks={
        "backbone": Task(("ElectraModel",), changes={"pooler_activation": None}),
        "masked_tokens": Task(
            ("ElectraForMaskedLM",),
            prefix="electra.",
            entries=MASKED_TOKENS,
            build=lambda backbone, config, _: bert.masked_tokens(
                backbone, config, activation="gelu"
            ),
            changes={"pooler_activation": None},
            fits=bert.has_gelu,
        ),
        "replaced_tokens": Task(
            ("ElectraForPreTraining",),
            prefix="electra.",
            entries=REPLACED_TOKENS,
            build=lambda backbone, config, _: ReplacedTokenDetector(backbone),
            changes={"pooler_activation": None},
        ),
        "classification": Task(
            ("ElectraForSequenceClassification",),
            prefix="electra.",
            entries=CLASSIFICATION,
            build=bert.classification,
            changes={"pooler_activation": "gelu"},
        ),
    },
    describe=describe,
    optional=("pooler/.*",),
    redundant=(*bert.BUFFERS, r"generator_lm_head\.weight"),
)
