"""Lookup tables behind a plain function: an exported graph must own them."""

import functools
import inspect
import types

import keras

_MAX_DEPTH = 6


def find_resources(function):
    """Collect the layers, modules and lookup tables a function reaches.

    TensorFlow writes a table into a file only if an object there holds it. A
    tokenizer called by a user's function is held by nothing, so the function's
    closure, globals, bound object and attributes are searched.

    Args:
        function: callable, or any value.

    Returns: list of `keras.Layer`, `tf.Module` and lookup tables, each once.
    """
    import tensorflow as tf

    kinds = (keras.Layer, tf.Module, tf.saved_model.experimental.TrackableResource)
    found, seen = [], set()
    level = [function]
    for _ in range(_MAX_DEPTH):
        following = []
        for value in level:
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, kinds):
                found.append(value)
            else:
                following += _reachable(value)
        level = following
    return found


def _reachable(value):
    """The values that a function, a container or a plain object holds."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if inspect.ismethod(value):
        return [value.__self__, value.__func__]
    if inspect.isfunction(value):
        return _variables(value)
    if hasattr(value, "python_function"):  # a tf.function
        return [value.python_function]
    if isinstance(value, (type, types.ModuleType)) or not hasattr(value, "__dict__"):
        return []
    called = type(value).__dict__.get("__call__")
    return [*vars(value).values(), *([called] if called else [])]


def _variables(function):
    """Closure cells and the globals that a function's code, inner too, names."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    codes, names = [function.__code__], set()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [part for part in code.co_consts if inspect.iscode(part)]
    values = [function.__globals__[n] for n in names if n in function.__globals__]
    return cells + values


def _filled(cell):
    try:
        cell.cell_contents
    except ValueError:  # a name that is not assigned yet
        return False
    return True
