"""BERT checkpoints: names, layouts and config fields."""

from keras_tfm.checkpoints.decoders import essence
from keras_tfm.checkpoints.family import Family, Task, activation_name
from keras_tfm.checkpoints.weight_map import Entry, linear, norm
from keras_tfm.layers import FeedForward
from keras_tfm.models import Bert, BertPretrainer, classifier
from keras_tfm.models.inputs import plain_attention, plain_feed_forward

EMBEDDINGS = (
    Entry("token_embedding/embeddings", "embeddings.word_embeddings.weight"),
    Entry("segment_embedding/embeddings", "embeddings.token_type_embeddings.weight"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
)
POSITIONS = Entry("position_embedding/table", "embeddings.position_embeddings.weight")
BLOCK, LAYER = "block_{i}", "encoder.layer.{i}"
BLOCKS = (
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
)
POOLER = linear("pooler", "pooler.dense")
MASKED_TOKENS = (
    *linear("token_transform", "cls.predictions.transform.dense"),
    *norm("token_norm", "cls.predictions.transform.LayerNorm"),
    Entry("token_logits/bias", "cls.predictions.bias"),
)
NEXT_SENTENCE = linear("next_sentence_logits", "cls.seq_relationship")
TANH = {"pooler_activation": "tanh"}
BUFFERS = (r"embeddings\.(position|token_type)_ids",)


def fields_of(config):
    """The arguments of `Bert` that BERT and its kin name alike.

    Args:
        config: `Config`.
    """
    config.refuse_other(position_embedding_type="absolute", is_decoder=False)
    return {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "hidden_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "max_sequence_length": config["max_position_embeddings"],
        "num_segments": config["type_vocab_size"],
        "activation": config.activation("hidden_act"),
        "norm_epsilon": config["layer_norm_eps"],
        **attention_fields(
            config["num_attention_heads"],
            config["hidden_dropout_prob"],
            config["attention_probs_dropout_prob"],
        ),
    }


def attention_fields(num_heads, dropout, attention_dropout):
    """The arguments of `Bert` about attention; a value only where it must be.

    Args:
        num_heads: int.
        dropout: float, of the hidden states.
        attention_dropout: float, of the attention weights.
    """
    fields = {"num_heads": num_heads, "dropout": dropout}
    if attention_dropout != dropout:
        fields["attention"] = plain_attention(num_heads, attention_dropout)
    return fields


def masked_tokens(backbone, config, next_sentence=False, activation=None):
    """A `BertPretrainer`; its head is tied to the embedding.

    Args:
        backbone: a `Bert`.
        config: `Config`.
        next_sentence: bool.
        activation: of the head, the backbone's unless given.
    """
    config.refuse_other(tie_word_embeddings=True)
    return BertPretrainer(backbone, next_sentence, activation)


def classification(backbone, config, num_classes):
    """A classifier with the classes of a config unless given; see `Task`."""
    return classifier(backbone, num_classes or config.num_classes())


def build(config, **changes):
    """A `Bert` with the sizes of a config; see `Family`."""
    return Bert(**{**fields_of(config), **changes})


def describe(model):
    """The config of a `Bert`; see `Family`."""
    return described(model, positions="all", embedding_dim=None)


def described(model, shared=False, segmented=True, **wiring):
    """The config of a `Bert` that is wired in one way, in words of BERT and its kin.

    Args:
        model: anything.
        shared: bool, whether blocks may be run several times.
        segmented: bool, whether there are segments.
        **wiring: arguments of `Bert` and their values.

    Returns: dict, or None if the model is wired otherwise or has values that BERT
        does not know.
    """
    if not isinstance(model, Bert):
        return None
    config = model.get_config()
    attention_dropout = _attention_dropout(model)
    if (
        any(config[name] != value for name, value in wiring.items())
        or (model.num_blocks < model.num_layers and not shared)
        or bool(model.num_segments) != segmented
        or attention_dropout is None
    ):
        return None
    return {
        "vocab_size": model.vocabulary_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "hidden_size": model.hidden_dim,
        "intermediate_size": model.intermediate_dim,
        "max_position_embeddings": model.max_sequence_length,
        "type_vocab_size": model.num_segments,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": attention_dropout,
        "hidden_act": activation_name(model.blocks[0].feed_forward.activation),
        "layer_norm_eps": model.norm_epsilon,
        "pad_token_id": 0,
    }


def _attention_dropout(model):
    """Rate on the attention weights, None if the blocks hold not BERT's values."""
    first = model.blocks[0]
    rate = getattr(first.attention, "attention_dropout", None)
    if rate is None or type(first.feed_forward) is not FeedForward:
        return None
    attention = essence(plain_attention(model.num_heads, rate))
    activation = first.feed_forward.activation
    feed_forward = essence(plain_feed_forward(model.intermediate_dim, activation))
    for block in model.blocks:
        found = [essence(block.attention), essence(block.feed_forward)]
        if found != [attention, feed_forward]:
            return None
    return rate


def has_own_activation(model):
    """Whether a head has the activation of its backbone."""
    own = model.backbone.get_config()["activation"]
    return model.activation in (None, own)


def has_gelu(model):
    """Whether a head has the exact GELU."""
    return (model.activation or model.backbone.get_config()["activation"]) == "gelu"


FAMILY = Family(
    model_types=("bert",),
    build=build,
    entries=(*EMBEDDINGS, POSITIONS, *BLOCKS, *POOLER),
    tasks={
        "backbone": Task(("BertModel",), changes=TANH),
        "pretraining": Task(
            ("BertForPreTraining",),
            prefix="bert.",
            entries=(*MASKED_TOKENS, *NEXT_SENTENCE),
            build=lambda backbone, config, _: masked_tokens(backbone, config, True),
            changes=TANH,
            fits=has_own_activation,
        ),
        "masked_tokens": Task(
            ("BertForMaskedLM",),
            prefix="bert.",
            entries=MASKED_TOKENS,
            build=lambda backbone, config, _: masked_tokens(backbone, config),
            changes={"pooler_activation": None},
            fits=has_own_activation,
        ),
        "classification": Task(
            ("BertForSequenceClassification",),
            prefix="bert.",
            entries=linear("logits", "classifier"),
            build=classification,
            changes=TANH,
        ),
    },
    describe=describe,
    optional=("pooler/.*",),  # masked-token checkpoints come without it
    redundant=(*BUFFERS, r"cls\.predictions\.decoder\.(weight|bias)"),
)
