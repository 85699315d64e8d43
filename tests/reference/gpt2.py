"""Golden outputs of a tiny GPT-2 from Hugging Face Transformers.

    python tests/reference/gpt2.py

Needs torch and transformers; writes tests/golden/gpt2.npz, which tests/test_gpt.py
reads without either: every weight under its name there (queries, keys and values in
one `c_attn`, matrices as (in, out)), ids, a mask of padding on the left, the logits
with and without it, and a greedy continuation.
"""

import pathlib

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "gpt2.npz"


def random_weights(model, seed=0):
    """Random numbers in every weight, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        center = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        weight.data = center + 0.3 * noise
    return model.eval()


def main():
    """Build the model, run it and write the file."""
    config = GPT2Config(
        vocab_size=37,
        n_layer=2,
        n_head=3,
        n_embd=12,
        n_inner=20,
        n_positions=16,
        attn_implementation="eager",
    )
    model = random_weights(GPT2LMHeadModel(config))
    ids = torch.tensor(np.random.default_rng(0).integers(1, 37, (2, 7)))
    mask = torch.tensor([[1] * 7, [0] * 3 + [1] * 4])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = model(ids).logits
        padded = model(ids, attention_mask=mask, position_ids=positions).logits
        more = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
    arrays = {f"weights/{k}": v.detach().numpy() for k, v in model.named_parameters()}
    np.savez_compressed(
        GOLDEN,
        token_ids=ids.numpy().astype("int32"),
        padding_mask=mask.numpy().astype(bool),
        logits=logits.numpy(),
        padded_logits=padded.numpy(),
        generated=more.numpy().astype("int32"),
        **arrays,
    )


if __name__ == "__main__":
    main()
