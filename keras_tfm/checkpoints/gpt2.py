"""GPT-2 checkpoints: names, layouts and config fields.

Queries, keys and values lie in one array, and matrices as (in, out), as in a layer of
ours and unlike the other families.
"""

from keras_tfm.checkpoints.decoders import same_values
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.family import Family, Task, activation_name
from keras_tfm.checkpoints.weight_map import Entry, norm, part_of
from keras_tfm.layers import FeedForward, MultiHeadAttention
from keras_tfm.models import GPT

BLOCK, LAYER = "block_{i}", "h.{i}"


def _conv(ours, theirs):
    """The entries of a matrix that lies as (in, out), and its bias."""
    return (
        Entry(f"{ours}/kernel", f"{theirs}.weight"),
        Entry(f"{ours}/bias", f"{theirs}.bias"),
    )


def _third(name, index):
    """The entries of queries, keys or values: a third of the columns."""
    ours, theirs = f"{BLOCK}/attention/{name}", f"{LAYER}.attn.c_attn"
    return (
        Entry(f"{ours}/kernel", f"{theirs}.weight", part_of(index, 3, axis=1)),
        Entry(f"{ours}/bias", f"{theirs}.bias", part_of(index, 3)),
    )


ENTRIES = (
    Entry("token_embedding/embeddings", "wte.weight"),
    Entry("position_embedding/table", "wpe.weight"),
    *norm(f"{BLOCK}/attention_residual/norm_before", f"{LAYER}.ln_1"),
    *_third("query", 0),
    *_third("key", 1),
    *_third("value", 2),
    *_conv(f"{BLOCK}/attention/output", f"{LAYER}.attn.c_proj"),
    *norm(f"{BLOCK}/feed_forward_residual/norm_before", f"{LAYER}.ln_2"),
    *_conv(f"{BLOCK}/feed_forward/up", f"{LAYER}.mlp.c_fc"),
    *_conv(f"{BLOCK}/feed_forward/down", f"{LAYER}.mlp.c_proj"),
    *norm("final_norm", "ln_f"),
)
# Variants of the attention that are not built here: field, the value that is.
PLAIN = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def _parts(config, activation):
    """The attention and the feed-forward of every block."""
    width = config["n_embd"]
    return {
        "attention": MultiHeadAttention(
            config["n_head"], attention_dropout=config["attn_pdrop"]
        ),
        "feed_forward": FeedForward(
            config.get("n_inner") or 4 * width, activation=activation
        ),
    }


def build(config, **changes):
    """A `GPT` with the sizes of a config; see `Family`."""
    other = [name for name, value in PLAIN.items() if config.get(name, value) != value]
    if other:
        raise CheckpointError(
            f"The config of {config.source} has `{other[0]}` {config[other[0]]}, "
            "which is not built here."
        )
    activation = config.activation("activation_function")
    parts = _parts(config, activation)
    fields = {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["n_layer"],
        "num_heads": config["n_head"],
        "hidden_dim": config["n_embd"],
        "intermediate_dim": parts["feed_forward"].intermediate_dim,
        "max_sequence_length": config["n_positions"],
        "dropout": config["resid_pdrop"],
        "activation": activation,
        "norm_epsilon": config["layer_norm_epsilon"],
        "attention": parts["attention"],
    }
    return GPT(**{**fields, **changes})


def describe(model):
    """The config of a `GPT` of GPT-2's kind; see `Family`."""
    if not isinstance(model, GPT):
        return None
    if (model.position, model.norm, model.tie_embeddings) != ("learned", "layer", True):
        return None
    first = model.blocks[0]
    activation = getattr(first.feed_forward, "activation", None)
    config = {
        "vocab_size": model.vocabulary_size,
        "n_layer": model.num_layers,
        "n_head": model.num_heads,
        "n_embd": model.hidden_dim,
        "n_inner": model.intermediate_dim,
        "n_positions": model.max_sequence_length,
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": getattr(first.attention, "attention_dropout", 0.0),
        "activation_function": activation_name(activation),
        "layer_norm_epsilon": model.norm_epsilon,
    }
    if config["activation_function"] is None:
        return None
    parts = _parts(config, activation)
    return config if same_values(model, *parts.values()) else None


FAMILY = Family(
    model_types=("gpt2",),
    build=build,
    entries=ENTRIES,
    tasks={
        "backbone": Task(("GPT2LMHeadModel", "GPT2Model"), prefix="transformer."),
    },
    describe=describe,
    redundant=(r"h\.\d+\.attn\.(bias|masked_bias)", r"lm_head\.weight"),
)
