"""The long-sequence family: time and memory against length, forward and backward.

    python -m benchmarks.long                            1,024 to 65,536 tokens
    python -m benchmarks.long --lengths 1024,2048 --attention window,performer

Tables: members (one layer, 8 heads of 64, both directions, batch 1, float32, with XLA,
beside dense and blockwise attention; Mamba mixes 1,024 channels), slopes (of time and
memory in log-log, and from which length on a member beats the two), peers (layers of
Transformers on PyTorch and of the TensorFlow Model Garden, at --peer-length). Memory is
the most that a process took beyond what it had before, XLA's compiler included.
"""

import itertools

import numpy as np

from benchmarks.long_peers import HEADS, WIDTH, WINDOW, inputs_of
from benchmarks.pairing import Contender, compare, race, write
from benchmarks.steps import gradient_run, parser, some_of

EXACT = ("dense", "blockwise")


def ours(name, length, threads):
    """A layer of keras_tfm, compiled with XLA."""
    import keras

    from recipes.long_attention import ATTENTIONS

    keras.utils.set_random_seed(0)
    layer = ATTENTIONS[name](HEADS, length, WINDOW)
    layer.build((1, length, WIDTH))
    weights = layer.trainable_variables
    return gradient_run(layer, inputs_of(length), weights, jit=True)


PEERS = [  # ours, theirs, its function, and the longest that it does in a minute
    ("longformer", "Transformers, Longformer", "longformer", 65536),
    ("bigbird", "Transformers, BigBird", "big_bird", 65536),
    ("bigbird", "TF Model Garden, BigBird", "garden_big_bird", 65536),
    ("performer", "TF Model Garden, Performer", "garden_performer", 65536),
    ("lsh", "Transformers, Reformer", "reformer", 65536),
    ("mamba", "Transformers, Mamba", "mamba", 512),
]


def rows_of(length, names, given):
    """A row of the table of members for each at one length."""
    limits = {"dense": given.dense_up_to, "blockwise": given.blockwise_up_to}
    names = [name for name in names if length <= limits.get(name, length)]
    contenders = [(name, "ours", {"name": name}) for name in names]
    size = len(names) if length <= given.together_up_to else 1
    results = []
    for i in range(0, len(contenders), size):
        some, settings = contenders[i : i + size], {"length": length}
        results += race("long", some, settings, given.threads, given.repeats)
    return [_row(result, tokens=length) for result in results]


def _row(result, **first):
    spread = f"{result['spread']:.0%}" if "spread" in result else ""
    return {
        **first,
        "contender": result["name"],
        "seconds": result.get("median", result.get("failure")),
        "spread": spread,
        "peak MiB": round(result["peak"]) if "peak" in result else "",
    }


def slopes(rows):
    """How time and memory grow, and from which length on a member is faster.

    Args:
        rows: of the table of members.

    Returns: list of dicts.
    """
    found = []
    by_name = {row["contender"]: {} for row in rows}
    for row in rows:
        if not isinstance(row["seconds"], str):
            by_name[row["contender"]][row["tokens"]] = row
    for name, points in by_name.items():
        row = {"contender": name}
        for column in ("seconds", "peak MiB"):
            values = [points[tokens][column] for tokens in points]
            if len(values) > 1:
                fit = np.polyfit(np.log(list(points)), np.log(values), 1)
                row[f"slope of {column}"] = float(fit[0])
        for exact in EXACT:
            if exact in by_name and name not in EXACT:
                row[f"faster than {exact} from"] = _crossover(points, by_name[exact])
        found.append(row)
    return found


def _crossover(points, exact):
    """The first length from which on all times are below those of `exact`."""
    both = sorted(set(points) & set(exact))
    faster = [points[t]["seconds"] < exact[t]["seconds"] for t in both]
    tail = list(itertools.takewhile(bool, reversed(faster)))
    return both[-len(tail)] if tail else f"not up to {both[-1]}" if both else ""


def peers(names, given):
    """A table of other libraries' layers, each beside ours."""
    rows = []
    for name, title, function, longest in PEERS:
        if name in names:
            length = min(given.peer_length, longest)
            pair = [
                (name, "long:ours", {"name": name}),
                (title, f"long_peers:{function}", {}),
            ]
            contenders = [
                Contender(n, f"benchmarks.{f}", {"length": length, **x}, given.threads)
                for n, f, x in pair
            ]
            results = compare(contenders, given.repeats)
            rows += [_row(result, tokens=length) for result in results]
    return rows


def draw(rows, folder):
    """Time and memory against length, both axes logarithmic."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    for axis, column in zip(axes, ("seconds", "peak MiB")):
        for name in dict.fromkeys(row["contender"] for row in rows):
            points = [
                (row["tokens"], row[column])
                for row in rows
                if row["contender"] == name and not isinstance(row["seconds"], str)
            ]
            style = "--" if name in EXACT else "o-"
            axis.loglog(*zip(*points), style, label=name, base=2)
        axis.set(xlabel="tokens", ylabel=column)
    axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(f"{folder}/long.png", dpi=120)


def main():
    """Run from the command line."""
    from recipes.long_attention import ATTENTIONS

    arguments = parser(__doc__, "members,slopes,peers")
    lengths = ",".join(str(2**power) for power in range(10, 17))
    arguments.add_argument("--lengths", default=lengths, help="T")
    known = ",".join(ATTENTIONS)
    arguments.add_argument(
        "--attention", type=some_of(known), default=known, help="which"
    )
    arguments.add_argument("--dense-up-to", type=int, default=8192, help="longest T")
    arguments.add_argument("--blockwise-up-to", type=int, default=16384, help="same")
    arguments.add_argument(
        "--together-up-to", type=int, default=16384,
        help="T beyond which memory wants them one after another, not in turns",
    )  # fmt: skip
    arguments.add_argument("--peer-length", type=int, default=4096, help="T of peers")
    given = arguments.parse_args()
    names = given.attention
    tables, rows = {}, []
    if "members" in given.tables:
        for length in map(int, given.lengths.split(",")):
            rows += rows_of(length, names, given)
            tables["one layer, 8 heads of 64, forward and backward"] = rows
            write("long", tables, given.output_dir)
    if "slopes" in given.tables and rows:
        tables["slopes in log-log"] = slopes(rows)
    if "peers" in given.tables:
        tables["beside other libraries"] = peers(names, given)
    write("long", tables, given.output_dir)
    if rows:
        draw(rows, given.output_dir)


if __name__ == "__main__":
    main()
