"""BERT-base, forward and training step, beside its peers and the matrix products alone.

    python -m benchmarks.encoder                    batch 8, length 128
    python -m benchmarks.encoder --tiny 1           toy models: seconds, not minutes

The training step is AdamW on the mean square of the last hidden states, dropout 0.1.
Peers: pip install -e ".[benchmarks]"; one that is not installed is named, not run.
The limit is the chain of the model's matrix products and nothing else; for a training
step three times that.
"""

import argparse
import os

import numpy as np

from benchmarks.pairing import race, write

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
REMAT = [
    ("keras_tfm jit", "ours", {"jit": True}),
    ("keras_tfm jit, remat", "ours", {"jit": True, "remat": True}),
]


def _ids(shape, batch, length):
    rng = np.random.default_rng(0)
    return rng.integers(1, shape["vocabulary"], (batch, length)).astype("int32")


def _keras_run(model, inputs, target, training, jit):
    """Forward or a step of a Keras model, compiled."""
    import keras
    import tensorflow as tf

    if not training:
        forward = tf.function(lambda x: model(x, training=False), jit_compile=jit)
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        return lambda: forward(inputs).numpy()
    optimizer = keras.optimizers.AdamW(1e-4)
    model.compile(optimizer, "mse", jit_compile=jit)
    return lambda: model.train_on_batch(inputs, target)


def ours(shape, batch, length, training, threads, jit, remat=False):
    """keras_tfm, `Bert`."""
    import keras

    from keras_tfm import models

    bert = models.Bert(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=length, remat=remat,
    )  # fmt: skip
    model = keras.Model(bert.input, bert.output["sequence_output"])
    ids = _ids(shape, batch, length)
    inputs = bert.complete(ids)
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    target = np.zeros((*ids.shape, shape["width"]), "float32")
    return _keras_run(model, inputs, target, training, jit)


def keras_hub(shape, batch, length, training, threads, jit):
    """KerasHub, `BertBackbone`."""
    import keras
    import keras_hub as hub

    bert = hub.models.BertBackbone(
        shape["vocabulary"], shape["layers"], shape["heads"], shape["width"],
        4 * shape["width"], max_sequence_length=length,
    )  # fmt: skip
    model = keras.Model(bert.input, bert.output["sequence_output"])
    ids = _ids(shape, batch, length)
    inputs = {
        "token_ids": ids,
        "padding_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
    }
    target = np.zeros((*ids.shape, shape["width"]), "float32")
    return _keras_run(model, inputs, target, training, jit)


def _torch_run(forward, parameters, training):
    """Forward or a step of a PyTorch model."""
    import torch

    if not training:

        def infer():
            with torch.inference_mode():
                forward()

        return infer
    optimizer = torch.optim.AdamW(parameters, 1e-4)

    def step():
        optimizer.zero_grad()
        (forward() ** 2).mean().backward()
        optimizer.step()

    return step


def transformers(shape, batch, length, training, threads):
    """Transformers on PyTorch, `BertModel`."""
    import torch
    from transformers import BertConfig, BertModel

    torch.set_num_threads(threads)
    config = BertConfig(
        vocab_size=shape["vocabulary"], num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"], hidden_size=shape["width"],
        intermediate_size=4 * shape["width"], max_position_embeddings=length,
    )  # fmt: skip
    model = BertModel(config).train(training)
    ids = torch.tensor(_ids(shape, batch, length).astype("int64"))
    mask = torch.ones_like(ids)
    return _torch_run(
        lambda: model(ids, attention_mask=mask).last_hidden_state,
        model.parameters(),
        training,
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
    ids = torch.tensor(_ids(shape, batch, length).astype("int64"))
    return _torch_run(lambda: model(ids), model.parameters(), training)


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


def table(contenders, shape, batch, length, training, threads, repeats):
    """A row for each contender, and how fast it is beside the first."""
    settings = {
        "shape": shape, "batch": batch, "length": length, "training": training,
    }  # fmt: skip
    results = race("encoder", contenders, settings, threads, repeats)
    best, rows = results[0].get("median"), []
    for result in results:
        if "failure" in result:
            rows.append({"contender": result["name"], "seconds": result["failure"]})
            continue
        rows.append(
            {
                "contender": result["name"],
                "seconds": result["median"],
                "spread": f"{result['spread']:.0%}",
                "times the first": best / result["median"] if best else "",
                "peak MiB": round(result["peak"]),
            }
        )
    return rows


def main():
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default="forward,step,remat", help="which")
    parser.add_argument("--tiny", type=int, default=0, help="1: toy models")
    parser.add_argument("--batch", type=int, default=8, help="texts")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--repeats", type=int, default=5, help="rounds that count")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each")
    parser.add_argument("--output-dir", default="outputs/benchmarks", help="for files")
    given = parser.parse_args()
    shape = TINY if given.tiny else BERT
    sizes = shape, given.batch, given.length
    how = given.threads, given.repeats
    kinds = {
        "forward": ("forward", CONTENDERS, False),
        "step": ("training step", CONTENDERS, True),
        "remat": ("training step, with and without remat", REMAT, True),
    }
    tables = {}
    for kind in given.tables.split(","):
        title, contenders, training = kinds[kind]
        title = f"{title}, batch {given.batch}, length {given.length}"
        tables[title] = table(contenders, *sizes, training, *how)
    write("encoder", tables, given.output_dir)


if __name__ == "__main__":
    main()
