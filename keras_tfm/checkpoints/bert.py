"""BERT checkpoints: names, layouts and config fields."""

from keras_tfm.checkpoints.family import Family, Task, activation_name
from keras_tfm.checkpoints.weight_map import Entry, linear, norm
from keras_tfm.models import Bert, BertPretrainer, classifier

BLOCK, LAYER = "block_{i}", "encoder.layer.{i}"
ENTRIES = (
    Entry("token_embedding/embeddings", "embeddings.word_embeddings.weight"),
    Entry("segment_embedding/embeddings", "embeddings.token_type_embeddings.weight"),
    Entry("position_embedding/table", "embeddings.position_embeddings.weight"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *linear(f"{BLOCK}/attention/query", f"{LAYER}.attention.self.query"),
    *linear(f"{BLOCK}/attention/key", f"{LAYER}.attention.self.key"),
    *linear(f"{BLOCK}/attention/value", f"{LAYER}.attention.self.value"),
    *linear(f"{BLOCK}/attention/output", f"{LAYER}.attention.output.dense"),
    *norm(
        f"{BLOCK}/attention_residual/norm_after", f"{LAYER}.attention.output.LayerNorm"
    ),
    *linear(f"{BLOCK}/feed_forward/up", f"{LAYER}.intermediate.dense"),
    *linear(f"{BLOCK}/feed_forward/down", f"{LAYER}.output.dense"),
    *norm(f"{BLOCK}/feed_forward_residual/norm_after", f"{LAYER}.output.LayerNorm"),
    *linear("pooler", "pooler.dense"),
)
PRETRAINING = (
    *linear("token_transform", "cls.predictions.transform.dense"),
    *norm("token_norm", "cls.predictions.transform.LayerNorm"),
    Entry("token_logits/bias", "cls.predictions.bias"),
    *linear("next_sentence_logits", "cls.seq_relationship"),
)


def build(config, **changes):
    """A `Bert` with the sizes of a config; see `Family`."""
    fields = {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "max_sequence_length": config["max_position_embeddings"],
        "num_segments": config["type_vocab_size"],
        "dropout": config["hidden_dropout_prob"],
        "activation": config.activation("hidden_act"),
        "norm_epsilon": config["layer_norm_eps"],
    }
    return Bert(**{**fields, **changes})


def describe(model):
    """The config of a `Bert`; see `Family`."""
    if not isinstance(model, Bert):
        return None
    config = model.get_config()
    if config["attention"] is not None or config["feed_forward"] is not None:
        return None  # other values than BERT's own
    return {
        "vocab_size": model.vocabulary_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "hidden_size": model.hidden_dim,
        "intermediate_size": model.intermediate_dim,
        "max_position_embeddings": model.max_sequence_length,
        "type_vocab_size": model.num_segments,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.dropout,
        "hidden_act": activation_name(model.blocks[0].feed_forward.activation),
        "layer_norm_eps": model.norm_epsilon,
        "pad_token_id": 0,
    }


FAMILY = Family(
    model_types=("bert",),
    build=build,
    entries=ENTRIES,
    tasks={
        "backbone": Task(("BertModel",)),
        "pretraining": Task(
            ("BertForPreTraining", "BertForMaskedLM"),
            prefix="bert.",
            entries=PRETRAINING,
            build=lambda backbone, config, num_classes: BertPretrainer(backbone),
        ),
        "classification": Task(
            ("BertForSequenceClassification",),
            prefix="bert.",
            entries=linear("logits", "classifier"),
            build=lambda backbone, config, num_classes: classifier(
                backbone, num_classes or config.num_classes()
            ),
        ),
    },
    describe=describe,
    optional=("pooler/.*",),  # masked-token checkpoints come without it
    redundant=(
        r"embeddings\.position_ids",
        r"cls\.predictions\.decoder\.(weight|bias)",
    ),
)
