"""The loss of a language model over its vocabulary, at once and in chunks.

    python -m benchmarks.loss             GPT-2's width and vocabulary, 4 x 512 tokens
    python -m benchmarks.loss --tiny 1    a toy model: seconds, not minutes

A training step (AdamW, XLA) of a model of two blocks, so that the loss is most of the
memory; once with a label on every token, once on 15 % of them, as in masked language
modelling.
"""

import numpy as np

from benchmarks.pairing import write
from benchmarks.steps import parser, speed_table

GPT2 = {"vocabulary": 50257, "heads": 12, "width": 768, "batch": 4, "length": 512}
TINY = {"vocabulary": 300, "heads": 2, "width": 16, "batch": 2, "length": 32}
CONTENDERS = [
    ("at once", "step", {}),
    ("in 16 chunks", "step", {"num_chunks": 16}),
]


def step(shape, share, threads, num_chunks=None):
    """A training step of keras_tfm's `GPT`."""
    from keras_tfm import models, training

    model = models.GPT(
        shape["vocabulary"], 2, shape["heads"], shape["width"], 4 * shape["width"],
        shape["length"],
    )  # fmt: skip
    loss = training.SmoothedCrossentropy()
    if num_chunks is not None:
        model, loss = training.ChunkedLossModel(model, num_chunks), None
    model.compile("adamw", loss, jit_compile=True)
    rng = np.random.default_rng(0)
    sizes = shape["batch"], shape["length"]
    ids = rng.integers(0, shape["vocabulary"], sizes).astype("int32")
    labels = np.where(rng.random(sizes) < share, ids, -100)
    return lambda: model.train_on_batch(ids, labels)


def main():
    """Run from the command line."""
    given = parser(__doc__, "all,masked").parse_args()
    shares = {"all": 1.0, "masked": 0.15}
    tables = {}
    for kind in given.tables:
        settings = {"shape": TINY if given.tiny else GPT2, "share": shares[kind]}
        how = given.threads, given.repeats
        title = f"training step, labels on {shares[kind]:.0%} of the tokens"
        tables[title] = speed_table("loss", CONTENDERS, settings, *how)
    write("loss", tables, given.output_dir)


if __name__ == "__main__":
    main()
