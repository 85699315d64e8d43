"""GPT-2 and Llama-style checkpoints against the reference library's numbers."""

import functools
import json

import numpy as np
import pytest
from keras import ops

from keras_tfm import checkpoints, layers, models
from keras_tfm.checkpoints.safetensors_arrays import read_safetensors, write_safetensors
from tests import laws
from tests.sources import ROOT

CASES = (
    *("gpt2", "gpt2_backbone", "llama2", "llama3", "llama_biases"),
    *("mistral", "qwen2", "qwen2_window"),
)
cases = pytest.mark.parametrize("name", CASES)
ARCHITECTURES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}
ROTARY = layers.RotaryEmbedding()


@functools.cache
def golden():
    with np.load(ROOT / "tests" / "golden" / "pretrained" / "decoders.npz") as file:
        return dict(file)


def arrays_of(name):
    start = f"{name}/weights/"
    return {k.removeprefix(start): v for k, v in golden().items() if start in k}


def config_of(name):
    return json.loads(str(golden()[f"{name}/config"]))


def write(folder, name, arrays=None, **config):
    """A checkpoint folder as the reference library wrote it, perhaps changed."""
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", arrays or arrays_of(name))
    fields = {**config_of(name), **config}
    fields = {k: v for k, v in fields.items() if v is not ...}
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


@pytest.fixture
def loaded(tmp_path):
    return lambda name, **changes: checkpoints.load_pretrained(
        write(tmp_path / name, name), **changes
    )


@cases
def test_logits_at_every_padding(name, loaded):
    model, ids = loaded(name), golden()[f"{name}/ids"]
    for side in ("whole", "left", "right"):
        mask = golden()[f"{name}/mask/{side}"]
        logits = np.asarray(model({"token_ids": ids, "padding_mask": mask}))
        expected = golden()[f"{name}/logits/{side}"]
        np.testing.assert_allclose(logits[mask], expected[mask], atol=1e-4)


@cases
def test_cached_equals_full(name, loaded):
    model, ids = loaded(name), golden()[f"{name}/ids"]
    chunks = ([1] * 11, [5, 1, 5])
    full = golden()[f"{name}/logits/whole"]
    laws.cached_equals_full(model, ids, full, 13, chunks=chunks, atol=1e-4)


@cases
def test_round_trip(name, loaded, tmp_path):
    model = loaded(name)
    checkpoints.save_pretrained(model, tmp_path / "back")
    made = read_safetensors(tmp_path / "back" / "model.safetensors")
    prefix = "transformer." if name == "gpt2_backbone" else ""
    expected = arrays_of(name)
    assert {prefix + k: v.shape for k, v in expected.items()} == made.shapes
    for key, value in expected.items():
        np.testing.assert_array_equal(made[prefix + key], value)
    again = checkpoints.load_pretrained(tmp_path / "back")
    checkpoints.save_pretrained(again, tmp_path / "again")
    for file in ("config.json", "model.safetensors"):
        one, two = tmp_path / "back" / file, tmp_path / "again" / file
        assert one.read_bytes() == two.read_bytes()
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["model_type"] == config_of(name)["model_type"]
    assert config["architectures"] == [ARCHITECTURES[config["model_type"]]]
    report = checkpoints.pretrained_report(tmp_path / "back")
    assert not report.missing and not report.unused and not report.known


def test_a_gpt_made_here_is_written(tmp_path):
    sizes = {"num_layers": 3, "num_heads": 4, "hidden_dim": 8, "intermediate_dim": 12}
    plain = models.GPT(23, **sizes, max_sequence_length=7, activation="relu")
    rotary = models.GPT(
        23,
        **sizes,
        max_sequence_length=7,
        position=None,
        norm="rms",
        tie_embeddings=False,
        attention=layers.MultiHeadAttention(4, rotary=ROTARY, use_bias=False),
        feed_forward=layers.GatedFeedForward(9),
    )
    for model, kind in ((plain, "gpt2"), (rotary, "llama")):
        checkpoints.save_pretrained(model, tmp_path / kind)
        config = json.loads((tmp_path / kind / "config.json").read_text())
        assert config["model_type"] == kind
        back = checkpoints.load_pretrained(tmp_path / kind)
        for one, other in zip(model.weights, back.weights, strict=True):
            assert one.path == other.path
            np.testing.assert_array_equal(one, other)


