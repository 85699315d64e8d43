"""Reading GGUF files: one file holds config, arrays and tokenizer.

Config and names are turned into those of the reference library, so that one family
map serves both. Letters: N heads, H width of a head, D width of the model.
"""

import re
import tempfile

import numpy as np

from keras_tfm.checkpoints.arrays import Arrays
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.family import Config

# Kinds of numbers that are read: plain ones, and blocks with scales of their own.
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K")
NAMES = {  # the file's, without ".weight" or ".bias": the reference library's
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
FREQUENCIES = "rope_freqs.weight"  # what Llama 3 divides its frequencies by, a pair
HEADER = 2**28  # bytes that hold the header of any file, vocabulary and all
ERRORS = (OSError, ValueError, LookupError, TypeError, OverflowError)


def read_gguf(path):
    """Config and arrays of a GGUF file.

    Args:
        path: `pathlib.Path`.

    Returns: pair of `Config` and `Arrays`, in the spelling of the reference library.

    Raises:
        CheckpointError: a file that is cut or something else, an architecture or a
            kind of numbers that is not known.
    """
    tensors, fields = _open(path)
    for name, tensor in tensors.items():
        if tensor.tensor_type.name not in KINDS:
            raise CheckpointError(
                f"{path}: {name} is quantized as {tensor.tensor_type.name}; read are "
                f"{', '.join(KINDS)}."
            )
    config = Config(_config(path, tensors, fields), str(path))
    paired = fields["general.architecture"] == "llama"
    heads = {
        "self_attn.q_proj": config["num_attention_heads"],
        "self_attn.k_proj": config["num_key_value_heads"],
    }
    owner = {_rename(name): t for name, t in tensors.items() if name != FREQUENCIES}

    def read(name):
        array = _numbers(owner[name])
        rows = [count for part, count in heads.items() if part in name]
        return _half_split(array, rows[0]) if rows and paired else array

    shapes = {n: tuple(int(x) for x in t.shape[::-1]) for n, t in owner.items()}
    return config, Arrays(shapes, read)


def open_gguf(path):
    """A `gguf.GGUFReader` of a whole file; CheckpointError for any other."""
    import gguf

    try:
        return gguf.GGUFReader(path)
    except ERRORS as error:
        raise CheckpointError(
            f"{path} is not a whole GGUF file: {_what_is_wrong(path)}."
        ) from error


def _open(path):
    """Arrays and fields of a file, by name."""
    reader = open_gguf(path)
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("tokenizer.")
    }
    return {tensor.name: tensor for tensor in reader.tensors}, fields


def _what_is_wrong(path):
    """Why a file cannot be read: which of its arrays is cut, if the header tells.

    The header is read again, from a copy that goes on with (unwritten) zeros.
    """
    import gguf

    with path.open("rb") as file:
        start = file.read(HEADER)
    if not start.startswith(b"GGUF"):
        return "it does not begin with GGUF"
    try:
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(start)
            copy.truncate(2**40)
            copy.flush()
            tensors = gguf.GGUFReader(copy.name).tensors
        ends = [(t.data_offset + t.n_bytes, t.name) for t in tensors]
    except ERRORS:
        return "its header is cut"
    cut = sorted(pair for pair in ends if pair[0] > path.stat().st_size)
    return f"it ends within {cut[0][1]}" if cut else "it contradicts itself"


def _numbers(tensor):
    """The float32 values of an array, in its own shape."""
    import gguf

    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def _rename(name):
    """The reference library's name of an array, or the same if it has none."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if not match or match.group(2) not in NAMES:
        return name
    layer, part, kind = match.groups()
    prefix = "" if layer is None else f"model.layers.{layer}."
    return f"{prefix}{NAMES[part]}.{kind}"


def _half_split(array, heads):
    """Rows of a head in pairs, as this architecture's file keeps them -> in halves.

    Args:
        array: (N H, D) or (N H,).
        heads: int N.
    """
    pairs = array.reshape(heads, len(array) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(array.shape)


def _config(path, tensors, fields):
    """The fields of a `config.json` that says the same."""
    kind = fields.get("general.architecture")
    if kind not in ("llama", "qwen2"):
        raise CheckpointError(
            f"{path} is a {kind!r}; GGUF files are read of llama and qwen2."
        )

    if "token_embd.weight" not in tensors:
        raise CheckpointError(f"{path} has no token_embd.weight.")

    def get(name, default=None):
        value = fields.get(f"{kind}.{name}", default)
        if value is None:
            raise CheckpointError(f"{path} has no `{kind}.{name}`.")
        return value

    heads, width = get("attention.head_count"), get("embedding_length")
    window = get("attention.sliding_window", 0)
    return {
        "model_type": "mistral" if window and kind == "llama" else kind,
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "hidden_size": width,
        "head_dim": get("attention.key_length", width // heads),
        "intermediate_size": get("feed_forward_length"),
        "max_position_embeddings": get("context_length"),
        "hidden_act": "silu",  # the only one of these architectures
        "rms_norm_eps": _short(get("attention.layer_norm_rms_epsilon")),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "sliding_window": window or None,
        "use_sliding_window": False,
        "rope_theta": _short(get("rope.freq_base", 10000.0)),
        "rope_scaling": _scaling(path, tensors, get),
    }


def _scaling(path, tensors, get):
    """How rotary positions are stretched, None if they are not."""
    if FREQUENCIES in tensors:
        divisors = _numbers(tensors[FREQUENCIES]).tolist()
        return {
            "rope_type": "longrope",
            "short_factor": divisors,
            "long_factor": divisors,
            "original_max_position_embeddings": get("context_length"),
            "attention_factor": 1.0,
        }
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise CheckpointError(f"{path} scales its rotary positions by {kind!r}.")
    scaling = {"rope_type": kind, "factor": get("rope.scaling.factor")}
    if kind == "yarn":
        original = get("rope.scaling.original_context_length")
        scaling["original_max_position_embeddings"] = original
    return scaling


def _short(number):
    """A float32 number as it was once written: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(number)))
