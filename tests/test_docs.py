"""Every Python example in the docs, the README and the docstrings is run.

A fenced block marked `python` or `pycon` is a doctest where it holds a prompt, and is
run as it stands where it does not; the blocks of one page share their names, and a
page imports what it uses. In docstrings keras, keras_tfm, NumPy (np) and what the
module itself knows are there. Every example runs in an empty folder, so that what it
writes is gone afterwards, and none may be skipped.
"""

import doctest
import importlib
import inspect
import pkgutil
import re

import keras
import numpy as np
import pytest

import keras_tfm
from tests.sources import ROOT, label

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(?:python|pycon|py)\b[^\n]*\n(.*?)^\1```", re.M | re.S)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NEEDS_TENSORFLOW = ("keras_tfm.data", "keras_tfm.export")


def run_doctest(source, names, name, line=0):
    """Run a doctest in these names and fail with what it printed."""
    test = doctest.DocTestParser().get_doctest(source, names, name, None, line)
    skipped = [e.source for e in test.examples if doctest.SKIP in e.options]
    assert not skipped, f"skipped: {skipped}"
    report = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(report)


def blocks(text):
    """(line, source) of every Python block of a page."""
    for match in FENCE.finditer(text):
        source = re.sub(rf"^{match.group(1)}", "", match.group(2), flags=re.M)
        yield text.count("\n", 0, match.start(2)) + 1, source


@pytest.mark.tensorflow
@pytest.mark.parametrize("path", PAGES, ids=label)
def test_page(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for line, source in blocks(path.read_text("utf-8")):
        if ">>>" in source:
            run_doctest(source, names, label(path), line - 1)
        else:
            exec(compile("\n" * (line - 1) + source, str(path), "exec"), names)


def docstrings():
    """(dotted name, docstring) of everything in keras_tfm that has an example."""
    modules = [keras_tfm.__name__] + [
        module.name
        for module in pkgutil.walk_packages(keras_tfm.__path__, "keras_tfm.")
    ]
    for name in modules:
        module = importlib.import_module(name)
        for test in doctest.DocTestFinder().find(module, name):
            if test.examples:
                marks = [pytest.mark.tensorflow] * name.startswith(NEEDS_TENSORFLOW)
                yield pytest.param(name, test.docstring, id=test.name, marks=marks)


@pytest.mark.parametrize(("module", "docstring"), list(docstrings()))
def test_docstring(module, docstring, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    names = dict(vars(importlib.import_module(module)))
    names.update(keras=keras, keras_tfm=keras_tfm, np=np)
    run_doctest(inspect.cleandoc(docstring), names, request.node.name)


def test_a_wrong_example_fails():
    with pytest.raises(AssertionError, match="Expected"):
        run_doctest(">>> 1 + 1\n3\n", {}, "wrong")
    text = "Text\n\n```python\n>>> x = 1\n```\n\n```console\n$ no\n```\n"
    assert list(blocks(text)) == [(4, ">>> x = 1\n")]
