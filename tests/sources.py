"""What the tests that read the source code share: files, trees, public names."""

import ast
import importlib
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUB_PACKAGES = (
    "layers",
    "models",
    "generation",
    "training",
    "data",
    "checkpoints",
    "export",
    "visualize",
)


def python_files(*folders):
    """Paths of the Python files under these folders of the checkout, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def tree(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"), str(path))


def label(path):
    """A path as tests print it."""
    return str(path.relative_to(ROOT))


def dotted(node):
    """`keras.ops.argmax` for the expression that says so, else an empty string."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def sub_packages():
    """The sub-packages of keras_tfm that exist, imported, by name."""
    return {
        name: importlib.import_module(f"keras_tfm.{name}")
        for name in SUB_PACKAGES
        if (ROOT / "keras_tfm" / name / "__init__.py").exists()
    }


def public_objects():
    """Every public object as (`layers.MultiHeadAttention`, the object)."""
    return [
        (f"{package}.{name}", getattr(module, name))
        for package, module in sub_packages().items()
        for name in module.__all__
    ]
