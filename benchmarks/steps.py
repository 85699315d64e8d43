"""What the benchmarks of models share: a forward pass or a step, a table, arguments."""

import argparse
import os

from benchmarks.pairing import race


def keras_run(model, inputs, target, training, jit):
    """A forward pass or an AdamW step of a Keras model, compiled.

    Args:
        model: `keras.Model` of one output.
        inputs: array or dict of arrays.
        target: array like the output.
        training: bool, a step.
        jit: bool, with XLA.

    Returns: function that does it once.
    """
    import keras
    import tensorflow as tf

    if not training:
        forward = tf.function(lambda x: model(x, training=False), jit_compile=jit)
        inputs = keras.tree.map_structure(tf.constant, inputs)
        return lambda: forward(inputs).numpy()
    model.compile(keras.optimizers.AdamW(1e-4), "mse", jit_compile=jit)
    return lambda: model.train_on_batch(inputs, target)


def torch_run(forward, parameters, training, compiled=False):
    """A forward pass or an AdamW step of a PyTorch model.

    Args:
        forward: function that gives the output.
        parameters: of the model.
        training: bool, a step.
        compiled: bool, through `torch.compile`.

    Returns: function that does it once.
    """
    import torch

    if compiled:
        forward = torch.compile(forward)
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


def gradient_run(function, inputs, weights, jit):
    """A forward and backward pass of one TensorFlow function, without an optimizer.

    Args:
        function: of the inputs.
        inputs: array.
        weights: list of Keras or TensorFlow variables.
        jit: bool, with XLA.

    Returns: function that does it once.
    """
    import keras
    import tensorflow as tf

    x = tf.constant(inputs)
    values = [w.value if isinstance(w, keras.Variable) else w for w in weights]

    @tf.function(jit_compile=jit)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_mean(function(x) ** 2)
        return tape.gradient(loss, [x, *values])

    return lambda: step(x)[0].numpy()


def speed_table(module, contenders, settings, threads, repeats):
    """A row for each contender, and how fast it is beside the first.

    Args:
        module: str, in benchmarks/.
        contenders: list of (name, function, further settings).
        settings: dict that all are given.
        threads: int.
        repeats: int.

    Returns: list of dicts.
    """
    results = race(module, contenders, settings, threads, repeats)
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
                **result["notes"],
            }
        )
    return rows


def some_of(known):
    """The type of an argument of names with commas: a list of known ones, or an error.

    Args:
        known: str, names with commas.

    Returns: function of a str.
    """

    def read(text):
        for name in (names := text.split(",")):
            if name not in known.split(","):
                raise argparse.ArgumentTypeError(f"{name!r} is not of {known}")
        return names

    return read


def parser(doc, tables):
    """The arguments that every benchmark has.

    Args:
        doc: str, the module's docstring.
        tables: str, the names of the tables, with commas.

    Returns: `argparse.ArgumentParser`.
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--tables", type=some_of(tables), default=tables, help="which")
    made.add_argument("--tiny", type=int, default=0, help="1: toy models")
    made.add_argument("--repeats", type=int, default=5, help="rounds that count")
    made.add_argument("--threads", type=int, default=os.cpu_count(), help="of each")
    made.add_argument("--output-dir", default="outputs/benchmarks", help="for files")
    return made
