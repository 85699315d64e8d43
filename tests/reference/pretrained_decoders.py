"""Golden folders of tiny decoders from Hugging Face Transformers.

    python tests/reference/pretrained_decoders.py
    python tests/reference/pretrained_decoders.py FOLDER    load what we wrote there

Needs torch and transformers; writes tests/golden/pretrained/decoders.npz, which
tests/test_pretrained_decoders.py reads without either. For every case: its
`config.json` as text, every array under its name there, ids, and the logits without
padding and with padding on the left and on the right. With a folder it loads every
checkpoint in it, and says whether a key is missing or unexpected.
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers as hf
from safetensors.numpy import load_file

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "pretrained" / "decoders.npz"
T, PADDING = 11, 4
SIZES = {
    "vocab_size": 37,
    "hidden_size": 24,
    "intermediate_size": 28,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
CASES = {
    "gpt2": (
        hf.GPT2LMHeadModel,
        hf.GPT2Config(
            vocab_size=37,
            n_embd=24,
            n_layer=2,
            n_head=3,
            n_inner=20,
            n_positions=16,
            layer_norm_epsilon=1e-6,
            activation_function="gelu",
        ),
    ),
    "gpt2_backbone": (
        hf.GPT2Model,
        hf.GPT2Config(vocab_size=29, n_embd=8, n_layer=1, n_head=2, n_positions=16),
    ),
    "llama2": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**{**SIZES, "num_key_value_heads": 6}, rms_norm_eps=1e-5),
    ),
    "llama3": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(
            **SIZES,
            head_dim=8,
            rope_parameters=LLAMA3,
            tie_word_embeddings=True,
            rms_norm_eps=1e-5,
        ),
    ),
    "llama_biases": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(
            **SIZES,
            attention_bias=True,
            mlp_bias=True,
            hidden_act="gelu_new",
            rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 90.0},
        ),
    ),
    "mistral": (
        hf.MistralForCausalLM,
        hf.MistralConfig(**SIZES, head_dim=8, sliding_window=3, rms_norm_eps=1e-6),
    ),
    "qwen2": (
        hf.Qwen2ForCausalLM,
        hf.Qwen2Config(**SIZES, tie_word_embeddings=True, rms_norm_eps=1e-6),
    ),
    "qwen2_window": (
        hf.Qwen2ForCausalLM,
        hf.Qwen2Config(
            **SIZES,
            use_sliding_window=True,
            sliding_window=3,
            max_window_layers=1,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        ),
    ),
}


def random_weights(model, seed):
    """Random numbers in every weight, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        center = 1.0 if weight.ndim == 1 and name.endswith("weight") else 0.0
        weight.data = center + 0.3 * noise
    return model.eval()


def logits_of(model, ids, mask):
    """The logits, with positions that count real tokens."""
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        out = model(ids, attention_mask=mask, position_ids=positions)
    if hasattr(out, "logits"):
        return out.logits.numpy()
    return (out.last_hidden_state @ model.wte.weight.T).detach().numpy()


def golden(name, seed):
    """The arrays of one case."""
    kind, config = CASES[name]
    config._attn_implementation = "eager"
    model = random_weights(kind(config), seed)
    ids = torch.tensor(
        np.random.default_rng(seed).integers(1, config.vocab_size, (3, T))
    )
    places, whole = torch.arange(T), torch.ones_like(ids)
    real = {
        "whole": whole,
        "left": whole * (places >= torch.tensor([[PADDING], [0], [1]])),
        "right": whole * (places < torch.tensor([[T - PADDING], [T], [5]])),
    }
    arrays = {"ids": ids.numpy().astype("int32")}
    for side, mask in real.items():
        arrays[f"mask/{side}"] = mask.numpy().astype(bool)
        arrays[f"logits/{side}"] = logits_of(model, ids, mask)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        folder = pathlib.Path(folder)
        arrays["config"] = np.array((folder / "config.json").read_text())
        for key, value in load_file(folder / "model.safetensors").items():
            arrays[f"weights/{key}"] = value
    return arrays


def check(folder):
    """Load what `save_pretrained` of ours wrote, one folder a case."""
    for path in sorted(pathlib.Path(folder).iterdir()):
        model, info = hf.AutoModelForCausalLM.from_pretrained(
            path, output_loading_info=True
        )
        bad = {k: v for k, v in info.items() if v}
        ids = torch.tensor(np.load(path / "ids.npy")).long()
        made = logits_of(model.eval(), ids, torch.ones_like(ids))
        far = abs(made - np.load(path / "logits.npy")).max()
        print(f"{path.name}: {type(model).__name__} {bad or 'every key'} {far:.1e}")


def main():
    """Make the file, or check a folder."""
    if len(sys.argv) > 1:
        return check(sys.argv[1])
    arrays = {}
    for seed, name in enumerate(CASES):
        arrays |= {f"{name}/{k}": v for k, v in golden(name, seed).items()}
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    main()
