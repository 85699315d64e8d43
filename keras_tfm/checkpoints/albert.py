"""ALBERT checkpoints: narrow embeddings, and blocks that are run several times."""

from keras_tfm.checkpoints import bert
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.weight_map import Entry, linear, norm
from keras_tfm.models import Bert

BLOCK, LAYER = "block_{i}", "encoder.albert_layer_groups.{i}.albert_layers.0"
ENTRIES = (
    *bert.EMBEDDINGS,
    bert.POSITIONS,
    *linear("embedding_projection", "encoder.embedding_hidden_mapping_in"),
    *linear(f"{BLOCK}/attention/query", f"{LAYER}.attention.query"),
    *linear(f"{BLOCK}/attention/key", f"{LAYER}.attention.key"),
    *linear(f"{BLOCK}/attention/value", f"{LAYER}.attention.value"),
    *linear(f"{BLOCK}/attention/output", f"{LAYER}.attention.dense"),
    *norm(f"{BLOCK}/attention_residual/norm_after", f"{LAYER}.attention.LayerNorm"),
    *linear(f"{BLOCK}/feed_forward/up", f"{LAYER}.ffn"),
    *linear(f"{BLOCK}/feed_forward/down", f"{LAYER}.ffn_output"),
    *norm(
        f"{BLOCK}/feed_forward_residual/norm_after", f"{LAYER}.full_layer_layer_norm"
    ),
    *linear("pooler", "pooler"),
)
MASKED_TOKENS = (
    *linear("token_transform", "predictions.dense"),
    *norm("token_norm", "predictions.LayerNorm"),
    Entry("token_logits/bias", "predictions.bias"),
)
ORDER = linear("next_sentence_logits", "sop_classifier.classifier")


def build(config, **changes):
    """A `Bert` with the sizes of a config; see `Family`."""
    config.refuse_other(inner_group_num=1)
    fields = {
        **bert.fields_of(config),
        "embedding_dim": config["embedding_size"],
        "num_blocks": config["num_hidden_groups"],
    }
    return Bert(**{**fields, **changes})


def describe(model):
    """The config of a `Bert` with narrow embeddings; see `Family`."""
    config = bert.described(model, shared=True, positions="all")
    if config is None or model.embedding_dim is None:
        return None
    sizes = {
        "embedding_size": model.embedding_dim,
        "num_hidden_groups": model.num_blocks,
        "inner_group_num": 1,
    }
    return {**config, **sizes}


FAMILY = Family(
    model_types=("albert",),
    build=build,
    entries=ENTRIES,
    tasks={
        "backbone": Task(("AlbertModel",), changes=bert.TANH),
        "pretraining": Task(
            ("AlbertForPreTraining",),
            prefix="albert.",
            entries=(*MASKED_TOKENS, *ORDER),
            build=lambda backbone, config, _: bert.masked_tokens(
                backbone, config, True
            ),
            changes=bert.TANH,
            fits=bert.has_own_activation,
        ),
        "masked_tokens": Task(
            ("AlbertForMaskedLM",),
            prefix="albert.",
            entries=MASKED_TOKENS,
            build=lambda backbone, config, _: bert.masked_tokens(backbone, config),
            changes={"pooler_activation": None},
            fits=bert.has_own_activation,
        ),
        "classification": Task(
            ("AlbertForSequenceClassification",),
            prefix="albert.",
            entries=linear("logits", "classifier"),
            build=bert.classification,
            changes=bert.TANH,
        ),
    },
    describe=describe,
    optional=("pooler/.*",),
    redundant=(*bert.BUFFERS, r"predictions\.decoder\.(weight|bias)"),
)
