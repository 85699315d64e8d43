"""Generation beside KerasHub, Transformers and CTranslate2.

    python -m benchmarks.generation                 every table
    python -m benchmarks.generation --tables beams  one of them
    python -m benchmarks.generation --tiny 1        toy models: seconds, not minutes

Tables: greedy (GPT-2 124M, prompt 32, 96 new tokens), beams (the base Transformer,
source 32, 32 new tokens), length (the cost of a token at the end of a long run),
products (what a step's products with weights allow if nothing else takes time), limits
(how fast the machine reads, and what that allows).
Peers: pip install -e ".[benchmarks]"; one that is not installed is named, not run.
All models have random weights of the same shapes, so every library makes all tokens.
"""

import time

import numpy as np

from benchmarks.decoders import prompts
from benchmarks.limits import copy_bandwidth, limits, weights_read
from benchmarks.pairing import write
from benchmarks.steps import parser, speed_table

GPT2 = {"vocabulary": 50257, "layers": 12, "heads": 12, "width": 768}
BASE = {"vocabulary": 32000, "layers": 6, "heads": 8, "width": 512}
TINY = {"vocabulary": 300, "layers": 2, "heads": 2, "width": 64}

DECODERS = [
    ("keras_tfm", "ours", {}),
    ("keras_tfm LiteRT float32", "our_litert", {}),
    ("keras_tfm LiteRT int8", "our_litert", {"quantize": "dynamic"}),
    ("KerasHub jit", "keras_hub", {"jit": True}),
    ("KerasHub graph", "keras_hub", {"jit": False}),
    ("Transformers", "transformers", {}),
    ("CTranslate2 float32", "ctranslate2", {}),
    ("CTranslate2 int8", "ctranslate2", {"kind": "int8"}),
]
ENCODER_DECODERS = [
    ("keras_tfm", "ours", {}),
    ("KerasHub jit", "keras_hub", {"jit": True}),
    ("KerasHub graph", "keras_hub", {"jit": False}),
    ("Transformers", "transformers", {}),
    ("CTranslate2 float32", "ctranslate2", {}),
    ("CTranslate2 int8", "ctranslate2", {"kind": "int8"}),
]
PRODUCTS = [("XLA", "xla", {}), ("PyTorch", "torch", {})]


def table(module, contenders, settings, tokens, threads, repeats):
    """`speed_table`, with tokens a second of runs that make so many `tokens`."""
    rows = []
    for row in speed_table(module, contenders, settings, threads, repeats):
        name, seconds = row.pop("contender"), row.pop("seconds")
        rate = tokens / seconds if isinstance(seconds, float) else seconds  # a failure
        rows.append({"contender": name, "tokens/s": rate, **row})
    return rows


def length_table(shape, length=1024, piece=64, repeats=3):
    """Seconds a token along one run: pieces of the loop, timed one after the other."""
    from benchmarks.decoders import gpt
    from keras_tfm.generation.generate import compiled, prepare
    from keras_tfm.generation.stream import Advance, Start

    model = gpt(shape, length)
    prepared = prepare(
        model,
        prompts(shape["vocabulary"], 1, piece),
        length - piece,
        None,
        (),
        (),
        None,
    )
    start, advance = (
        compiled(kind, model, True, prepared.inputs, *prepared.settings)
        for kind in (Start, Advance)
    )
    ends = range(piece, length - piece + 1, piece)
    best = dict.fromkeys(ends, float("inf"))
    for _ in range(repeats):
        fixed, moving = start.predict_on_batch(prepared.inputs)
        for end in ends:
            given = {"fixed": fixed, "moving": moving, "until": np.array(end, "int32")}
            begun = time.perf_counter()
            moving = advance.predict_on_batch(given)
            best[end] = min(best[end], time.perf_counter() - begun)
    first = best[piece]
    return [
        {
            "positions": f"{end} to {end + piece}",
            "ms a token": 1000 * best[end] / piece,
            "times the first": best[end] / first,
        }
        for end in ends
    ]


def main():
    """Run from the command line."""
    arguments = parser(__doc__, "greedy,beams,length,products,limits")
    arguments.add_argument("--batches", default="1,8", help="batch sizes of greedy")
    given = arguments.parse_args()
    chosen, tables = given.tables, {}
    gpt2, base = (TINY, TINY) if given.tiny else (GPT2, BASE)
    how = given.threads, given.repeats
    if "greedy" in chosen:
        for batch in map(int, given.batches.split(",")):
            sizes = {"shape": gpt2, "batch": batch, "length": 32, "new": 96}
            title = f"greedy, batch {batch}, prompt 32 + 96 new tokens"
            tokens = sizes["batch"] * sizes["new"]
            tables[title] = table("decoders", DECODERS, sizes, tokens, *how)
            if batch == 1:
                rate = tables[title][0]["tokens/s"] * weights_read(gpt2) / 1e9
                limit = copy_bandwidth(given.threads) / 1e9
                tables["weights read at batch 1"] = [
                    {"GB/s": rate, "copy, GB/s": limit, "share": f"{rate / limit:.0%}"}
                ]
    if "beams" in chosen:
        sizes = {"shape": base, "batch": 8, "length": 32, "new": 32, "beams": 5}
        title = "beam 5, batch 8, source 32, 32 new tokens"
        tokens = sizes["batch"] * sizes["new"]
        tables[title] = table("encoder_decoders", ENCODER_DECODERS, sizes, tokens, *how)
    if "length" in chosen:
        tables["one run of 1024 positions, batch 1"] = length_table(gpt2)
    if "products" in chosen:
        kinds = ("greedy", gpt2, 8, False), ("beam 5", base, 40, True)
        for name, shape, rows, cross in kinds:
            sizes = {"shape": shape, "rows": rows, "cross": cross}
            title = f"products with weights alone: {name}, batch 8"
            tables[title] = table("products", PRODUCTS, sizes, 8, *how)
    if "limits" in chosen:
        tables["what the machine allows"] = limits(gpt2, given.threads)
    write("generation", tables, given.output_dir)


if __name__ == "__main__":
    main()
