"""What encoder-decoder checkpoints have in common: names of the blocks, fields."""

from keras_tfm.checkpoints.decoders import essence
from keras_tfm.checkpoints.family import activation_name
from keras_tfm.checkpoints.weight_map import Entry, linear, norm
from keras_tfm.layers import FeedForward, MultiHeadAttention
from keras_tfm.models import Seq2SeqTransformer

NORM = {"post": "norm_after", "pre": "norm_before"}
# Arrays of a tied model that repeat the embedding.
COPIES = (r"(encoder|decoder)\.embed_tokens\.weight", r"lm_head\.weight")


def block_entries(norm_position):
    """The entries of the blocks of both sides.

    Args:
        norm_position: "pre" or "post".
    """
    encoder = _block("encoder", norm_position, {"attention": "self_attn"})
    parts = {"attention": "self_attn", "cross_attention": "encoder_attn"}
    return (*encoder, *_block("decoder", norm_position, parts))


def _block(side, norm_position, attentions):
    ours, theirs = f"{side}_block_{{i}}", f"{side}.layers.{{i}}"
    where = NORM[norm_position]
    entries = [
        *norm(f"{ours}/feed_forward_residual/{where}", f"{theirs}.final_layer_norm"),
        *linear(f"{ours}/feed_forward/up", f"{theirs}.fc1"),
        *linear(f"{ours}/feed_forward/down", f"{theirs}.fc2"),
    ]
    for part, name in attentions.items():
        attention, layer = f"{ours}/{part}", f"{theirs}.{name}"
        entries += [
            *norm(f"{attention}_residual/{where}", f"{layer}_layer_norm"),
            *linear(f"{attention}/query", f"{layer}.q_proj"),
            *linear(f"{attention}/key", f"{layer}.k_proj"),
            *linear(f"{attention}/value", f"{layer}.v_proj"),
            *linear(f"{attention}/output", f"{layer}.out_proj"),
        ]
    return tuple(entries)


def embedding_entries(config):
    """The entries of the embeddings: one for both sides, or one a side, and the head.

    Args:
        config: dict, of the file.
    """
    names = ("shared", "shared")
    if not config.get("share_encoder_decoder_embeddings", True):
        names = ("encoder.embed_tokens", "decoder.embed_tokens")
    return (
        Entry("token_embedding/embeddings", f"{names[0]}.weight"),
        Entry("target_token_embedding/embeddings", f"{names[1]}.weight"),
        *linear("output_head", "lm_head"),
    )


def fields_of(config):
    """Constructor arguments of `Seq2SeqTransformer` that all families name alike.

    Args:
        config: `Config`.
    """
    same = (("attention_heads", "num_heads"), ("ffn_dim", "intermediate_dim"))
    for name, _ in same:
        config.refuse_other(**{f"decoder_{name}": config[f"encoder_{name}"]})
    activation = config.activation("activation_function")
    fields = {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["encoder_layers"],
        "num_decoder_layers": config["decoder_layers"],
        "hidden_dim": config["d_model"],
        "max_sequence_length": config["max_position_embeddings"],
        "dropout": config["dropout"],
        "activation": activation,
        "pad_token_id": config["pad_token_id"],
        "scale_embedding": config["scale_embedding"],
        "tie_embeddings": config.get("tie_word_embeddings", True),
        "logits_bias": True,
        **{ours: config[f"encoder_{name}"] for name, ours in same},
    }
    inner = config["activation_dropout"], config["attention_dropout"]
    if any(inner):  # rates of their own: values of their own
        fields |= dict(zip(("feed_forward", "attention"), _values(fields, *inner)))
    if not config.get("share_encoder_decoder_embeddings", True):
        fields["target_vocabulary_size"] = config["decoder_vocab_size"]
    return fields


def _values(fields, inner_dropout, attention_dropout):
    """The feed-forward and the attention of every block."""
    return (
        FeedForward(
            fields["intermediate_dim"],
            activation=fields["activation"],
            dropout=inner_dropout,
        ),
        MultiHeadAttention(fields["num_heads"], attention_dropout=attention_dropout),
    )


def _has_everywhere(model, feed_forward, attention):
    """Whether all blocks of both sides hold these values."""
    blocks = [*model.encoder_blocks, *model.decoder_blocks]
    attentions = [block.attention for block in blocks]
    attentions += [block.cross_attention for block in model.decoder_blocks]
    return all(essence(a) == essence(attention) for a in attentions) and all(
        essence(block.feed_forward) == essence(feed_forward) for block in blocks
    )


def describe(model):
    """The fields of a `Seq2SeqTransformer` that all families name alike, or None.

    Args:
        model: any model.
    """
    if not isinstance(model, Seq2SeqTransformer):
        return None
    ours, first = model.get_config(), model.encoder_blocks[0]
    activation = activation_name(getattr(first.feed_forward, "activation", None))
    rates = (
        getattr(first.feed_forward, "dropout", 0.0),
        getattr(first.attention, "attention_dropout", 0.0),
    )
    if activation is None or ours["norm_epsilon"] != 1e-5:
        return None
    if not ours["logits_bias"] or not ours["tie_embeddings"]:
        return None
    fields = {**ours, "activation": first.feed_forward.activation}
    if not _has_everywhere(model, *_values(fields, *rates)):
        return None
    layers = ours["num_layers"], ours["num_decoder_layers"] or ours["num_layers"]
    config = {
        "vocab_size": model.vocabulary_size,
        "d_model": model.hidden_dim,
        "max_position_embeddings": model.max_sequence_length,
        "dropout": ours["dropout"],
        "activation_dropout": rates[0],
        "attention_dropout": rates[1],
        "activation_function": activation,
        "pad_token_id": model.pad_token_id,
        "scale_embedding": ours["scale_embedding"],
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
    }
    for side, count in zip(("encoder", "decoder"), layers):
        config[f"{side}_layers"] = count
        config[f"{side}_attention_heads"] = model.num_heads
        config[f"{side}_ffn_dim"] = model.intermediate_dim
    return config
