"""Reading ONNX files: the arrays of a graph, under the names that they had before.

An exporter keeps the names of most weights, but transposes the matrices and calls them
"onnx::MatMul_1966"; the node that multiplies by one is still named after its layer,
"/encoder/layer.0/mlp/fc1/MatMul". A position table may be cut into its class row and
the rest.
"""

import numpy as np

from keras_tfm.checkpoints.arrays import Arrays
from keras_tfm.checkpoints.errors import CheckpointError

TABLE = "embeddings.position_embeddings"


def read_graph(path):
    """The graph of an ONNX file.

    Args:
        path: `pathlib.Path`.

    Raises:
        CheckpointError: if the file is cut or is something else.
    """
    import onnx

    try:
        graph = onnx.load(path).graph
    except Exception as error:  # of the protocol-buffer library, or of the disk
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is not a whole ONNX file: {reason}") from error
    if not graph.initializer:
        raise CheckpointError(f"{path} is an ONNX file without arrays.")
    return graph


def arrays_of_graph(graph):
    """The initialisers of a graph, under the reference library's names.

    What stands before "embeddings.cls_token" stands before all names of the model
    ("backbone.", say), and is left out.

    Args:
        graph: from `read_graph`.

    Returns: `Arrays`.
    """
    from onnx import numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    shapes, reads = {}, {}

    def add(name, shape, read):
        shapes[name], reads[name] = tuple(shape), read

    matrices = _matrices(graph, tensors)
    pieces = _position_pieces(graph, tensors)
    for name, tensor in tensors.items():
        if name in matrices:
            transposed = tensor.dims[::-1]
            add(matrices[name], transposed, lambda t=tensor: numpy_helper.to_array(t).T)
        elif name not in pieces:
            add(name, tensor.dims, lambda t=tensor: numpy_helper.to_array(t))
    if pieces:
        first, rest = (tensors[name] for name in pieces)
        rows = first.dims[1] + rest.dims[1]
        add(
            prefix_of(tensors) + TABLE,
            (1, rows, rest.dims[2]),
            lambda: np.concatenate(
                [numpy_helper.to_array(first), numpy_helper.to_array(rest)], axis=1
            ),
        )
    prefix = prefix_of(tensors)
    arrays = Arrays(shapes, lambda name: reads[name]())
    return arrays.renamed(lambda name: name.removeprefix(prefix))


def prefix_of(names):
    """What stands before the names of a vision model, "" if nothing does.

    Args:
        names: iterable of str.
    """
    token = "embeddings.cls_token"
    found = [name.removesuffix(token) for name in names if name.endswith(token)]
    return found[0] if found else ""


def scope_of(node):
    """The layer that a node was made for, as in "encoder.layer.0.mlp.fc1".

    Args:
        node: of a graph.
    """
    return node.name.strip("/").rpartition("/")[0].replace("/", ".")


def _matrices(graph, tensors):
    """Names of the nameless matrices that inputs are multiplied by: old to new."""
    found = {}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in tensors:
            continue
        name, scope = node.input[1], scope_of(node)
        if scope and not name.endswith(".weight"):
            found[name] = f"{scope}.weight"
    return found


def _position_pieces(graph, tensors):
    """The class row and the rest of a position table that is nowhere whole."""
    if any(name.endswith(TABLE) for name in tensors):
        return ()
    embeddings = f"{prefix_of(tensors)}embeddings"
    nameless = [
        name
        for node in graph.node
        if node.op_type in ("Concat", "Reshape") and scope_of(node) == embeddings
        for name in node.input
        if name in tensors and len(tensors[name].dims) == 3 and "embeddings" not in name
    ]
    pieces = sorted(set(nameless), key=lambda name: tensors[name].dims[1])
    return tuple(pieces) if len(pieces) == 2 else ()
