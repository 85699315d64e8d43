"""What a recurrence saves: the layer's scan in training, a small state in decoding.

    python -m benchmarks.recurrence

Tables: scan (Mamba's recurrence over --length tokens, 1,024 channels of 16 numbers,
float32, with XLA: the layer's, in segments, beside a loop over the tokens, both the
forward pass and, as in training, with the gradients) and decoding (milliseconds a token
of one layer, 512 wide, 8 heads, whose cache holds so many tokens).
"""

import numpy as np

from benchmarks.pairing import race, write
from benchmarks.steps import parser, some_of, speed_table

WIDTH, HEADS, WINDOW = 512, 8, 128
INNER, STATE, TOKENS = 1024, 16, 256


def segments(length, training, threads):
    """keras_tfm, `selective_scan`."""
    from keras_tfm.layers.selective_scan import selective_scan

    return _compiled(selective_scan, training, _sequences(length))


def loop(length, training, threads):
    """keras_tfm, `selective_step` for each token in turn."""
    import tensorflow as tf

    from keras_tfm.layers.selective_scan import selective_step

    def scan(*arguments):
        *sequences, rates = arguments
        outputs = tf.TensorArray("float32", length, element_shape=(1, 1, INNER))

        def step(i, state, outputs):
            now = [x[:, i][:, None] for x in sequences]
            output, state = selective_step(*now, rates, state)
            return i + 1, state, outputs.write(i, output)

        first = 0, tf.zeros((1, STATE, INNER)), outputs
        _, state, outputs = tf.while_loop(
            lambda i, *_: i < length, step, first, maximum_iterations=length
        )
        return outputs.stack(), state

    return _compiled(scan, training, _sequences(length))


def decoding(name, length, threads):
    """TOKENS calls of a layer with a cache, its last places."""
    import keras
    import tensorflow as tf

    from recipes.long_attention import ATTENTIONS

    layer = ATTENTIONS[name](HEADS, length, WINDOW)
    layer.build((1, length, WIDTH))
    token = tf.ones((1, 1, WIDTH))

    @tf.function(jit_compile=True)
    def run(cache):
        def step(i, output, cache):
            return i + 1, *layer.call_with_cache(token, cache, i)

        first = tf.constant(length - TOKENS), token, cache
        return keras.ops.while_loop(lambda i, *_: i < length, step, first)[1]

    cache = layer.init_cache(1, length)
    return lambda: run(cache).numpy()


def _compiled(function, training, arrays):
    import tensorflow as tf

    tensors = [tf.constant(x) for x in arrays]

    @tf.function(jit_compile=True)
    def run(*tensors):
        if not training:
            return function(*tensors)
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.reduce_mean(function(*tensors)[0] ** 2)
        return tape.gradient(loss, tensors)

    return lambda: run(*tensors)[0].numpy()


def _sequences(length):
    """What `selective_scan` takes, but the state."""
    rng = np.random.default_rng(0)
    wide = rng.uniform(0, 0.1, (2, 1, length, INNER)).astype("float32")
    narrow = rng.standard_normal((2, 1, length, STATE)).astype("float32")
    rates = -np.tile(np.arange(1, STATE + 1, dtype="float32")[:, None], (1, INNER))
    return *wide, *narrow, rates


def decoding_rows(names, lengths, given):
    """Milliseconds a token, a column for each length of the cache."""
    rows = {name: {"layer": name} for name in names}
    for length in lengths:
        contenders = [(name, "decoding", {"name": name}) for name in names]
        settings = {"length": length}
        for result in race(
            "recurrence", contenders, settings, given.threads, given.repeats
        ):
            median = result.get("median")
            cell = 1e3 * median / TOKENS if median else result["failure"]
            rows[result["name"]][f"ms at {length:,}"] = cell
    return list(rows.values())


def main():
    """Run from the command line."""
    arguments = parser(__doc__, "scan,decoding")
    arguments.add_argument("--length", type=int, default=4096, help="T of the scan")
    lengths = ",".join(str(2**power) for power in (10, 12, 14, 16))
    arguments.add_argument("--lengths", default=lengths, help="cached tokens")
    names = "dense,window,performer,mamba,mamba2"
    arguments.add_argument(
        "--attention", type=some_of(names), default=names, help="which"
    )
    given = arguments.parse_args()
    tables = {}
    if "scan" in given.tables:
        pair = [("in segments", "segments", {}), ("step by step", "loop", {})]
        for training, title in enumerate(("forward", "forward and backward")):
            settings = {"length": given.length, "training": training}
            tables[f"{given.length:,} tokens, {title}"] = speed_table(
                "recurrence", pair, settings, given.threads, given.repeats
            )
    if "decoding" in given.tables:
        lengths = [int(length) for length in given.lengths.split(",")]
        tables["decoding, milliseconds a token"] = decoding_rows(
            given.attention, lengths, given
        )
    write("recurrence", tables, given.output_dir)


if __name__ == "__main__":
    main()
