"""The dialect that LiteRT's built-in ops can say, held over the tensor code.

Each rule stands for something that was seen to fail in conversion, mostly with an
unknown batch and length. Functions that speak of NumPy alone make constants on the
host and are left out. A rule that does not apply to one line (an integer argmax) is
lifted there by a comment `# dialect: <why>`.
"""

import ast
import re

import pytest

from tests.sources import dotted, label, python_files, tree

FILES = python_files("keras_tfm/layers", "keras_tfm/models", "keras_tfm/generation")
LOOPS = {"while_loop", "fori_loop", "scan", "map", "vectorized_map"}
BANNED_OPS = {
    "argmax": "does not convert for floats: ops.top_k(x, 1)",
    "argmin": "does not convert for floats: ops.top_k(-x, 1)",
    "associative_scan": "needs a known length: ops.scan over chunks",
    "bincount": "does not convert",
    "cumprod": "does not convert",
    "erf": "does not convert",
    "left_shift": "does not convert",
    "linspace": "fails with an unknown count",
    "nonzero": "does not convert",
    "qr": "does not convert",
    "right_shift": "does not convert",
    "searchsorted": "does not convert",
}


def op_of(call):
    """`argmax` for a call of ops.argmax or keras.ops.argmax, else None."""
    name = dotted(call.func)
    head, _, op = name.rpartition(".")
    return op if head in ("ops", "keras.ops") else None


def draws_random(node):
    """Whether a node is a draw of keras.random (making a generator is not one)."""
    name = dotted(node.func) if isinstance(node, ast.Call) else ""
    return re.match(r"(keras\.)?random\.(?!SeedGenerator)", name) is not None


def is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def subscript_complaint(node):
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if any(is_none(item) or dotted(item).endswith(".newaxis") for item in items):
        return "a new axis in a subscript: ops.expand_dims"
    first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
    if first and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return "x.shape[0] is None in every export: ops.shape(x)[0]"
    return None


def call_complaint(node):
    op = op_of(node)
    if op in BANNED_OPS:
        return f"ops.{op} {BANNED_OPS[op]}"
    if op and op.startswith("bitwise_"):
        return f"ops.{op} does not convert"
    keywords = {keyword.arg for keyword in node.keywords}
    if op == "dot_product_attention" and "is_causal" in keywords:
        return "is_causal fails with an unknown length: give a mask"
    return None


def on_host(function):
    """Whether a function speaks of NumPy and of no tensor library."""
    names = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    return "np" in names and not names & {"ops", "keras"}


def tensor_code(node):
    """The nodes of a tree outside the functions that run on the host."""
    if isinstance(node, ast.FunctionDef) and on_host(node):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from tensor_code(child)


def complaints(module, no_random=False):
    """Lines of a tree that leave the dialect, each with the reason."""
    for node in tensor_code(module):
        why = None
        if isinstance(node, ast.Subscript):
            why = subscript_complaint(node)
        elif isinstance(node, ast.Call):
            why = call_complaint(node)
            if no_random and draws_random(node):
                why = "keras.random in decoding: carry a generator as loop state"
        elif isinstance(node, ast.FunctionDef):
            calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
            if any(op_of(call) in LOOPS for call in calls):
                drawn = [call.lineno for call in calls if draws_random(call)]
                why = f"keras.random beside a loop, line {drawn[0]}" if drawn else None
        if why:
            yield node.lineno, why


@pytest.mark.parametrize("path", FILES, ids=label)
def test_dialect(path):
    lines = path.read_text("utf-8").splitlines()
    wrong = [
        f"line {line}: {why}"
        for line, why in complaints(tree(path), "generation" in path.parts)
        if not re.search(r"# dialect: \w+", lines[line - 1])
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("ops.argmax(x)", True),
        ("keras.ops.argmax(x)", True),
        ("ops.top_k(x, 1)", False),
        ("ops.erf(x)", True),
        ("ops.bitwise_and(x, y)", True),
        ("ops.cumsum(x)", False),
        ("x[:, None]", True),
        ("x[..., None]", True),
        ("x[None]", True),
        ("x[:, :3]", False),
        ("x.shape[0]", True),
        ("x.shape[-1]", False),
        ("ops.shape(x)[0]", False),
        ("ops.dot_product_attention(q, k, v, is_causal=True)", True),
        ("keras.random.uniform(s)", False),
        ("def f():\n    ops.while_loop(c, b, s)\n    keras.random.uniform(s)", True),
        ("keras.random.SeedGenerator(1)", False),
        ("def f(x):\n    return np.abs(x)[:, None]", False),
        ("def f(x):\n    return np.abs(ops.abs(x)[:, None])", True),
    ],
)
def test_the_rules_see(source, refused):
    assert bool(list(complaints(ast.parse(source)))) == refused


def test_no_random_in_decoding():
    source = ast.parse("keras.random.categorical(x, 1)")
    assert list(complaints(source, no_random=True))
    assert not list(complaints(source))
