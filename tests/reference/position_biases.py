"""Golden position biases: T5's buckets and BLOOM's ALiBi, from Transformers.

    python tests/reference/position_biases.py

Needs torch and transformers; writes tests/golden/position_biases.npz.
"""

import pathlib

import numpy as np
import torch
from transformers import T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

# (bidirectional, num_buckets, max_distance)
BUCKETS = [
    (True, 32, 128),
    (False, 32, 128),
    (True, 8, 20),
    (False, 7, 50),
    (True, 31, 1000),
    (True, 4, 2),
    (False, 2, 2),
    (False, 64, 4096),
]
HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 71)


def golden():
    """Arrays by name."""
    relative = torch.arange(-5000, 5001)
    arrays = {"relative_position": relative.numpy().astype("int32")}
    for bidirectional, num_buckets, max_distance in BUCKETS:
        name = f"buckets/{int(bidirectional)}_{num_buckets}_{max_distance}"
        buckets = T5Attention._relative_position_bucket(
            relative, bidirectional, num_buckets, max_distance
        )
        arrays[name] = buckets.numpy().astype("int32")
    for num_heads in HEADS:  # BLOOM adds slope * key position, slope 1 apart
        bias = build_alibi_tensor(torch.ones(1, 5), num_heads, torch.float32)
        arrays[f"alibi/{num_heads}"] = bias.numpy()[:, 0]
    arrays.update(t5_bias())
    return arrays


def t5_bias():
    """A T5 layer's table and its bias, whole and with a query offset."""
    torch.manual_seed(0)
    config = T5Config(
        d_model=8,
        num_heads=3,
        d_kv=4,
        relative_attention_num_buckets=10,
        relative_attention_max_distance=12,
    )
    layer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    with torch.no_grad():
        layer.relative_attention_bias.weight.normal_()
        whole = layer.compute_bias(5, 17)
        shifted = layer.compute_bias(2, 17, past_seen_tokens=9)
    return {
        "t5/table": layer.relative_attention_bias.weight.detach().numpy(),
        "t5/bias": whole.numpy(),
        "t5/shifted": shifted.numpy(),
    }


if __name__ == "__main__":
    path = (
        pathlib.Path(__file__).resolve().parents[1] / "golden" / "position_biases.npz"
    )
    np.savez_compressed(path, **golden())
