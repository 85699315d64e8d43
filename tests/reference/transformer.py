"""Golden outputs of tiny encoder-decoders from PyTorch.

    python tests/reference/transformer.py

Needs torch; writes tests/golden/transformer.npz, which
tests/test_seq2seq_transformer.py reads without it. Two `torch.nn.Transformer`, post-
and pre-norm, with all their weights, embedded source and target, masks of padding,
the encoder's and the decoder's output.
"""

import pathlib

import numpy as np
import torch

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "transformer.npz"
B, S, T, D = 2, 7, 5, 12


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
    rng = np.random.default_rng(0)
    source = rng.normal(size=(B, S, D)).astype("float32")
    target = rng.normal(size=(B, T, D)).astype("float32")
    source_mask = np.arange(S) < np.array([[S], [4]])
    target_mask = np.arange(T) < np.array([[T], [3]])
    arrays = {}
    for kind in ("post", "pre"):
        model = torch.nn.Transformer(
            d_model=D,
            nhead=3,
            num_encoder_layers=2,
            num_decoder_layers=2,
            dim_feedforward=20,
            batch_first=True,
            norm_first=kind == "pre",
        )
        if kind == "post":  # as published: no norm after the last block
            model.encoder.norm = model.decoder.norm = None
        random_weights(model)
        blocked = torch.tensor(~source_mask), torch.tensor(~target_mask)
        with torch.no_grad():
            # A layer at a time: the fused path would cut the padding off.
            memory = torch.tensor(source)
            for layer in model.encoder.layers:
                layer.train()  # no dropout: the rates are zero below
                for part in layer.modules():
                    if isinstance(part, torch.nn.Dropout):
                        part.p = 0.0
                    if isinstance(part, torch.nn.MultiheadAttention):
                        part.dropout = 0.0
                memory = layer(memory, src_key_padding_mask=blocked[0])
            if model.encoder.norm is not None:
                memory = model.encoder.norm(memory)
            outputs = model.decoder(
                torch.tensor(target),
                memory,
                tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(T) < 0,
                tgt_key_padding_mask=blocked[1],
                memory_key_padding_mask=blocked[0],
            )
        arrays[f"{kind}/encoded"] = memory.numpy()
        arrays[f"{kind}/decoded"] = outputs.numpy()
        for name, weight in model.named_parameters():
            arrays[f"{kind}/weights/{name}"] = weight.detach().numpy()
    np.savez_compressed(
        GOLDEN,
        source=source,
        target=target,
        source_mask=source_mask,
        target_mask=target_mask,
        **arrays,
    )


if __name__ == "__main__":
    main()
