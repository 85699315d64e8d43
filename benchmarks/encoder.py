"""BERT-base, forward and training step, beside its peers and the matrix products alone.

    python -m benchmarks.encoder                    batch 8, length 128
    python -m benchmarks.encoder --tiny 1           toy models: seconds, not minutes

The training step is AdamW on the mean square of the last hidden states, dropout 0.1.
Peers: pip install -e ".[benchmarks]"; one that is not installed is named, not run.
The limit is the chain of the model's matrix products and nothing else; for a training
step three times that. The contenders of a step take 20 GB together.
"""

import numpy as np

from benchmarks.pairing import write
from benchmarks.steps import keras_run, parser, speed_table, torch_run

BERT = {"vocabulary": 30522, "layers": 12, "heads": 12, "width": 768}
TINY = {"vocabulary": 300, "layers": 2, "heads": 2, "width": 64}

CONTENDERS = [
    ("matrix products alone", "limit", {}),
    ("keras_tfm jit", "ours", {"jit": True}),
    ("keras_tfm graph", "ours", {"jit": False}),
    ("KerasHub jit", "keras_hub", {"jit": True}),
    ("KerasHub graph", "keras_hub", {"jit": False}),
    ("Transformers", "transformers", {}),
    ("PyTorch TransformerEncoder", "torch_encoder", {}),
]
COMPILED = ("Transformers, torch.compile", "transformers", {"compiled": True})
REMAT = [
    ("keras_tfm jit", "ours", {"jit": True}),
    ("keras_tfm jit, remat", "ours", {"jit": True, "remat": True}),
]


def token_ids(shape, batch, length):
    """Random token ids, int32 (batch, length)."""
    rng = np.random.default_rng(0)
    return rng.integers(1, shape["vocabulary"], (batch, length)).astype("int32")


def bert(shape, length, remat=False):
    """A `Bert` of keras_tfm."""
    from keras_tfm import models

    return models.Bert(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=length, remat=remat,
    )  # fmt: skip


def ours(shape, batch, length, training, threads, jit, remat=False):
    """keras_tfm, `Bert`."""
    import keras

    made = bert(shape, length, remat)
    model = keras.Model(made.input, made.output["sequence_output"])
    ids = token_ids(shape, batch, length)
    inputs = {name: np.asarray(value) for name, value in made.complete(ids).items()}
    target = np.zeros((*ids.shape, shape["width"]), "float32")
    return keras_run(model, inputs, target, training, jit)


def keras_hub_model(shape, batch, length):
    """KerasHub's `BertBackbone` without the pooler, and inputs for it."""
    import keras
    import keras_hub as hub

    made = hub.models.BertBackbone(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=length,
    )  # fmt: skip
    ids = token_ids(shape, batch, length)
    inputs = {
        "token_ids": ids,
        "padding_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
    }
    return keras.Model(made.input, made.output["sequence_output"]), inputs


def keras_hub(shape, batch, length, training, threads, jit):
    """KerasHub, `BertBackbone`."""
    model, inputs = keras_hub_model(shape, batch, length)
    target = np.zeros((batch, length, shape["width"]), "float32")
    return keras_run(model, inputs, target, training, jit)


def transformers_model(shape, batch, length, threads):
    """Transformers' `BertModel`, token ids and a mask."""
    import torch
    from transformers import BertConfig, BertModel

    torch.set_num_threads(threads)
    config = BertConfig(
        vocab_size=shape["vocabulary"], num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"], hidden_size=shape["width"],
        intermediate_size=4 * shape["width"], max_position_embeddings=length,
    )  # fmt: skip
    ids = torch.tensor(token_ids(shape, batch, length).astype("int64"))
    return BertModel(config), ids, torch.ones_like(ids)


def transformers(shape, batch, length, training, threads, compiled=False):
    """Transformers on PyTorch, `BertModel`."""
    model, ids, mask = transformers_model(shape, batch, length, threads)
    model.train(training)
    return torch_run(
        lambda: model(ids, attention_mask=mask).last_hidden_state,
        model.parameters(),
        training,
        compiled,
    )


def torch_encoder(shape, batch, length, training, threads):
    """PyTorch, `nn.TransformerEncoder` on embeddings."""
    import torch

    torch.set_num_threads(threads)
    layer = torch.nn.TransformerEncoderLayer(
        shape["width"], shape["heads"], 4 * shape["width"], 0.1, "gelu",
        batch_first=True,
    )  # fmt: skip
    table = torch.nn.Embedding(shape["vocabulary"], shape["width"])
    encoder = torch.nn.TransformerEncoder(layer, shape["layers"])
    model = torch.nn.Sequential(table, encoder).train(training)
    ids = torch.tensor(token_ids(shape, batch, length).astype("int64"))
    return torch_run(lambda: model(ids), model.parameters(), training)


def limit(shape, batch, length, training, threads):
    """The matrix products of the blocks, with XLA."""
    import tensorflow as tf

    width, heads = shape["width"], shape["heads"]
    sizes = (width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)
    rng = np.random.default_rng(0)
    weights = [
        [tf.constant(0.02 * rng.standard_normal(s), "float32") for s in sizes]
        for _ in range(shape["layers"])
    ]
    x = tf.constant(rng.standard_normal((batch * length, width)), "float32")

    @tf.function(jit_compile=True)
    def chain(x):
        for qkv, out, wide, narrow in weights:
            heads_of = tf.reshape(x @ qkv, (batch, length, 3, heads, width // heads))
            query, key, value = tf.unstack(tf.transpose(heads_of, (2, 0, 3, 1, 4)))
            mixed = tf.matmul(tf.matmul(query, key, transpose_b=True), value)
            mixed = tf.transpose(mixed, (0, 2, 1, 3))
            x = ((tf.reshape(mixed, x.shape) @ out) @ wide) @ narrow
        return x

    times = 3 if training else 1
    return lambda: [chain(x).numpy() for _ in range(times)]


def main():
    """Run from the command line."""
    arguments = parser(__doc__, "forward,step,remat")
    arguments.add_argument("--batch", type=int, default=8, help="texts")
    arguments.add_argument("--length", type=int, default=128, help="tokens of a text")
    given = arguments.parse_args()
    shape = TINY if given.tiny else BERT
    sizes = {"shape": shape, "batch": given.batch, "length": given.length}
    kinds = {
        "forward": ("forward", [*CONTENDERS, COMPILED], False),
        "step": ("training step", CONTENDERS, True),
        "remat": ("training step, with and without remat", REMAT, True),
    }
    tables = {}
    for kind in given.tables:
        title, contenders, training = kinds[kind]
        title = f"{title}, batch {given.batch}, length {given.length}"
        settings = {**sizes, "training": training}
        how = given.threads, given.repeats
        tables[title] = speed_table("encoder", contenders, settings, *how)
        write("encoder", tables, given.output_dir)  # what is there, should one fail


if __name__ == "__main__":
    main()
