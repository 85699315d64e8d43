"""Llama-style checkpoints: Llama 2 and 3, Mistral, Qwen2, SmolLM2.

One set of names; the config tells the rest: rotary positions, grouped keys, windows,
biases, a head of its own or the embedding matrix.
"""

from keras_tfm.checkpoints.decoders import one_or_each, same_values
from keras_tfm.checkpoints.family import Family, Task, activation_name
from keras_tfm.checkpoints.rotary_config import rotary_fields, rotary_of
from keras_tfm.checkpoints.weight_map import LINEAR, Entry, linear
from keras_tfm.layers import GatedFeedForward, MultiHeadAttention
from keras_tfm.models import GPT

BLOCK, LAYER = "block_{i}", "layers.{i}"
ENTRIES = (
    Entry("token_embedding/embeddings", "embed_tokens.weight"),
    Entry(
        f"{BLOCK}/attention_residual/norm_before/scale",
        f"{LAYER}.input_layernorm.weight",
    ),
    *linear(f"{BLOCK}/attention/query", f"{LAYER}.self_attn.q_proj"),
    *linear(f"{BLOCK}/attention/key", f"{LAYER}.self_attn.k_proj"),
    *linear(f"{BLOCK}/attention/value", f"{LAYER}.self_attn.v_proj"),
    *linear(f"{BLOCK}/attention/output", f"{LAYER}.self_attn.o_proj"),
    Entry(
        f"{BLOCK}/feed_forward_residual/norm_before/scale",
        f"{LAYER}.post_attention_layernorm.weight",
    ),
    *linear(f"{BLOCK}/feed_forward/gate", f"{LAYER}.mlp.gate_proj"),
    *linear(f"{BLOCK}/feed_forward/up", f"{LAYER}.mlp.up_proj"),
    *linear(f"{BLOCK}/feed_forward/down", f"{LAYER}.mlp.down_proj"),
    Entry("final_norm/scale", "norm.weight"),
)
HEAD = (Entry("output_head/kernel", "lm_head.weight", LINEAR),)
# The reference class of each `model_type`.
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}


def windows_of(config):
    """The window of every layer, None where it sees all that came before.

    Args:
        config: `Config`.
    """
    count, kind = config["num_hidden_layers"], config["model_type"]
    window = config.get("sliding_window") if kind in ("mistral", "qwen2") else None
    if kind == "mistral" or window is None:
        return [window] * count
    if not config["use_sliding_window"]:
        return [None] * count
    if config.get("layer_types"):
        return [window if "sliding" in t else None for t in config["layer_types"]]
    full = config["max_window_layers"]
    return [None if i < full else window for i in range(count)]


def _attention(config, window):
    """The attention of one layer. Files older than a field leave it out."""
    heads, qwen = config["num_attention_heads"], config["model_type"] == "qwen2"
    return MultiHeadAttention(
        heads,
        key_dim=config.get("head_dim") or config["hidden_size"] // heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        rotary=rotary_of(config),
        window=window,
        use_bias=qwen or bool(config.get("attention_bias")),
        use_output_bias=False if qwen else None,
        attention_dropout=config.get("attention_dropout") or 0.0,
    )


def _parts(config, activation):
    """The attention and the feed-forward of the blocks."""
    windows = windows_of(config)
    return {
        "attention": one_or_each([_attention(config, window) for window in windows]),
        "feed_forward": GatedFeedForward(
            config["intermediate_size"],
            activation=activation,
            use_bias=bool(config.get("mlp_bias")),
        ),
    }


def build(config, **changes):
    """A `GPT` with the sizes of a config; see `Family`."""
    fields = {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "hidden_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "max_sequence_length": config["max_position_embeddings"],
        "position": None,
        "norm": "rms",
        "norm_epsilon": config["rms_norm_eps"],
        # Files leave it out where it is False, as in the reference.
        "tie_embeddings": bool(config.get("tie_word_embeddings")),
        **_parts(config, config.activation("hidden_act")),
    }
    return GPT(**{**fields, **changes})


def describe(model):
    """The config of a `GPT` of Llama's kind; see `Family`."""
    if not isinstance(model, GPT) or (model.position, model.norm) != (None, "rms"):
        return None
    first = model.blocks[0]
    attention, feed_forward = first.attention, first.feed_forward
    rotary = getattr(attention, "rotary", None)
    activation = getattr(feed_forward, "activation", None)
    if rotary is None or activation_name(activation) is None:
        return None
    heads = model.num_heads
    config = {
        "vocab_size": model.vocabulary_size,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": attention.num_key_value_heads or heads,
        "hidden_size": model.hidden_dim,
        "head_dim": attention.key_dim or model.hidden_dim // heads,
        "intermediate_size": getattr(feed_forward, "intermediate_dim", None),
        "max_position_embeddings": model.max_sequence_length,
        "hidden_act": activation_name(activation),
        "rms_norm_eps": model.norm_epsilon,
        "tie_word_embeddings": model.tie_embeddings,
        "attention_dropout": attention.attention_dropout,
        **rotary_fields(rotary),
        **_kind(model, attention, feed_forward),
    }
    if not same_values(model, *_parts(config, activation).values()):
        return None
    return {**config, "architectures": [ARCHITECTURES[config["model_type"]]]}


def _kind(model, attention, feed_forward):
    """The `model_type` that a model can be written as, with the fields of its own."""
    windows = [getattr(block.attention, "window", None) for block in model.blocks]
    window = next((w for w in windows if w is not None), None)
    if attention.use_bias and attention.use_output_bias is False:
        return {
            "model_type": "qwen2",
            "use_sliding_window": window is not None,
            "sliding_window": window,
            "max_window_layers": windows.index(window) if window else len(windows),
        }
    if window is not None:
        return {"model_type": "mistral", "sliding_window": window}
    biases = {"attention_bias": attention.use_bias, "mlp_bias": feed_forward.use_bias}
    return {"model_type": "llama", **biases}


FAMILY = Family(
    model_types=tuple(ARCHITECTURES),
    build=build,
    entries=ENTRIES,
    tasks={
        "backbone": Task(
            (*ARCHITECTURES.values(), "LlamaModel", "MistralModel", "Qwen2Model"),
            prefix="model.",
            entries=HEAD,
        ),
    },
    describe=describe,
    optional=("output_head/.*",),  # the reference's backbone comes without it
    redundant=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq", r"lm_head\.weight"),
)
