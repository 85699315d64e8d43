"""Golden outputs of tiny Vision Transformers from Hugging Face and timm.

    python tests/reference/vit.py

Needs torch, transformers and timm; writes tests/golden/vit.npz, which
tests/test_vision_transformer.py reads without them. From Hugging Face a
ViTForImageClassification with its weights, images that are not square, hidden states
and logits; from timm a VisionTransformer that pools the mean and has layer-scale.
"""

import pathlib

import numpy as np
import timm
import torch
from transformers import ViTConfig, ViTForImageClassification

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "vit.npz"


def random_weights(model, seed=0):
    """Random numbers in every weight, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        is_norm = "norm" in name and name.endswith("weight")
        weight.data = (1.0 if is_norm else 0.0) + 0.3 * noise
    return model.eval()


def main():
    """Build both models, run them and write the file."""
    config = ViTConfig(
        num_hidden_layers=2,
        num_attention_heads=3,
        hidden_size=12,
        intermediate_size=20,
        image_size=(4, 6),
        patch_size=2,
        num_labels=5,
        layer_norm_eps=1e-6,
        attn_implementation="eager",
    )
    hugging_face = random_weights(ViTForImageClassification(config))
    pooled_mean = timm.models.vision_transformer.VisionTransformer(
        img_size=(4, 6),
        patch_size=2,
        depth=2,
        num_heads=3,
        embed_dim=12,
        mlp_ratio=2,
        num_classes=5,
        class_token=False,
        global_pool="avg",
        fc_norm=False,
        init_values=0.1,
    )
    random_weights(pooled_mean, seed=1)
    images = np.random.default_rng(0).normal(size=(2, 4, 6, 3)).astype("float32")
    pixels = torch.tensor(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        outputs = hugging_face(pixels, output_hidden_states=True)
        tokens = pooled_mean.forward_features(pixels)
        mean_logits = pooled_mean(pixels)
    arrays = {
        f"token/{k}": v.detach().numpy() for k, v in hugging_face.named_parameters()
    }
    arrays.update(
        (f"mean/{k}", v.detach().numpy()) for k, v in pooled_mean.named_parameters()
    )
    np.savez_compressed(
        GOLDEN,
        images=images,
        token_hidden_states=np.stack([h.numpy() for h in outputs.hidden_states]),
        token_logits=outputs.logits.numpy(),
        mean_sequence=tokens.numpy(),
        mean_logits=mean_logits.numpy(),
        **arrays,
    )


if __name__ == "__main__":
    main()