OTHERS = {
    "alibi": layers.MultiHeadAttention(4, relative_bias=layers.AlibiBias(4)),
    "interleaved": layers.MultiHeadAttention(
        4, rotary=layers.RotaryEmbedding(layout="interleaved"), use_bias=False
    ),
    "capped": layers.MultiHeadAttention(
        4, rotary=ROTARY, logit_soft_cap=3.0, use_bias=False
    ),
    "biased windows": layers.MultiHeadAttention(4, rotary=ROTARY, window=3),
    "windows first": [
        layers.MultiHeadAttention(4, rotary=ROTARY, window=w, use_bias=False)
        for w in (3, None)
    ],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_gpt_of_no_family_is_refused(kind, tmp_path):
    model = models.GPT(
        23, 2, 4, 8, 12, 7, position=None, norm="rms", attention=OTHERS[kind],
        feed_forward=layers.GatedFeedForward(12),
    )  # fmt: skip
    with pytest.raises(checkpoints.CheckpointError, match="like none"):
        checkpoints.save_pretrained(model, tmp_path)


def test_buffers_and_tied_copies_are_redundant(tmp_path):  # FAULTS O56
    arrays = arrays_of("gpt2")
    arrays["transformer.h.0.attn.bias"] = np.ones((1, 1, 16, 16), "float32")
    arrays["transformer.h.1.attn.masked_bias"] = np.float32([-1e4])
    arrays["lm_head.weight"] = arrays["transformer.wte.weight"]
    report = checkpoints.pretrained_report(write(tmp_path / "a", "gpt2", arrays))
    assert not report.missing and not report.unused
    assert sorted(report.known) == [
        *("h.0.attn.bias", "h.1.attn.masked_bias", "lm_head.weight")
    ]


def test_a_missing_head_is_fresh_and_a_missing_layer_refused(tmp_path):  # FAULTS O56
    arrays = {
        k.removeprefix("model."): v
        for k, v in arrays_of("llama2").items()
        if k != "lm_head.weight"
    }
    folder = write(tmp_path / "a", "llama2", arrays, architectures=["LlamaModel"])
    with pytest.warns(UserWarning, match="output_head/kernel: freshly"):
        checkpoints.load_pretrained(folder)
    del arrays["layers.1.mlp.up_proj.weight"]
    write(folder, "llama2", arrays)
    with pytest.raises(checkpoints.CheckpointError, match="block_1/feed_forward/up"):
        checkpoints.load_pretrained(folder)


LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0]}


@pytest.mark.parametrize(
    "given, expected",
    [
        (None, None),
        ({"type": "linear", "factor": 2.0}, {"type": "linear", "factor": 2.0}),
        (
            {"rope_type": "dynamic", "factor": 2.0, "low_freq_factor": 3.0},
            {"factor": 2.0, "original_max_position_embeddings": 64},
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0},
            {
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 16.0,
            },
        ),
        (
            {"type": "longrope", "original_max_position_embeddings": 16, **LONG},
            {"original_max_position_embeddings": 16, **LONG, "factor": 4.0},
        ),
    ],
)
def test_both_spellings_of_rotary_scaling(given, expected, tmp_path):
    old = {"rope_parameters": ..., "rope_theta": 500.0, "rope_scaling": given}
    new = {"rope_parameters": {"rope_theta": 500.0, **(given or {})}}
    for fields in (old, new):
        model = checkpoints.load_pretrained(write(tmp_path / "a", "llama3", **fields))
        rotary = model.blocks[0].attention.rotary
        assert rotary.max_wavelength == 500.0
        kind = given and (given.get("type") or given["rope_type"])
        assert rotary.scaling == (expected and {"type": kind, **expected})


def test_a_first_llama_config(tmp_path):
    """Without the fields that came later."""
    later = ("rope_parameters", "head_dim", "attention_bias", "mlp_bias")
    fields = dict.fromkeys((*later, "num_key_value_heads", "attention_dropout"), ...)
    model = checkpoints.load_pretrained(write(tmp_path / "a", "llama2", **fields))
    ids, expected = (golden()[f"llama2/{k}"] for k in ("ids", "logits/whole"))
    np.testing.assert_allclose(model(ids), expected, atol=1e-4)


@pytest.mark.parametrize(
    "name, fields, message",
    [
        ("llama3", {"rope_parameters": {"rope_type": "ntk"}}, "'ntk'; known are"),
        ("llama3", {"rope_parameters": {"rope_type": "llama3"}}, "llama3.* needs"),
        ("llama3", {"rms_norm_eps": ...}, "no `rms_norm_eps`"),
        ("qwen2_window", {"use_sliding_window": ...}, "no `use_sliding_window`"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "not built here"),
        ("llama3", {"head_dim": 12}, r"q_proj.weight has shape \(48, 24\)"),
    ],
)
def test_configs_that_do_not_fit(name, fields, message, tmp_path):
    folder = write(tmp_path / "a", name, **fields)
    with pytest.raises(checkpoints.CheckpointError, match=message):
        checkpoints.load_pretrained(folder)


def test_dropout_comes_from_the_config_and_can_be_changed(loaded):
    model = loaded("gpt2")
    assert model.dropout == 0.1 and model.blocks[1].attention.attention_dropout == 0.1
    assert loaded("gpt2", dropout=0.3).dropout == 0.3
    model = loaded("qwen2_window", dtype="mixed_bfloat16")
    assert [block.attention.window for block in model.blocks] == [None, 3]
    assert ops.shape(model(np.ones((1, 2), "int32"))) == (1, 2, 37)
