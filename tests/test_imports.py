"""Who may import whom, and what may be imported before it is needed.

The table is the design: layers stand on Keras alone, models on layers, and nothing
below knows of anything above it.
"""

import ast
import sys

import pytest

from tests.sources import ROOT, SUB_PACKAGES, dotted, label, python_files, tree

BELOW = {"layers", "models", "generation"}
# What each part may import: our own parts, then other people's packages.
TABLE = {
    # NumPy makes constants, in float64 on the host; tests/test_dialect.py watches.
    "layers": (set(), {"keras", "numpy"}),
    "models": ({"layers"}, {"keras", "numpy"}),
    "generation": (set(), {"keras", "numpy"}),
    "training": (BELOW, {"keras", "numpy", "sacrebleu"}),
    "data": (
        BELOW,
        {
            "PIL",
            "keras",
            "keras_hub",
            "num2words",
            "numpy",
            "sentencepiece",
            "sklearn",
            "tensorflow",
            "tensorflow_datasets",
            "tensorflow_text",
            "tokenizers",
        },
    ),
    "checkpoints": (
        BELOW,
        {
            "gguf",
            "huggingface_hub",
            "keras",
            "numpy",
            "onnx",
            "safetensors",
            "sentencepiece",
            "tensorflow",
            "tensorflow_text",
        },
    ),
    "export": (
        BELOW,
        {"ai_edge_litert", "keras", "numpy", "tensorflow", "tensorflow_text"},
    ),
    "visualize": (BELOW, {"keras", "matplotlib", "numpy"}),
}
# Gradients inside a layer have no name in `keras.ops`; one file knows the backends.
BACKENDS = {"vector_jacobian.py": {"jax", "tensorflow", "torch"}}
LIGHT = {"keras", "numpy"}  # may stand at the top of a file of keras_tfm
FILES = python_files("keras_tfm", "recipes", "benchmarks")


def imports_of(path, source=None):
    """(module, whether it is at the top level, line) of each import in a file."""
    module = tree(path) if source is None else ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(module)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
    }
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            head = list(package[: len(package) - node.level + 1]) if node.level else []
            base = ".".join(head + ([node.module] if node.module else []))
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield name, id(node) not in inside, node.lineno


def part_of(path):
    """`layers` for a file below keras_tfm/layers, else the top folder's name."""
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "keras_tfm" and len(parts) > 2 else parts[0]


def complaint(part, name, top_level, file=""):
    """Why this part may not import this module, or None."""
    first, *rest = name.split(".")
    if first in ("tests", "benchmarks") and part != first:
        return "nothing imports tests or benchmarks"
    if "src" in rest[:1] and first in ("keras", "keras_hub"):
        return "private"
    if part in ("recipes", "benchmarks"):
        return None
    if first == "recipes":
        return "the library knows nothing of recipes"
    if first in sys.stdlib_module_names:
        return None
    ours, others = TABLE.get(part, (set(SUB_PACKAGES), LIGHT))
    if first == "keras_tfm":
        allowed = not rest or rest[0] == part or rest[0] in ours
        if part in TABLE and not rest:
            allowed = False
        return None if allowed else f"{part} may import only {sorted(ours) or 'itself'}"
    if first not in others | BACKENDS.get(file, set()):
        return f"{part} may import only {sorted(others)}"
    if top_level and first not in LIGHT:
        return "heavy: import it in the function that uses it"
    return None


@pytest.mark.parametrize("path", FILES, ids=label)
def test_import_table(path):
    wrong = [
        f"line {line}: {name}: {why}"
        for name, top_level, line in imports_of(path)
        if (why := complaint(part_of(path), name, top_level, path.name))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=label)
def test_only_public_keras(path):
    private = [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute)
        and dotted(node).startswith(("keras.src.", "keras_hub.src."))
    ]
    assert not private


@pytest.mark.parametrize(
    ("file", "source", "refused"),
    [
        ("keras_tfm/layers/a.py", "import keras\nfrom keras import ops", False),
        ("keras_tfm/layers/a.py", "from keras_tfm.layers import masks", False),
        ("keras_tfm/layers/a.py", "from . import masks", False),
        ("keras_tfm/layers/a.py", "from .. import models", True),
        ("keras_tfm/layers/a.py", "import keras_tfm", True),
        ("keras_tfm/layers/a.py", "from keras_tfm.models import GPT", True),
        ("keras_tfm/layers/a.py", "def f():\n    import tensorflow", True),
        ("keras_tfm/layers/a.py", "from keras.src import backend", True),
        ("keras_tfm/models/a.py", "from keras_tfm import layers", False),
        ("keras_tfm/models/a.py", "from keras_tfm import generation", True),
        ("keras_tfm/generation/a.py", "from keras_tfm.layers import masks", True),
        ("keras_tfm/data/a.py", "def f():\n    import tensorflow", False),
        ("keras_tfm/data/a.py", "import tensorflow", True),
        ("keras_tfm/export/a.py", "from recipes import flags", True),
        ("recipes/a.py", "import tensorflow\nimport keras_tfm", False),
        ("recipes/a.py", "from tests import battery", True),
    ],
)
def test_the_table_is_held(file, source, refused):
    path = ROOT / file
    found = [
        complaint(part_of(path), name, top) for name, top, _ in imports_of(path, source)
    ]
    assert any(found) == refused
