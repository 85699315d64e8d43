"""From a checkpoint to a model."""

import dataclasses
import warnings

from keras_tfm.checkpoints.arrays import Arrays
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.families import family_of_source
from keras_tfm.checkpoints.report import match, refuse_missing, weights_of
from keras_tfm.checkpoints.source import open_source
from keras_tfm.checkpoints.weight_map import find_entry, read_weight, shape_read


def load_pretrained(path_or_name, task=None, num_classes=None, dtype=None, **changes):
    """A model with the config and the weights of a checkpoint.

    Sizes, activations and epsilons come from the checkpoint's config. A weight of
    the backbone that the checkpoint lacks is an error; a head that it lacks is
    freshly initialised, with a warning.

    Args:
        path_or_name: a folder with `config.json` and weights, one file of it, a GGUF
            file, or a name that `huggingface_hub` can fetch.
        task: "backbone", "classification", or what else the family has; that of the
            checkpoint unless given.
        num_classes: int, of a classification head; the checkpoint's unless given. A
            head of another size is freshly initialised.
        dtype: dtype policy of the model; the weights stay float32.
        **changes: constructor arguments of the backbone that differ, such as
            `dropout`, `remat` or `image_size`.

    Returns: `keras.Model`.

    Raises:
        CheckpointError: (a `ValueError`) nothing there, no config, an unknown
            architecture, a cut file, a missing array, a shape that does not fit.
    """
    loading = _prepare(path_or_name, task, num_classes, dtype, changes)
    fresh = list(loading.report.missing)
    if fresh:
        warnings.warn(
            f"{loading.report.source} has no {', '.join(fresh)}: freshly initialised.",
            stacklevel=2,
        )
    for weight in weights_of(loading.model):
        entry = loading.report.used.get(weight.path)
        if entry is not None:
            weight.assign(read_weight(entry, loading.arrays))
    return loading.model


def pretrained_report(path_or_name, task=None, num_classes=None, **changes):
    """What `load_pretrained` would read, and what it would leave: a table to print.

    Args:
        path_or_name: see `load_pretrained`, as all that follow.
        task: str.
        num_classes: int.
        **changes: constructor arguments of the backbone that differ.

    Returns: `Report`, with every array used, missing or unused, with its shape.

    Raises:
        CheckpointError: as `load_pretrained`.
    """
    return _prepare(path_or_name, task, num_classes, None, changes).report


@dataclasses.dataclass(frozen=True)
class _Loading:
    """A fresh model, the arrays for it, and which goes where."""

    model: object
    arrays: Arrays
    report: object


def _prepare(path_or_name, task_name, num_classes, dtype, changes):
    """Everything but the reading of the arrays."""
    source = open_source(path_or_name)
    family = family_of_source(source)
    arrays = family.without_prefix(source.arrays)
    task_name = task_name or family.task_of(source.config, arrays)
    if task_name not in family.tasks:
        raise CheckpointError(
            f"{source.label} can be loaded for {', '.join(family.tasks)}, not for "
            f"{task_name!r}."
        )
    task = family.tasks[task_name]
    changes = {**task.changes, **changes}
    backbone = family.build(source.config, dtype=dtype, **changes)
    classes = num_classes or task.classes_in(arrays)
    model = task.build(backbone, source.config, classes)
    if num_classes is not None:
        arrays = _without_other_heads(model, task, arrays)
    body = family.entries_of(source.config, backbone)
    entries = (*task.entries, *body)
    report = match(model, arrays, entries, family.redundant, source.label)
    backbone_paths = {weight.path for weight in backbone.weights}
    refuse_missing(
        report, lambda path: path not in backbone_paths or family.may_lack(path)
    )
    return _Loading(model, arrays, report)


def _without_other_heads(model, task, arrays):
    """The arrays without those of a head that has another number of classes."""
    entries = [(w, find_entry(task.entries, w.path)) for w in model.weights]
    other = {
        entry.theirs
        for weight, entry in entries
        if entry is not None
        and entry.theirs in arrays
        and shape_read(entry.layout, arrays.shape_of(entry.theirs))
        != tuple(weight.shape)
    }
    shapes = {n: arrays.shape_of(n) for n in arrays if n not in other}
    return Arrays(shapes, arrays.__getitem__)
