"""GGUF files: kinds of numbers, names and rows turned back, files cut or foreign."""

import gguf
import numpy as np
import pytest

from keras_tfm import checkpoints
from keras_tfm.checkpoints.gguf_arrays import read_gguf
from keras_tfm.layers.rotary_scaling import rotary_frequencies
from tests.test_pretrained_decoders import arrays_of, config_of, golden

NAMES = {
    "embed_tokens": "token_embd",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "model.": "",
}


def interleave(array, heads):
    """Rows of a head in halves -> in pairs, as converters to GGUF write them."""
    halves = array.reshape(heads, 2, len(array) // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(array.shape)


def start(path, kind, config):
    """A writer with the fields of a config."""
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b"])
    return writer


def finish(writer):
    """Write what the writer was given."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(path, name):
    """A golden checkpoint as a GGUF file."""
    config = config_of(name)
    kind, rope = config["model_type"], config["rope_parameters"]
    writer = start(path, kind, config)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "llama3":
        width, base = config["head_dim"], rope["rope_theta"]
        scaling = {**rope, "type": "llama3"}
        slowed = rotary_frequencies(width, base, scaling)
        divisors = rotary_frequencies(width, base) / slowed
        writer.add_tensor("rope_freqs.weight", divisors.astype("float32"))
    for theirs, array in arrays_of(name).items():
        for old, new in NAMES.items():
            theirs = theirs.replace(old, new)
        heads = {"attn_q.": "num_attention_heads", "attn_k.": "num_key_value_heads"}
        for part, field in heads.items():
            if part in theirs and kind == "llama":
                array = interleave(array, config[field])
        writer.add_tensor(theirs, np.ascontiguousarray(array))
    finish(writer)
    return path


@pytest.mark.parametrize("name", ["llama2", "llama3", "qwen2"])
def test_logits(name, tmp_path):
    path = write(tmp_path / "model.gguf", name)
    ids, expected = (golden()[f"{name}/{key}"] for key in ("ids", "logits/whole"))
    for source in (path, tmp_path):  # the file, and the folder with nothing else
        model = checkpoints.load_pretrained(source)
        np.testing.assert_allclose(model(ids), expected, atol=1e-4)
    report = checkpoints.pretrained_report(path)
    assert not report.missing and not report.unused
    checkpoints.save_pretrained(model, tmp_path / "back")
    back = checkpoints.load_pretrained(tmp_path / "back")
    np.testing.assert_array_equal(back(ids), model(ids))


def test_config(tmp_path):
    """Numbers come as they were written, biases and scaling too."""
    # Of its biases, those of the feed-forward have no name in such a file.
    path = write(tmp_path / "model.gguf", "llama3")
    config, arrays = read_gguf(path)
    assert config["rms_norm_eps"] == 1e-5 and config["rope_theta"] == 500.0
    assert config["tie_word_embeddings"] and not config["attention_bias"]
    assert arrays.shape_of("model.layers.1.mlp.down_proj.weight") == (24, 28)
    other = write(tmp_path / "linear.gguf", "llama_biases")
    config, arrays = read_gguf(other)
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 3.0}
    assert config["attention_bias"]
    name = "model.layers.0.self_attn.k_proj.bias"
    np.testing.assert_array_equal(arrays[name], arrays_of("llama_biases")[name])


def q4_k(block):
    """256 numbers of one block of 144 bytes, by the format's description."""
    d, d_min = block[:4].view("float16").astype("float32")
    packed, low_high = block[4:16].astype(int), block[16:].reshape(4, 32).astype(int)
    values = []
    for j in range(8):
        if j < 4:
            scale, least = packed[j] & 63, packed[j + 4] & 63
        else:
            scale = packed[j + 4] & 15 | packed[j - 4] >> 6 << 4
            least = packed[j + 4] >> 4 | packed[j] >> 6 << 4
        digits = low_high[j // 2] >> 4 * (j % 2) & 15
        values.append(d * scale * digits - d_min * least)
    return np.concatenate(values)


def q6_k(block):
    """256 numbers of one block of 210 bytes, by the format's description."""
    low, high = block[:128].reshape(2, 2, 32).astype(int), block[128:192]
    high, scales = high.reshape(2, 32).astype(int), block[192:208].view("int8")
    values = []
    for half in range(2):
        for j in range(4):
            digits = low[half, j % 2] >> 4 * (j // 2) & 15
            digits |= (high[half] >> 2 * j & 3) << 4
            scale = np.repeat(scales[8 * half + 2 * j :][:2].astype(int), 16)
            values.append(scale * (digits - 32))
    return block[208:].view("float16").astype("float32") * np.concatenate(values)


BLOCKS = {"Q4_K": (q4_k, 144, (0, 2)), "Q6_K": (q6_k, 210, (208,))}


def random_blocks(kind):
    """Bytes of 3 x 2 blocks, and the numbers they stand for."""
    formula, size, halves = BLOCKS[kind]
    draw = np.random.default_rng(0)
    blocks = draw.integers(0, 256, (6, size), "uint8")
    for place in halves:  # numbers that are finite
        scale = draw.uniform(-1, 1, (6, 1)).astype("float16")
        blocks[:, place : place + 2] = scale.view("uint8")
    numbers = np.stack([formula(block) for block in blocks])
    return blocks.reshape(3, 2 * size), numbers.reshape(3, 512)


def write_one(path, kind, data, raw_shape=None):
    """A file with the arrays of `kind` that a config needs, and one of `data`."""
    writer = start(path, "llama", config_of("llama2"))
    writer.add_tensor("token_embd.weight", np.zeros((37, 24), "float32"))
    kind = getattr(gguf.GGMLQuantizationType, kind)
    writer.add_tensor("blk.0.ffn_up.weight", data, raw_dtype=kind)
    finish(writer)
    return path


@pytest.mark.parametrize(
    "kind, step",
    [
        *(("F32", 0), ("F16", 1e-3), ("BF16", 8e-3)),
        *(("Q8_0", 1 / 127), ("Q4_0", 1 / 8), ("Q4_1", 2 / 15)),
    ],
)
def test_kinds_of_numbers(kind, step, tmp_path):
    numbers = np.random.default_rng(0).uniform(-1, 1, (3, 64)).astype("float32")
    packed = gguf.quants.quantize(numbers, getattr(gguf.GGMLQuantizationType, kind))
    _, arrays = read_gguf(write_one(tmp_path / "one.gguf", kind, packed))
    name = "model.layers.0.mlp.up_proj.weight"
    assert arrays.shape_of(name) == (3, 64)
    assert arrays[name].dtype == "float32"
    assert abs(arrays[name] - numbers).max() <= 1.01 * step


@pytest.mark.parametrize("kind", BLOCKS)
def test_kinds_of_numbers_in_large_blocks(kind, tmp_path):
    data, numbers = random_blocks(kind)
    _, arrays = read_gguf(write_one(tmp_path / "one.gguf", kind, data))
    name = "model.layers.0.mlp.up_proj.weight"
    assert arrays.shape_of(name) == (3, 512)
    np.testing.assert_allclose(arrays[name], numbers, rtol=1e-5, atol=1e-5)


def test_an_unsupported_kind_names_file_and_array(tmp_path):
    path = write_one(tmp_path / "one.gguf", "IQ1_S", np.zeros((3, 50), "uint8"))
    message = r"one.gguf: blk.0.ffn_up.weight is quantized as IQ1_S; read are F32"
    with pytest.raises(checkpoints.CheckpointError, match=message):
        checkpoints.load_pretrained(path)


def test_files_that_cannot_be_read(tmp_path):
    path = write(tmp_path / "model.gguf", "llama2")
    whole = path.read_bytes()
    for content, message in (
        (
            whole[:-400],
            "model.gguf is not a whole GGUF file: it ends within blk.1.attn_v.weight",
        ),
        (whole[:300], "its header is cut"),
        (b"GGML" + whole[4:], "does not begin with GGUF"),
        (b"", "is not a whole GGUF file"),
    ):
        path.write_bytes(content)
        with pytest.raises(checkpoints.CheckpointError, match=message):
            checkpoints.load_pretrained(path)


def test_an_unknown_architecture(tmp_path):
    finish(start(tmp_path / "one.gguf", "falcon", config_of("llama2")))
    with pytest.raises(checkpoints.CheckpointError, match="one.gguf is a 'falcon'"):
        checkpoints.load_pretrained(tmp_path / "one.gguf")
