"""Golden checkpoints of tiny vision models from Hugging Face Transformers.

    python tests/reference/pretrained_vision.py
    python tests/reference/pretrained_vision.py FOLDER    load what we wrote there

Needs torch and transformers; writes tests/golden/pretrained/vision.npz, which
tests/test_pretrained_vision.py reads without either. For every case: its `config.json`
as text, every array under its name there, and what it gives for images of its own size
and, with the position table resized, of another one. With a folder it loads every
checkpoint in it, and says whether a key is missing or unexpected.
"""

import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers as hf
from safetensors.numpy import load_file

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "pretrained" / "vision.npz"
SIZES = {
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_size": 12,
    "image_size": 8,
    "patch_size": 2,
}
VIT = {**SIZES, "intermediate_size": 20, "layer_norm_eps": 1e-6}
DINO = {**SIZES, "mlp_ratio": 2, "layerscale_value": 0.5, "drop_path_rate": 0.1}
CASES = {
    "vit": (hf.ViTForImageClassification, hf.ViTConfig(**VIT, num_labels=5)),
    "vit_backbone": (hf.ViTModel, hf.ViTConfig(**VIT, hidden_act="gelu_new")),
    "deit": (
        hf.DeiTForImageClassification,
        hf.DeiTConfig(**VIT, qkv_bias=False, num_labels=5),
    ),
    "deit_teacher": (
        hf.DeiTForImageClassificationWithTeacher,
        hf.DeiTConfig(**VIT, hidden_act="relu", num_labels=5),
    ),
    "dinov2": (
        hf.Dinov2ForImageClassification,
        hf.Dinov2Config(**DINO, num_labels=5),
    ),
    "dinov2_gated": (hf.Dinov2Model, hf.Dinov2Config(**DINO, use_swiglu_ffn=True)),
}


def random_weights(model, seed):
    """Random numbers in every weight, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        is_norm = "norm" in name and name.endswith("weight")
        weight.data = (1.0 if is_norm else 0.0) + 0.3 * noise
    return model.eval()


def outputs_of(model, images):
    """Logits, or the last hidden state and what is pooled of it."""
    options = (
        {} if "Dinov2" in type(model).__name__ else {"interpolate_pos_encoding": 1}
    )
    pixels = torch.tensor(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        outputs = model(pixels, **options)
    names = ("logits", "last_hidden_state", "pooler_output")
    return {n: outputs[n].numpy() for n in names if n in outputs}


def main():
    """Build all models, run them and write the file."""
    random = np.random.default_rng(0)
    images = {
        "own": random.normal(size=(2, 8, 8, 3)).astype("float32"),
        "other": random.normal(size=(2, 12, 6, 3)).astype("float32"),
    }
    arrays = {f"images/{size}": array for size, array in images.items()}
    for seed, (name, (cls, config)) in enumerate(CASES.items()):
        config._attn_implementation = "eager"
        model = random_weights(cls(config), seed)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            path = pathlib.Path(folder)
            arrays[f"{name}/config"] = np.array((path / "config.json").read_text())
            for key, array in load_file(path / "model.safetensors").items():
                arrays[f"{name}/arrays/{key}"] = array
        for size, pixels in images.items():
            for key, array in outputs_of(model, pixels).items():
                arrays[f"{name}/{size}/{key}"] = array
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, **arrays)


def check(folder):
    """Load every checkpoint below a folder, and print what does not fit."""
    for path in sorted(pathlib.Path(folder).glob("*/config.json")):
        config = hf.AutoConfig.from_pretrained(path.parent)
        model, info = getattr(hf, config.architectures[0]).from_pretrained(
            path.parent, output_loading_info=True
        )
        wrong = {key: sorted(names) for key, names in info.items() if names}
        print(path.parent.name, type(model).__name__, wrong or "as it should be")


if __name__ == "__main__":
    check(sys.argv[1]) if len(sys.argv) > 1 else main()
