"""Documented arguments are the arguments: same names, same order, none left out."""

import inspect
import re

import keras
import pytest

from tests.sources import public_objects

PUBLIC = public_objects()
# Keras calls these; their meaning is Keras's, and a class docstring tells the rest.
KERAS_HOOKS = {
    name
    for base in (
        keras.Model,
        keras.losses.Loss,
        keras.metrics.Metric,
        keras.callbacks.Callback,
        keras.optimizers.schedules.LearningRateSchedule,
    )
    for name in dir(base)
}
# Keras fills these itself; nobody passes them.
FILLED_BY_KERAS = {"training", "mask", "inputs_mask", "context_mask"}
# Keras's own arguments, which a docstring may sum up under `**kwargs`.
KERAS_ARGUMENTS = {"name", "dtype", "trainable"}


def section(docstring, title):
    """The argument names of a docstring's section in order, or None without one."""
    match = re.search(rf"^( *){title}:\n(.*?)(?=^\1\S|\Z)", docstring, re.M | re.S)
    if not match:
        return None
    indent = len(match.group(1)) + 4
    heads = re.findall(
        rf"^ {{{indent}}}(\*{{0,2}}\w+(?:, \*{{0,2}}\w+)*)(?: \(.*\))?:",
        match.group(2),
        re.M,
    )
    return [name.strip() for head in heads for name in head.split(",")]


def parameters(function):
    """The parameter names of a function, as docstrings write them."""
    prefix = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    return [
        prefix.get(parameter.kind, "") + parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "cls")
    ]


def differences(documented, actual, optional=frozenset()):
    """What a section says about a signature that is not so, one line, or None."""
    documented = documented or []
    if unknown := [name for name in documented if name not in actual]:
        return f"documented but not there: {unknown}"
    missing = [n for n in actual if n not in documented and n not in optional]
    if missing := [n for n in missing if not n.startswith("**")]:
        return f"not documented: {missing}"
    if documented != [name for name in actual if name in documented]:
        return f"order: documented {documented}, signature {actual}"
    return None


def own_methods(cls):
    """Public methods that a class of ours defines and Keras does not name."""
    for name, raw in vars(cls).items():
        method = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
        if inspect.isfunction(method) and not name.startswith("_"):
            if not {name, method.__name__} & KERAS_HOOKS:  # `tokenize = call` too
                yield name, method


@pytest.mark.parametrize(("name", "thing"), PUBLIC, ids=[name for name, _ in PUBLIC])
def test_arguments(name, thing):
    function = thing.__init__ if inspect.isclass(thing) else thing
    if not inspect.isfunction(function):
        return  # a constant, or a class with nothing of its own to construct with
    docstring = inspect.cleandoc(thing.__doc__ or "")
    assert docstring, "no docstring"
    documented = section(docstring, "Args")
    why = differences(documented, parameters(function), KERAS_ARGUMENTS)
    assert why is None, why


CLASSES = [(name, thing) for name, thing in PUBLIC if inspect.isclass(thing)]


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=[name for name, _ in CLASSES])
def test_call_arguments(name, cls):
    documented = section(inspect.cleandoc(cls.__doc__), "Call arguments")
    call = vars(cls).get("call") or vars(cls).get("__call__")
    if call is None:
        return  # Keras's own: that of every functional model
    if documented is None:
        assert not issubclass(cls, keras.layers.Layer), "no section `Call arguments`"
        return
    why = differences(documented, parameters(call), FILLED_BY_KERAS)
    assert why is None, why


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=[name for name, _ in CLASSES])
def test_methods(name, cls):
    for method_name, method in own_methods(cls):
        docstring = inspect.getdoc(getattr(cls, method_name))
        assert docstring, f"{method_name} has no docstring"
        documented = section(docstring, "Args")
        if documented is not None:
            why = differences(documented, parameters(method))
            assert why is None, f"{method_name}: {why}"


def test_the_reader_reads():
    docstring = inspect.cleandoc(
        """What it does.

        Args:
            one: first,
                over two: lines.
            two, three: a pair.
            *rest: more.
            **kwargs: `name`.

        Returns: nothing.
        """
    )
    names = ["one", "two", "three", "*rest", "**kwargs"]
    assert section(docstring, "Args") == names
    assert section(docstring, "Call arguments") is None
    assert differences(names, names) is None
    assert "not documented" in differences(["one"], ["one", "two"])
    assert "not there" in differences(["one", "four"], ["one"])
    assert "order" in differences(["two", "one"], ["one", "two"])
    assert (
        differences(["one"], ["one", "training", "**kwargs"], FILLED_BY_KERAS) is None
    )
