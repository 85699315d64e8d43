"""Golden outputs of a tiny BERT from Hugging Face Transformers.

    python tests/reference/bert.py

Needs torch and transformers; writes tests/golden/bert.npz, which tests/test_bert.py
reads without either: every weight under its name there, ids, segments and mask of
two texts, the hidden states of all layers, the pooled output and both heads.
"""

import pathlib

import numpy as np
import torch
from transformers import BertConfig, BertForPreTraining

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "bert.npz"


def random_weights(model, seed=0):
    """Random numbers in every weight, biases and norms too."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        center = 1.0 if "LayerNorm.weight" in name else 0.0
        weight.data = center + 0.3 * noise
    return model.eval()


def main():
    """Build the model, run it and write the file."""
    config = BertConfig(
        vocab_size=37,
        num_hidden_layers=2,
        num_attention_heads=3,
        hidden_size=12,
        intermediate_size=20,
        max_position_embeddings=16,
        layer_norm_eps=1e-12,
        hidden_act="gelu",
        attn_implementation="eager",
    )
    model = random_weights(BertForPreTraining(config))
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 37, (2, 7))
    segments = np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]])
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3])
    with torch.no_grad():
        outputs = model(
            input_ids=torch.tensor(ids),
            token_type_ids=torch.tensor(segments),
            attention_mask=torch.tensor(mask),
            output_hidden_states=True,
        )
        pooled = model.bert.pooler(outputs.hidden_states[-1])
    arrays = {f"weights/{k}": v.detach().numpy() for k, v in model.named_parameters()}
    np.savez_compressed(
        GOLDEN,
        token_ids=ids.astype("int32"),
        segment_ids=segments.astype("int32"),
        padding_mask=mask.astype(bool),
        hidden_states=np.stack([h.numpy() for h in outputs.hidden_states]),
        pooled_output=pooled.numpy(),
        token_logits=outputs.prediction_logits.numpy(),
        next_sentence_logits=outputs.seq_relationship_logits.numpy(),
        **arrays,
    )


if __name__ == "__main__":
    main()
