"""Adapters in a file of their own: small, and put on any model of the same base.

The file is NumPy's .npz: "<layer's path>/lora_a" and "/lora_b", the other weights that
were trained (a head) under their own paths, and "adapters", a JSON text with the rank
and alpha of every layer.
"""

import json
import os
import zipfile

import keras
import numpy as np
from keras import ops

from keras_tfm.training import adapters
from keras_tfm.training.lora import count_parameters

SETTINGS = "adapters"
FACTORS = ("lora_a", "lora_b")


def save_lora(model, path):
    """Write what LoRA trains, and nothing of the frozen model, into one file.

    Args:
        model: a model after `add_lora`, not merged.
        path: path of the file, by custom with the ending .npz.

    Raises:
        ValueError: a model without adapters.
    """
    layers = adapters.adapted(model)
    if not layers:
        merged = " (`unmerge_lora` first)" if adapters.merged(model) else ""
        raise ValueError(f"`model` must have adapters{merged}, got none.")
    arrays, settings = {}, {}
    for name, layer in layers.items():
        factors = layer.lora_kernel_a, layer.lora_kernel_b
        for factor, weight in zip(FACTORS, factors):
            arrays[f"{name}/{factor}"] = ops.convert_to_numpy(weight)
        settings[name] = {"rank": layer.lora_rank, "alpha": layer.lora_alpha}
    for weight in _other_weights(model, layers):
        arrays[weight.path] = _to_float32(weight)
    arrays[SETTINGS] = np.array(json.dumps({"version": 1, "layers": settings}))
    part = f"{os.fspath(path)}.part"
    with open(part, "wb") as file:
        np.savez(file, **arrays)
    os.replace(part, path)


def load_lora(model, path, verbose=True):
    """Put saved adapters, and the heads trained with them, on a model.

    A model without adapters is given them as by `add_lora`, and what the file does not
    hold is frozen; the adapters of a model that has some are replaced.

    Args:
        model: a built `keras.Model` with the base that the adapters were trained on.
        path: path of a file that `save_lora` wrote.
        verbose: bool, whether the count is printed.

    Returns: `ParameterCount`, of what is trained now.

    Raises:
        ValueError: a file that cannot be read, or whose arrays do not fit the model;
            the model is then as it was.
    """
    arrays, settings = _read(path)
    layers = adapters.projections(model)
    weights = {weight.path: weight for weight in model.weights}
    if adapters.merged(model):
        raise ValueError("`model` holds merged adapters; call `unmerge_lora` first.")
    _check(path, arrays, settings, layers, weights, adapters.adapted(model))
    heads = {n: a for n, a in arrays.items() if n.rpartition("/")[2] not in FACTORS}
    if not adapters.adapted(model):
        adapters.freeze(model, {id(weights[name]) for name in heads})
        for name, own in settings.items():
            adapters.enable(layers[name], own["rank"], own["alpha"])
    for name in settings:
        layers[name].lora_kernel_a.assign(arrays[f"{name}/lora_a"])
        layers[name].lora_kernel_b.assign(arrays[f"{name}/lora_b"])
    for name, array in heads.items():
        weights[name].assign(array)
    adapters.forget_compiled(model)
    count = count_parameters(model)
    if verbose:
        print(count)
    return count


def _other_weights(model, layers):
    """What is trained beside the adapters."""
    factors = {
        id(weight)
        for layer in layers.values()
        for weight in (layer.lora_kernel_a, layer.lora_kernel_b)
    }
    return [w for w in model.trainable_weights if id(w) not in factors]


def _to_float32(weight):
    """As NumPy, which lacks bfloat16."""
    if keras.backend.standardize_dtype(weight.dtype) == "bfloat16":
        weight = ops.cast(weight, "float32")
    return ops.convert_to_numpy(weight)


def _read(path):
    """The arrays, and the rank and alpha of each layer."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        settings = json.loads(str(arrays.pop(SETTINGS)))["layers"]
        for own in settings.values():
            own["rank"], own["alpha"] = int(own["rank"]), float(own["alpha"])
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read: {error.strerror or 'not an adapter file'}."
        ) from error
    except (
        AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise ValueError(f"{path} is not an adapter file, or is cut.") from error
    return arrays, settings


def _check(path, arrays, settings, layers, weights, present):
    """Refuse a file of which anything does not fit, before anything is changed."""
    wrong = []
    for name, own in settings.items():
        if name not in layers:
            wrong.append(f"{name} is no projection of the model")
            continue
        *outer, units = layers[name].kernel.shape
        shapes = (*outer, own["rank"]), (own["rank"], units)
        for factor, shape in zip(FACTORS, shapes):
            wrong += _misfit(f"{name}/{factor}", arrays, shape)
    for name in arrays:
        owner, _, last = name.rpartition("/")
        if last in FACTORS:
            wrong += [] if owner in settings else [f"{name} has no settings"]
        elif name not in weights:
            wrong.append(f"{name} is no weight of the model")
        else:
            wrong += _misfit(name, arrays, tuple(weights[name].shape))
    if present and not wrong:
        wrong += _differences(settings, present)
    if wrong:
        shown = "; ".join(wrong[:4]) + (" ..." if len(wrong) > 4 else "")
        raise ValueError(f"{path} does not fit the model: {shown}.")


def _misfit(name, arrays, shape):
    if name not in arrays:
        return [f"{name} is missing in the file"]
    found = arrays[name].shape
    return [] if found == shape else [f"{name} is {found}, the model needs {shape}"]


def _differences(settings, present):
    """How the adapters of a model differ from those in a file."""
    wrong = [
        f"{name} has no adapter in the model" for name in settings.keys() - present
    ]
    wrong += [f"{name} has none in the file" for name in present.keys() - settings]
    for name in settings.keys() & present.keys():
        layer, own = present[name], settings[name]
        there = {"rank": layer.lora_rank, "alpha": float(layer.lora_alpha)}
        if there != own:
            wrong.append(f"{name} has {there} in the model, {own} in the file")
    return sorted(wrong)
