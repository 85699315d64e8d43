"""The config of a vision model, read off its ONNX graph.

Letters: C channels, D hidden_dim.
"""

import math
import re

import numpy as np

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.family import Config
from keras_tfm.checkpoints.onnx_arrays import (
    TABLE,
    arrays_of_graph,
    prefix_of,
    read_graph,
    scope_of,
)

PATCHES = "embeddings.patch_embeddings.projection.weight"
# model_type: the first norm of a block and the layer that widens
PARTS = {
    "dinov2": ("norm1", "mlp.fc1", "mlp"),
    "vit": ("layernorm_before", "intermediate.dense", "intermediate"),
}
ACTIVATIONS = {"Erf": "gelu", "Tanh": "gelu_new", "Relu": "relu", "Sigmoid": "silu"}


def read_onnx(path):
    """The arrays of an ONNX file, and the config that its graph tells.

    Args:
        path: `pathlib.Path`.

    Returns: pair of `Arrays` and a function without arguments that gives a `Config`;
        it raises CheckpointError if the graph is not that of a ViT or DINOv2.

    Raises:
        CheckpointError: if the file is cut or is something else.
    """
    graph = read_graph(path)
    arrays = arrays_of_graph(graph)
    return arrays, lambda: _config(graph, arrays, path)


def _config(graph, arrays, path):
    """The fields of a `config.json`; see `read_onnx`."""
    if PATCHES not in arrays or TABLE not in arrays:
        raise CheckpointError(
            f"{path} is not the graph of a ViT or DINOv2, and no config.json is "
            "beside it."
        )
    kind = "dinov2" if "encoder.layer.0.layer_scale1.lambda1" in arrays else "vit"
    norm, widening, feed_forward = PARTS[kind]
    hidden_dim, channels, *patch = arrays.shape_of(PATCHES)
    rows = math.isqrt(arrays.shape_of(TABLE)[1] - 1)
    if rows**2 != arrays.shape_of(TABLE)[1] - 1:
        raise CheckpointError(f"{path}: {TABLE} is not that of a square image.")
    layers = [re.match(rf"encoder\.layer\.(\d+)\.{norm}\.weight", n) for n in arrays]
    width, _ = arrays.shape_of(f"encoder.layer.0.{widening}.weight")
    prefix = prefix_of(tensor.name for tensor in graph.initializer)
    block = _Scope(graph, f"{prefix}encoder.layer.0", path)
    fields = {
        "model_type": kind,
        "hidden_size": hidden_dim,
        "num_channels": channels,
        "patch_size": patch,
        "image_size": [rows * side for side in patch],
        "num_hidden_layers": 1 + max(int(match.group(1)) for match in layers if match),
        "num_attention_heads": block.heads("attention.attention", hidden_dim),
        "layer_norm_eps": block.epsilon(norm),
        "hidden_act": block.activation(feed_forward),
        "hidden_dropout_prob": 0.0,  # what a graph for inference does not know
    }
    if kind == "vit":
        return Config({**fields, "intermediate_size": width}, str(path))
    fields |= {"layerscale_value": 1.0, "drop_path_rate": 0.0, "use_swiglu_ffn": False}
    return Config({**fields, "mlp_ratio": width / hidden_dim}, str(path))


class _Scope:
    """What the nodes of one block tell."""

    def __init__(self, graph, scope, path):
        self.graph, self.scope, self.path = graph, scope, path

    def nodes(self, part, *kinds):
        """Nodes of these kinds within a part of the block."""
        whole = f"{self.scope}.{part}"
        return [
            node
            for node in self.graph.node
            if node.op_type in kinds and f"{scope_of(node)}.".startswith(f"{whole}.")
        ]

    def heads(self, part, hidden_dim):
        """N, of the shape (B, T, N, H) that queries are brought to."""
        for node in self.nodes(part, "Concat"):
            sizes = [self._constant(name) for name in node.input[-2:]]
            if None not in sizes and sizes[0] * sizes[1] == hidden_dim:
                return int(sizes[0])
        for node in self.nodes(part, "Reshape"):
            shape = self._constant(node.input[1])
            if np.ndim(shape) == 1 and len(shape) == 4:
                return int(shape[2])
        raise self._silent("the number of heads")

    def epsilon(self, part):
        """What a norm adds to the variance."""
        from onnx import helper

        for node in self.nodes(part, "LayerNormalization"):
            values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            return float(str(np.float32(values.get("epsilon", 1e-5))))
        for node in self.nodes(part, "Add"):
            values = [self._constant(name) for name in node.input]
            values = [value for value in values if np.ndim(value) == 0]
            for value in values:
                if value is not None:
                    return float(str(np.float32(value)))
        raise self._silent("the epsilon of its norms")

    def activation(self, part):
        """The reference library's name of the nonlinearity."""
        for node in self.nodes(part, *ACTIVATIONS, "Gelu"):
            return ACTIVATIONS.get(node.op_type, "gelu")
        raise self._silent("its activation")

    def _constant(self, name):
        """The value of a constant, a number or an array of several; else None."""
        from onnx import numpy_helper

        for node in self.graph.node:
            if node.op_type == "Constant" and name in node.output:
                tensor = next((a.t for a in node.attribute if a.name == "value"), None)
                if tensor is not None:
                    value = numpy_helper.to_array(tensor)
                    return value.item() if value.size == 1 else value
        return None

    def _silent(self, what):
        return CheckpointError(
            f"{self.path} does not tell {what}; a config.json beside it would."
        )
