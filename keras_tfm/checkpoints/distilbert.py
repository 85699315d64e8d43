"""DistilBERT checkpoints: no segments, no pooler, names of their own."""

from keras_tfm.checkpoints import bert
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.weight_map import Entry, linear, norm
from keras_tfm.models import Bert

BLOCK, LAYER = "block_{i}", "transformer.layer.{i}"
ENTRIES = (
    Entry("token_embedding/embeddings", "embeddings.word_embeddings.weight"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    bert.POSITIONS,
    *linear(f"{BLOCK}/attention/query", f"{LAYER}.attention.q_lin"),
    *linear(f"{BLOCK}/attention/key", f"{LAYER}.attention.k_lin"),
    *linear(f"{BLOCK}/attention/value", f"{LAYER}.attention.v_lin"),
    *linear(f"{BLOCK}/attention/output", f"{LAYER}.attention.out_lin"),
    *norm(f"{BLOCK}/attention_residual/norm_after", f"{LAYER}.sa_layer_norm"),
    *linear(f"{BLOCK}/feed_forward/up", f"{LAYER}.ffn.lin1"),
    *linear(f"{BLOCK}/feed_forward/down", f"{LAYER}.ffn.lin2"),
    *norm(f"{BLOCK}/feed_forward_residual/norm_after", f"{LAYER}.output_layer_norm"),
)
MASKED_TOKENS = (
    *linear("token_transform", "vocab_transform"),
    *norm("token_norm", "vocab_layer_norm"),
    Entry("token_logits/bias", "vocab_projector.bias"),
)
CLASSIFICATION = (
    *linear("pooler", "pre_classifier"),
    *linear("logits", "classifier"),
)
EPSILON = 1e-12  # of the architecture, in no config


def build(config, **changes):
    """A `Bert` with the sizes of a config; see `Family`."""
    fields = {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["n_layers"],
        "hidden_dim": config["dim"],
        "intermediate_dim": config["hidden_dim"],
        "max_sequence_length": config["max_position_embeddings"],
        "num_segments": 0,
        "activation": config.activation("activation"),
        "norm_epsilon": EPSILON,
        **bert.attention_fields(
            config["n_heads"], config["dropout"], config["attention_dropout"]
        ),
    }
    return Bert(**{**fields, **changes})


def describe(model):
    """The config of a `Bert` without segments; see `Family`."""
    wiring = {"positions": "all", "embedding_dim": None, "norm_epsilon": EPSILON}
    config = bert.described(model, segmented=False, **wiring)
    if config is None:
        return None
    return {
        "vocab_size": config["vocab_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "dim": config["hidden_size"],
        "hidden_dim": config["intermediate_size"],
        "max_position_embeddings": config["max_position_embeddings"],
        "dropout": config["hidden_dropout_prob"],
        "attention_dropout": config["attention_probs_dropout_prob"],
        "activation": config["hidden_act"],
        "pad_token_id": 0,
    }


FAMILY = Family(
    model_types=("distilbert",),
    build=build,
    entries=ENTRIES,
    tasks={
        "backbone": Task(("DistilBertModel",), changes={"pooler_activation": None}),
        "masked_tokens": Task(
            ("DistilBertForMaskedLM",),
            prefix="distilbert.",
            entries=MASKED_TOKENS,
            build=lambda backbone, config, _: bert.masked_tokens(backbone, config),
            changes={"pooler_activation": None},
            fits=bert.has_own_activation,
        ),
        "classification": Task(
            ("DistilBertForSequenceClassification",),
            prefix="distilbert.",
            entries=CLASSIFICATION,
            build=bert.classification,
            changes={"pooler_activation": "relu"},
        ),
    },
    describe=describe,
    optional=("pooler/.*",),
    redundant=(*bert.BUFFERS, r"vocab_projector\.weight"),
)
