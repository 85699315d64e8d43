"""Golden outputs of the Reformer's LSH attention from Hugging Face Transformers.

    python tests/reference/lsh_attention.py

Needs torch and transformers; writes tests/golden/lsh_attention.npz, which
tests/test_lsh_attention.py reads without either: inputs, both projections, rotations,
buckets and outputs of three cases, causal or not.

dense: the length is one chunk. balanced: every bucket has as many tokens as a chunk,
and a chunk looks at itself alone. near: chunks look at their neighbours, but their mask
also asks for the same bucket and for fewer places between than a chunk is long.
"""

import pathlib

import numpy as np
import torch
from transformers import ReformerConfig
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "lsh_attention.npz"
HEADS, SIZE, WIDTH, CHUNK = 2, 3, 5, 4


class Near(LSHSelfAttention):
    """Theirs, with pairs of other buckets or far places left out."""

    def _get_sorted_bucket_idx_and_undo_sorted_bucket_idx(self, length, buckets, n):
        order, undo = super()._get_sorted_bucket_idx_and_undo_sorted_bucket_idx(
            length, buckets, n
        )
        self.sorted_buckets = torch.gather(buckets, -1, order)
        return order, undo

    def _compute_attn_mask(self, query_indices, key_indices, *others):
        mask = super()._compute_attn_mask(query_indices, key_indices, *others)

        def pairs(x):
            own = self._split_seq_length_dim_to(x, -1, CHUNK, HEADS)
            around = self.num_chunks_before, self.num_chunks_after
            return own.unsqueeze(-1), self._look_adjacent(own, *around).unsqueeze(-2)

        places = torch.arange(self.sorted_buckets.shape[-1])
        one, other = pairs(places.expand(self.sorted_buckets.shape))
        near = (one - other).abs() < CHUNK
        one, other = pairs(self.sorted_buckets)
        near = near & (one == other)
        return near if mask is None else near & mask.bool()


def case(cls, seed, length, buckets, rounds, around, causal, keep=None, chunk=CHUNK):
    """Arrays of one run."""
    config = ReformerConfig(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        attention_head_size=SIZE,
        lsh_attn_chunk_length=chunk,
        lsh_num_chunks_before=1 if around else 0,
        lsh_num_chunks_after=1 if around and not causal else 0,
        lsh_attention_probs_dropout_prob=0.0,
        num_hashes=rounds,
        num_buckets=buckets,
        hash_seed=seed,
        is_decoder=causal,
        attn_layers=["lsh"],
    )
    torch.manual_seed(100 + seed)
    layer = cls(config, layer_idx=0).eval()
    x = torch.randn(2, length, WIDTH)
    for projection in (layer.query_key, layer.value):
        projection.weight.data = torch.randn(projection.weight.shape)
    mask = None if keep is None else torch.tensor(keep)
    with torch.no_grad():
        found = layer(x, attention_mask=mask)
    torch.manual_seed(seed)
    rotations = torch.randn(HEADS, SIZE, rounds, sum(np.atleast_1d(buckets)) // 2)
    arrays = {
        "inputs": x,
        "query_key": layer.query_key.weight.T,
        "value": layer.value.weight.T,
        "rotations": rotations,
        "outputs": found.hidden_states,
    }
    arrays = {name: tensor.detach().numpy() for name, tensor in arrays.items()}
    if found.buckets is not None:
        arrays["buckets"] = found.buckets.numpy().astype("int32")
    return arrays


def balanced(causal):
    """The first seed whose buckets are all as long as a chunk."""
    for seed in range(100000):
        arrays = case(LSHSelfAttention, seed, 2 * CHUNK, 2, 1, False, causal)
        counts = [np.bincount(row) for row in arrays["buckets"].reshape(-1, 2 * CHUNK)]
        if all(len(c) == 2 and c[0] == CHUNK for c in counts):
            return arrays
    raise RuntimeError("no seed found")


def main():
    """Run every case and write the file."""
    keep = np.arange(6 * CHUNK) < np.array([[6 * CHUNK], [17]])
    cases = {}
    for name, causal in (("both", False), ("causal", True)):
        cases[f"dense_{name}"] = case(
            LSHSelfAttention, 0, 7, 2, 1, False, causal, chunk=7
        )
        cases[f"balanced_{name}"] = balanced(causal)
        rest = 6 * CHUNK, 4, 3, True, causal
        cases[f"near_{name}"] = case(Near, 1, *rest)
        cases[f"padded_{name}"] = case(Near, 2, *rest, keep)
        rest = 6 * CHUNK, [2, 4], 2, True, causal
        cases[f"factors_{name}"] = case(Near, 3, *rest)
    arrays = {f"{k}/{n}": x for k, v in cases.items() for n, x in v.items()}
    np.savez_compressed(GOLDEN, keep=keep, **arrays)


if __name__ == "__main__":
    main()
