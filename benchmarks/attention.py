"""Attention of long sequences: time and memory, forward and backward.

    python -m benchmarks.attention                      2,048 to 32,768 tokens
    python -m benchmarks.attention --lengths 1024,2048  others

One layer, 8 heads of 64, causal, batch 1, float32: dense, in blocks, and PyTorch's
scaled dot-product attention between the same projections. Memory is the most that a
process took beyond what it had before, XLA's compiler included.
"""

import argparse
import os

import numpy as np

from benchmarks.pairing import race, write
from benchmarks.steps import gradient_run

WIDTH, HEADS = 512, 8


def ours(length, implementation, threads):
    """keras_tfm, `MultiHeadAttention`, compiled with XLA."""
    from keras_tfm import layers

    layer = layers.MultiHeadAttention(HEADS, implementation=implementation)
    layer.build((1, length, WIDTH))
    return gradient_run(
        lambda x: layer(x, use_causal_mask=True),
        _inputs(length),
        layer.trainable_variables,
        jit=True,
    )


def torch_attention(length, threads):
    """PyTorch, `scaled_dot_product_attention`."""
    import torch

    torch.set_num_threads(threads)
    into, out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    x = torch.tensor(_inputs(length), requires_grad=True)

    def run():
        heads = into(x).view(1, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        (out(mixed.transpose(1, 2).reshape(x.shape)) ** 2).mean().backward()

    return run


def _inputs(length):
    rng = np.random.default_rng(0)
    return rng.standard_normal((1, length, WIDTH)).astype("float32")


def rows_of(length, threads, repeats, dense_up_to):
    """A row of the table for each contender at one length."""
    contenders = [
        ("in blocks", "ours", {"implementation": "blockwise"}),
        ("dense", "ours", {"implementation": "dense"}),
        ("PyTorch", "torch_attention", {}),
    ]
    if length > dense_up_to:
        contenders = [one for one in contenders if one[0] != "dense"]
    results = race("attention", contenders, {"length": length}, threads, repeats)
    first = results[0].get("median")
    return [
        {
            "tokens": length,
            "contender": result["name"],
            "seconds": result.get("median", result.get("failure")),
            "spread": f"{result['spread']:.0%}" if "spread" in result else "",
            "times in blocks": result["median"] / first if "median" in result else "",
            "peak MiB": round(result["peak"]) if "peak" in result else "",
        }
        for result in results
    ]


def draw(rows, folder):
    """Time and memory against length, both axes logarithmic."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axis, column in zip(axes, ("seconds", "peak MiB")):
        for name in dict.fromkeys(row["contender"] for row in rows):
            points = [
                (row["tokens"], row[column])
                for row in rows
                if row["contender"] == name and not isinstance(row[column], str)
            ]
            axis.loglog(*zip(*points), "o-", label=name, base=2)
        axis.set(xlabel="tokens", ylabel=column)
        axis.legend()
    figure.savefig(f"{folder}/attention.png", dpi=120)


def main():
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", default="2048,4096,8192,16384,32768", help="T")
    parser.add_argument("--dense-up-to", type=int, default=8192, help="longest dense T")
    parser.add_argument("--repeats", type=int, default=3, help="rounds that count")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each")
    parser.add_argument("--output-dir", default="outputs/benchmarks", help="for files")
    given = parser.parse_args()
    rows = []
    for length in map(int, given.lengths.split(",")):
        rows += rows_of(length, given.threads, given.repeats, given.dense_up_to)
    title = "one layer, 8 heads of 64, causal, forward and backward"
    write("attention", {title: rows}, given.output_dir)
    draw(rows, given.output_dir)


if __name__ == "__main__":
    main()
