"""What of a checkpoint goes where: a table to read, and to refuse by.

Every weight of the model is matched with an array before any is read, so a
checkpoint that does not fit leaves nothing half-loaded.
"""

import dataclasses
import re

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.weight_map import find_entry, shape_read

SHOWN = 5  # names in an error


@dataclasses.dataclass(frozen=True)
class Report:
    """Which arrays a model takes from a checkpoint, by name, with shapes.

    Args:
        source: str, where the arrays come from.
        used: dict from a weight's path to its `Entry`.
        shapes: dict from a weight's path to its shape.
        missing: dict from a weight's path to its shape: not in the file.
        unused: dict from an array's name to its shape: not in the model.
        known: dict likewise, of arrays known to hold nothing new (buffers, second
            copies of tied weights).
    """

    source: str
    used: dict
    shapes: dict
    missing: dict
    unused: dict
    known: dict

    def __str__(self):
        counts = (
            f"{self.source}: {len(self.used)} weights read, {len(self.missing)} "
            f"missing, {len(self.unused)} arrays unused, {len(self.known)} redundant."
        )
        lines = [
            f"  read       {entry.theirs} -> {path} {self.shapes[path]}"
            for path, entry in self.used.items()
        ]
        lines += [f"  missing    {path} {s}" for path, s in self.missing.items()]
        lines += [f"  unused     {name} {s}" for name, s in self.unused.items()]
        lines += [f"  redundant  {name} {s}" for name, s in self.known.items()]
        return "\n".join([counts, *lines])


def match(model, arrays, entries, redundant=(), source="checkpoint"):
    """Match the weights of a model with the arrays of a checkpoint.

    Args:
        model: built model.
        arrays: `Arrays`, under the family's own names.
        entries: iterable of `Entry`.
        redundant: regular expressions of array names that hold nothing new.
        source: str, for messages.

    Returns: `Report`.

    Raises:
        CheckpointError: if an array has another shape than the weight.
    """
    shapes = {w.path: tuple(w.shape) for w in weights_of(model)}
    found = {path: find_entry(entries, path) for path in shapes}
    used = {
        path: entry
        for path, entry in found.items()
        if entry is not None and entry.theirs in arrays
    }
    _check_shapes(used, shapes, arrays, source)
    taken = {entry.theirs for entry in used.values()}
    left = {name: arrays.shape_of(name) for name in arrays if name not in taken}
    known = {
        name: shape
        for name, shape in left.items()
        if any(re.fullmatch(pattern, name) for pattern in redundant)
    }
    return Report(
        source=source,
        used=used,
        shapes=shapes,
        missing={path: s for path, s in shapes.items() if path not in used},
        unused={name: s for name, s in left.items() if name not in known},
        known=known,
    )


def weights_of(model):
    """The weights that a checkpoint carries: all but the states of dropout.

    Args:
        model: built model.
    """
    return [w for w in model.weights if "seed_generator_state" not in w.path]


def refuse_missing(report, is_head):
    """Raise if the backbone lacks an array.

    Args:
        report: `Report`.
        is_head: function from a weight's path to bool.

    Raises:
        CheckpointError: naming the first missing arrays.
    """
    lacking = [path for path in report.missing if not is_head(path)]
    if lacking:
        raise CheckpointError(
            f"{report.source} lacks {len(lacking)} weights of the backbone: "
            f"{_first(lacking)}. It has these arrays that were not used: "
            f"{_first(list(report.unused)) or 'none'}."
        )


def _check_shapes(used, shapes, arrays, source):
    """Refuse arrays of another shape, before any is read."""
    for path, entry in used.items():
        there = arrays.shape_of(entry.theirs)
        if shape_read(entry.layout, there) != shapes[path]:
            raise CheckpointError(
                f"{source}: {entry.theirs} has shape {there}, which does not fit "
                f"{path} {shapes[path]}."
            )


def _first(names):
    more = "" if len(names) <= SHOWN else f" and {len(names) - SHOWN} more"
    return ", ".join(names[:SHOWN]) + more
