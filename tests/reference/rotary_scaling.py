"""Golden rotary frequencies from Hugging Face Transformers.

    python tests/reference/rotary_scaling.py

Needs torch and transformers; writes tests/golden/rotary_scaling.npz, which
tests/test_rotary_scaling.py reads without either. For every case: the scaling dict
as JSON in our spelling, the frequencies at some lengths, the attention factor, and
queries rotated by the Llama model of the library.
"""

import json
import pathlib

import numpy as np
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

KEY_DIM, BASE, ORIGINAL = 24, 10000.0, 64
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
LLAMA3 = {
    "type": "llama3",
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
LONGROPE = {
    "type": "longrope",
    "original_max_position_embeddings": ORIGINAL,
    "short_factor": [1 + 0.01 * i for i in range(12)],
    "long_factor": [1 + 0.5 * i for i in range(12)],
}
CASES = {
    "linear": {"type": "linear", "factor": 3.0},
    "dynamic": {
        "type": "dynamic",
        "factor": 2.5,
        "original_max_position_embeddings": ORIGINAL,
    },
    "yarn": YARN,
    "yarn_betas": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    "yarn_factor": {**YARN, "attention_factor": 1.25},
    "yarn_mscales": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.5, "factor": 40.0},
    "longrope": {**LONGROPE, "factor": 16.0},
    "longrope_factor": {**LONGROPE, "attention_factor": 1.1},
    "llama3": LLAMA3,
    "llama3_small": {**LLAMA3, "original_max_position_embeddings": ORIGINAL},
}
LENGTHS = (40, 64, 65, 200, 1000)


def config_of(scaling):
    """A Llama configuration with this scaling."""
    parameters = {key: value for key, value in scaling.items() if key != "type"}
    parameters["rope_type"] = scaling["type"]
    parameters["rope_theta"] = BASE
    return LlamaConfig(
        hidden_size=2 * KEY_DIM,
        num_attention_heads=2,
        head_dim=KEY_DIM,
        max_position_embeddings=scaling.get(
            "original_max_position_embeddings", ORIGINAL
        ),
        rope_parameters=parameters,
    )


def golden():
    """Arrays of every case, by name."""
    queries = np.random.default_rng(0).normal(size=(1, 2, 3, KEY_DIM))
    queries = queries.astype("float32")  # (B, N, T, H), as in the library
    arrays = {"queries": queries.transpose(0, 2, 1, 3), "lengths": np.array(LENGTHS)}
    for name, scaling in CASES.items():
        config = config_of(scaling)
        init = ROPE_INIT_FUNCTIONS[scaling["type"]]
        found = [init(config, "cpu", seq_len=length) for length in LENGTHS]
        arrays[f"{name}/scaling"] = np.array(json.dumps(scaling))
        arrays[f"{name}/frequencies"] = np.stack([f.numpy() for f, _ in found])
        arrays[f"{name}/attention_factor"] = np.array(found[0][1])
        for length in LENGTHS:
            positions = torch.tensor([[0, 7, length - 1]])
            cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)
            rotated, _ = apply_rotary_pos_emb(
                torch.tensor(queries), torch.tensor(queries), cos, sin
            )
            arrays[f"{name}/rotated_{length}"] = rotated.numpy().transpose(0, 2, 1, 3)
    return arrays


if __name__ == "__main__":
    path = pathlib.Path(__file__).resolve().parents[1] / "golden" / "rotary_scaling.npz"
    np.savez_compressed(path, **golden())
