"""Golden outputs of tiny Mamba models from Hugging Face Transformers.

    python tests/reference/mamba.py

Needs torch and transformers; writes tests/golden/mamba.npz, which
tests/test_mamba_mixer.py and tests/test_mamba2_mixer.py read without them. For both
kinds: one mixer with biases, its weights, inputs and outputs, plain and with padding on
the left; a language model of two layers, its logits and what it goes on with greedily.
"""

import pathlib

import numpy as np
import torch
import transformers
from transformers.models.mamba.modeling_mamba import MambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "mamba.npz"
B, T, D, V = 2, 7, 12, 31
SIZES = {"vocab_size": V, "hidden_size": D, "state_size": 5, "num_hidden_layers": 2}
KINDS = {
    "mamba": (
        MambaMixer,
        transformers.MambaConfig(**SIZES, conv_kernel=3, time_step_rank=2),
    ),
    "mamba2": (
        Mamba2Mixer,
        transformers.Mamba2Config(
            **SIZES, num_heads=6, head_dim=4, n_groups=2, chunk_size=4, conv_kernel=3
        ),
    ),
}


def random_weights(model):
    """Random numbers added to the weights that training would start with."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.data = weight.data + 0.3 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def of_mixer(cls, config):
    """A mixer's weights, inputs and outputs."""
    config.use_bias = True
    mixer = random_weights(cls(config, layer_idx=0))
    config.use_bias = False
    x = np.random.default_rng(0).normal(size=(B, T, D)).astype("float32")
    real = np.arange(T) >= np.array([[3], [0]])
    outputs = mixer(torch.tensor(x))
    padded = mixer(torch.tensor(x), attention_mask=torch.tensor(real).float())
    arrays = {f"weights/{k}": v.numpy() for k, v in mixer.state_dict().items()}
    return {
        "inputs": x,
        "outputs": outputs.numpy(),
        "real": real,
        "padded": padded.numpy(),
        **arrays,
    }


def of_model(config):
    """A language model's weights, logits and greedy ids."""
    torch.manual_seed(0)
    model = random_weights(transformers.AutoModelForCausalLM.from_config(config))
    ids = torch.tensor(np.random.default_rng(0).integers(1, V, (B, T)))
    made = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
    arrays = {f"weights/{k}": v.numpy() for k, v in model.state_dict().items()}
    return {
        "token_ids": ids.numpy().astype("int32"),
        "logits": model(ids).logits.numpy(),
        "generated": made.numpy().astype("int32"),
        **arrays,
    }


def main():
    """Run all and write the file."""
    arrays = {}
    with torch.no_grad():
        for name, (cls, config) in KINDS.items():
            parts = {"mixer": of_mixer(cls, config), "model": of_model(config)}
            for part, found in parts.items():
                arrays |= {f"{name}/{part}/{k}": v for k, v in found.items()}
    np.savez_compressed(GOLDEN, **arrays)
    print(GOLDEN, GOLDEN.stat().st_size)


if __name__ == "__main__":
    main()
