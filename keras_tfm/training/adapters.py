"""The layers of a model that have an adapter or could have one.

Letters: I width of the input, O of the output, R rank.
"""

import contextlib
import dataclasses
import gc

import keras
import numpy as np

KINDS = (keras.layers.Dense, keras.layers.EinsumDense)


@dataclasses.dataclass(frozen=True)
class Merged:
    """What a merged layer was made of; kept on it for `unmerge_lora`.

    Args:
        kernel: the kernel before, of shape (I, O).
        a: (I, R), or (..., R) as the kernel of an `EinsumDense` has more axes.
        b: (R, O).
        alpha: float.
        trainable: tuple of bools: the kernel, a and b.
    """

    kernel: np.ndarray
    a: np.ndarray
    b: np.ndarray
    alpha: float
    trainable: tuple


def projections(model):
    """The layers that could have an adapter.

    Args:
        model: a `keras.Model`.

    Returns: dict from paths to layers, in the model's order.

    Raises:
        ValueError: two layers of one path, which a file could not tell apart.
    """
    found = {}
    for layer in all_layers(model):
        if isinstance(layer, KINDS) and layer.built:
            path = _path(layer)
            if found.setdefault(path, layer) is not layer:
                raise ValueError(f"`model` must not have two layers of path {path}.")
    return found


def adapted(model):
    """The layers with an adapter: dict from paths to layers."""
    return {p: x for p, x in projections(model).items() if x.lora_enabled}


def merged(model):
    """The layers whose adapter is merged: dict from paths to layers."""
    return {
        path: layer
        for path, layer in projections(model).items()
        if hasattr(layer, "keras_tfm_merged")
    }


def enable(layer, rank, alpha=None, seed=None):
    """Give a layer an adapter that adds nothing yet.

    Args:
        layer: of `KINDS`, built.
        rank: int R.
        alpha: float or None.
        seed: int or None.
    """
    start = keras.initializers.HeUniform(seed=seed)
    layer.enable_lora(rank, lora_alpha=alpha, a_initializer=start)


@contextlib.contextmanager
def quick_deletion():
    """Where attributes of many layers are deleted.

    Keras collects garbage at each of them, which takes seconds in a process with many
    objects; here it finds nothing but what is new.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def forget_compiled(model):
    """Drop the graphs that hold the layers as they were, also those of `generate`.

    Args:
        model: a `keras.Model`.
    """
    parts = [model, *(x for x in all_layers(model) if isinstance(x, keras.Model))]
    for part in parts:
        part.train_function = part.test_function = part.predict_function = None
        vars(part).pop("_keras_tfm_generators", None)


def all_layers(model):
    """The layers in a model, of all depths, each once."""
    found = {}

    def visit(parent):
        for part in _parts(parent):
            if id(part) not in found:
                found[id(part)] = part
                visit(part)

    visit(model)
    return list(found.values())


def _parts(layer):
    """The layers that a layer has as attributes, alone or in a list."""
    if isinstance(layer, keras.Model):
        return layer.layers
    values = []
    for value in vars(layer).values():
        values += value if isinstance(value, (list, tuple)) else [value]
    return [value for value in values if isinstance(value, keras.layers.Layer)]


def _path(layer):
    """The start of its weights' paths, "block_0/attention/query"."""
    return layer.weights[0].path.rpartition("/")[0]


def freeze(model, kept):
    """Let nothing of a model be trained but some weights.

    Args:
        model: a `keras.Model`; every layer may have weights that move.
        kept: set of the ids of these weights.
    """
    model.trainable = True
    for weight in model.weights:
        weight.trainable = weight.trainable and id(weight) in kept
