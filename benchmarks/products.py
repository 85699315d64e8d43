"""The products with weights of one decoding step, one after another, nothing else.

A contender takes a `shape` (see `benchmarks.generation.GPT2`), `rows` of all batches
and beams, `cross` for blocks with cross-attention to keys and values that are there,
and `threads`, and returns the function that is timed.
"""


def sizes(shape, cross):
    """Shapes of the matrices of all blocks, attention and feed-forward."""
    width = shape["width"]
    block = [(width, 3 * width), (width, width)] + 2 * cross * [(width, width)]
    block += [(width, 4 * width), (4 * width, width)]
    return shape["layers"] * block


def chain(x, weights):
    """As much of each product as the next matrix takes."""
    width = len(weights[0])
    for weight in weights:
        x = x[:, : len(weight)] @ weight
    return x[:, :width]


def xla(shape, rows, cross, threads):
    """XLA, compiled by TensorFlow."""
    import tensorflow as tf

    weights = [tf.fill(size, 1 / size[0]) for size in sizes(shape, cross)]
    x = tf.ones((rows, shape["width"]))
    table = tf.ones((shape["vocabulary"], shape["width"]))

    @tf.function(jit_compile=True)
    def step(x, weights, table):
        return tf.matmul(chain(x, weights), table, transpose_b=True)

    return lambda: step(x, weights, table).numpy()


def torch(shape, rows, cross, threads):
    """PyTorch."""
    import torch

    torch.set_num_threads(threads)
    weights = [torch.full(size, 1 / size[0]) for size in sizes(shape, cross)]
    x = torch.ones(rows, shape["width"])
    table = torch.ones(shape["vocabulary"], shape["width"])
    return lambda: (chain(x, weights) @ table.T).numpy()
