"""Golden numbers of Longformer's and BigBird's self-attention, from transformers.

    python tests/reference/sparse_attention.py

Needs torch and transformers; writes tests/golden/sparse_attention.npz. Tiny random
layers, one row of two padded at its end; BigBird's random blocks are written down.
"""

import pathlib

import numpy as np
import torch
from transformers import BigBirdConfig, BigBirdModel, LongformerConfig
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

D, HEADS, WINDOW, GLOBAL = 12, 3, 8, 3
BATCH, LENGTH, PADDING = 2, 112, 3
BLOCK, RANDOM = 8, 2


def tokens():
    random = np.random.default_rng(0)
    x = torch.tensor(random.normal(size=(BATCH, LENGTH, D)), dtype=torch.float32)
    mask = torch.ones(BATCH, LENGTH)
    mask[1, -PADDING:] = 0
    return x, mask


def randomize(layer):
    """Weights far from their small initial values. Returns them by name."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(0.4 * torch.randn(weight.shape, generator=random))
    return {name: weight.numpy() for name, weight in layer.state_dict().items()}


def longformer():
    config = LongformerConfig(
        hidden_size=D,
        num_attention_heads=HEADS,
        attention_window=[WINDOW],
        attention_probs_dropout_prob=0.0,
    )
    layer = LongformerSelfAttention(config, layer_id=0).eval()
    arrays = randomize(layer)
    x, mask = tokens()
    kind = (mask - 1) * 10000.0  # pads below zero, global tokens above it
    kind[:, :GLOBAL] = 10000.0
    with torch.no_grad():
        outputs = layer(
            x,
            attention_mask=kind,
            is_index_masked=kind < 0,
            is_index_global_attn=kind > 0,
            is_global_attn=True,
        )[0]
    return {**arrays, "outputs": outputs.numpy()}


def big_bird():
    config = BigBirdConfig(
        hidden_size=D,
        num_attention_heads=HEADS,
        block_size=BLOCK,
        num_random_blocks=RANDOM,
        attention_probs_dropout_prob=0.0,
    )
    layer = BigBirdBlockSparseAttention(config, seed=3).train()  # else no random blocks
    arrays, drawn = randomize(layer), []
    choose = layer._bigbird_block_rand_mask_with_head
    layer._bigbird_block_rand_mask_with_head = lambda **given: (
        drawn.append(choose(**given)) or drawn[0]
    )
    x, mask = tokens()
    blocked, band, outer, inner = BigBirdModel.create_masks_for_block_sparse_attn(
        mask, BLOCK
    )
    with torch.no_grad():
        outputs = layer(x, band, outer, inner, blocked, blocked)[0]
    blocks = np.stack(drawn[0])  # (heads, blocks - 2, RANDOM)
    return {**arrays, "outputs": outputs.numpy(), "random_blocks": blocks}


def golden():
    """Arrays by name."""
    x, mask = tokens()
    arrays = {"inputs": x.numpy(), "padding_mask": mask.numpy() > 0}
    for name, made in (("longformer", longformer()), ("big_bird", big_bird())):
        arrays.update({f"{name}/{key}": value for key, value in made.items()})
    return arrays


if __name__ == "__main__":
    folder = pathlib.Path(__file__).resolve().parents[1] / "golden"
    np.savez_compressed(folder / "sparse_attention.npz", **golden())
