"""Which array of a checkpoint is which weight of a model, and in what layout.

A family of models is a tuple of entries. `{i}` in both names stands for a number
that runs over the layers: an entry with it stands for as many weights as match.
"""

import dataclasses
import re
from collections.abc import Callable

import numpy as np

from keras_tfm.checkpoints.errors import CheckpointError


@dataclasses.dataclass(frozen=True)
class Layout:
    """How an array lies in the file and in the model: two functions, each's inverse.

    Args:
        read: from the file's array, or the entry's part of it, to the weight.
        write: from the weight to the file's array or part.
        part: (index, count) if the file keeps `count` weights of one size in one
            array, cut along `axis`; None otherwise.
        axis: int, of the file's array.
    """

    read: Callable
    write: Callable
    part: tuple | None = None
    axis: int = 0


def _same(array):
    return array


SAME = Layout(_same, _same)
# A row for a whole batch: (1, D) or (1, 1, D) in the file, (D,) or (1, D) here.
ROW = Layout(lambda array: np.squeeze(array, 0), lambda weight: weight[None])
LINEAR = Layout(np.transpose, np.transpose)  # (out, in) in the file, (in, out) here


def part_of(index, count, axis=0, layout=SAME):
    """The layout of one of `count` weights that the file keeps in one array.

    Args:
        index: int, which of them.
        count: int.
        axis: int, of the file's array, that they lie along.
        layout: `Layout` of the part itself.
    """
    return dataclasses.replace(layout, part=(index, count), axis=axis)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One weight, or one a layer: its path in our model and its name in the file."""

    ours: str
    theirs: str
    layout: Layout = SAME


def linear(ours, theirs):
    """The entries of a dense layer with a bias.

    Args:
        ours: path of the layer in our model.
        theirs: its name in the file.
    """
    return (
        Entry(f"{ours}/kernel", f"{theirs}.weight", LINEAR),
        Entry(f"{ours}/bias", f"{theirs}.bias"),
    )


def norm(ours, theirs):
    """The entries of a layer norm with scale and shift; see `linear`."""
    return (
        Entry(f"{ours}/gamma", f"{theirs}.weight"),
        Entry(f"{ours}/beta", f"{theirs}.bias"),
    )


def find_entry(entries, path):
    """The entry of a weight, with its numbers filled in.

    Args:
        entries: iterable of `Entry`.
        path: str, the weight's.

    Returns: `Entry` without `{i}`, or None.
    """
    for entry in entries:
        pattern = re.escape(entry.ours).replace(r"\{i\}", r"(\d+)")
        match = re.fullmatch(pattern, path)
        if match:
            number = match.group(1) if match.groups() else ""
            theirs = entry.theirs.replace("{i}", number)
            return dataclasses.replace(entry, ours=path, theirs=theirs)
    return None


def read_weight(entry, arrays):
    """The value of a weight, in float32.

    Args:
        entry: `Entry` without `{i}`.
        arrays: `Arrays` of the file.
    """
    return _read(entry.layout, np.asarray(arrays[entry.theirs], "float32"))


def shape_read(layout, shape):
    """Shape of the weight that an array would give, None if it cannot be one.

    Args:
        layout: `Layout`.
        shape: tuple, of the file's array.
    """
    hollow = np.broadcast_to(np.float32(0), shape)  # takes no memory
    try:
        return _read(layout, hollow).shape
    except ValueError:  # cannot be cut or turned so
        return None


def _read(layout, array):
    if layout.part is not None:
        index, count = layout.part
        array = np.split(array, count, axis=layout.axis)[index]
    return layout.read(array)


def write_weights(entries, values):
    """The arrays of a file, from the weights of a model.

    Args:
        entries: list of `Entry` without `{i}`, one a weight.
        values: list of NumPy arrays, the weights.

    Returns: dict from name to array.
    """
    pieces = {}
    for entry, value in zip(entries, values):
        index, count = entry.layout.part or (0, 1)
        whole = pieces.setdefault(entry.theirs, [None] * count)
        whole[index] = np.ascontiguousarray(entry.layout.write(value))
    axes = {entry.theirs: entry.layout.axis for entry in entries}
    lacking = [name for name, parts in pieces.items() if any(p is None for p in parts)]
    if lacking:
        raise CheckpointError(f"The model has only a part of {', '.join(lacking)}.")
    return {
        name: parts[0] if len(parts) == 1 else np.concatenate(parts, axes[name])
        for name, parts in pieces.items()
    }
