"""Golden beam searches and processed greedy runs from Hugging Face Transformers.

    python tests/reference/beams.py

Needs torch and transformers; reads the weights of tests/golden/gpt2.npz and writes
tests/golden/beams.npz, which tests/test_golden_generation.py reads without either: for
each of SETTINGS the new tokens (B, n, N), 0 after the stop token, and the scores.
"""

import pathlib

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = pathlib.Path(__file__).parents[1] / "golden"
NEW, STOP = 7, 5
SETTINGS = [
    {"num_beams": beams, "length_penalty": penalty, "early_stopping": early}
    for beams in (2, 5)
    for penalty in (-0.5, 0.0, 1.0, 2.0)
    for early in ("never", True)
]
SETTINGS += [
    {"num_beams": 3, "early_stopping": "never", "no_repeat_ngram_size": 2},
    {"num_beams": 3, "early_stopping": "never", "min_new_tokens": 4},
    {"num_beams": 1, "repetition_penalty": 1.7},
    {"num_beams": 1, "no_repeat_ngram_size": 1},
    {"num_beams": 1, "min_new_tokens": 5},
    {"num_beams": 1, "suppress_tokens": [1, 17, 22]},
]


def main():
    """Build the model, search and write the file."""
    golden = np.load(FOLDER / "gpt2.npz")
    config = GPT2Config(
        vocab_size=37, n_layer=2, n_head=3, n_embd=12, n_inner=20, n_positions=16,
        attn_implementation="eager", bos_token_id=36,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    for name, weight in model.named_parameters():
        weight.data = torch.tensor(golden[f"weights/{name}"])
    ids = torch.tensor(golden["token_ids"].astype("int64"))
    mask = torch.tensor(golden["padding_mask"].astype("int64"))
    arrays = {}
    for number, setting in enumerate(SETTINGS):
        with torch.no_grad():
            made = model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=NEW,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=STOP,
                num_return_sequences=setting["num_beams"],
                return_dict_in_generate=True,
                output_scores=True,
                **setting,
            )
        new = made.sequences[:, ids.shape[1] :].numpy().astype("int32")
        rows = np.zeros((len(new), NEW), "int32")
        rows[:, : new.shape[1]] = new
        after = np.cumsum(rows == STOP, axis=1) - (rows == STOP) > 0
        rows[after] = 0  # they fill up with the stop token
        arrays[f"tokens_{number}"] = rows.reshape(len(ids), -1, NEW)
        if setting["num_beams"] > 1:
            scores = made.sequences_scores.numpy()
            arrays[f"scores_{number}"] = scores.reshape(len(ids), -1)
    np.savez_compressed(FOLDER / "beams.npz", **arrays)


if __name__ == "__main__":
    main()
