"""Single layers, forward and backward, beside Keras, KerasHub and PyTorch.

    python -m benchmarks.layers             batch 8, length 128, width 768, 12 heads
    python -m benchmarks.layers --tiny 1    toy sizes: seconds, not minutes

Backward is forward and backward together: the gradient of the mean square of the
output with respect to the inputs and all weights. No dropout.
"""

import numpy as np

from benchmarks.pairing import write
from benchmarks.steps import gradient_run, parser, speed_table

BASE = {"batch": 8, "length": 128, "width": 768, "heads": 12}
TINY = {"batch": 2, "length": 8, "width": 16, "heads": 2}
ATTENTION = [
    ("keras_tfm jit", "attention", {"jit": True}),
    ("keras_tfm graph", "attention", {"jit": False}),
    ("Keras jit", "keras_attention", {"jit": True}),
    ("Keras graph", "keras_attention", {"jit": False}),
    ("PyTorch", "torch_attention", {}),
]
BLOCK = [
    ("keras_tfm jit", "block", {"jit": True}),
    ("keras_tfm graph", "block", {"jit": False}),
    ("KerasHub jit", "keras_hub_block", {"jit": True}),
    ("KerasHub graph", "keras_hub_block", {"jit": False}),
    ("PyTorch", "torch_block", {}),
]


def _run(layer, function, sizes, backward, jit):
    """What a Keras layer does: forward, or forward and backward."""
    import tensorflow as tf

    inputs = _inputs(sizes)
    function(inputs)  # builds
    if backward:
        return gradient_run(function, inputs, layer.trainable_variables, jit)
    forward, x = tf.function(function, jit_compile=jit), tf.constant(inputs)
    return lambda: forward(x).numpy()


def attention(sizes, backward, threads, jit):
    """keras_tfm, `MultiHeadAttention`."""
    from keras_tfm import layers

    layer = layers.MultiHeadAttention(sizes["heads"])
    return _run(layer, layer, sizes, backward, jit)


def keras_attention(sizes, backward, threads, jit):
    """Keras, `MultiHeadAttention`."""
    import keras

    heads = sizes["heads"]
    layer = keras.layers.MultiHeadAttention(heads, sizes["width"] // heads)
    return _run(layer, lambda x: layer(x, x), sizes, backward, jit)


def block(sizes, backward, threads, jit):
    """keras_tfm, `TransformerEncoderBlock`."""
    from keras_tfm import layers

    layer = layers.TransformerEncoderBlock(
        layers.MultiHeadAttention(sizes["heads"]),
        layers.FeedForward(4 * sizes["width"]),
        norm_position="post",
    )
    return _run(layer, layer, sizes, backward, jit)


def keras_hub_block(sizes, backward, threads, jit):
    """KerasHub, `TransformerEncoder`."""
    import keras_hub as hub

    layer = hub.layers.TransformerEncoder(
        4 * sizes["width"], sizes["heads"], activation="gelu"
    )
    return _run(layer, layer, sizes, backward, jit)


def _torch(module, function, sizes, backward, threads):
    """What a PyTorch module does."""
    import torch

    torch.set_num_threads(threads)
    module.train(backward)
    x = torch.tensor(_inputs(sizes), requires_grad=backward)
    if backward:
        return lambda: (function(x) ** 2).mean().backward()

    def infer():
        with torch.inference_mode():
            function(x)

    return infer


def torch_attention(sizes, backward, threads):
    """PyTorch, `nn.MultiheadAttention`."""
    import torch

    module = torch.nn.MultiheadAttention(
        sizes["width"], sizes["heads"], batch_first=True
    )

    def function(x):
        return module(x, x, x, need_weights=False)[0]

    return _torch(module, function, sizes, backward, threads)


def torch_block(sizes, backward, threads):
    """PyTorch, `nn.TransformerEncoderLayer`."""
    import torch

    module = torch.nn.TransformerEncoderLayer(
        sizes["width"], sizes["heads"], 4 * sizes["width"], 0.0, "gelu",
        batch_first=True,
    )  # fmt: skip
    return _torch(module, module, sizes, backward, threads)


def _inputs(sizes):
    shape = sizes["batch"], sizes["length"], sizes["width"]
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def main():
    """Run from the command line."""
    given = parser(__doc__, "attention,block").parse_args()
    sizes = TINY if given.tiny else BASE
    kinds = {"attention": ATTENTION, "block": BLOCK}
    tables = {}
    for kind in given.tables:
        for backward in (False, True):
            title = f"{kind}, {'forward and backward' if backward else 'forward'}"
            settings = {"sizes": sizes, "backward": backward}
            how = given.threads, given.repeats
            tables[title] = speed_table("layers", kinds[kind], settings, *how)
    write("layers", tables, given.output_dir)


if __name__ == "__main__":
    main()
