"""Keras's `Dense` and tied embedding, quick for a single row too.

XLA's CPU backend multiplies one row and a matrix on one core, as soon as a bias is
added, and that is the work of every step that decodes a single text. In parts it uses
all cores: 1.5 times the tokens a second. LiteRT is better off with whole products.

Letters: P parts, I width of the input, O of the output, V vocabulary, D width.
"""

import contextlib
import contextvars

import keras
from keras import ops

PARTS = 8
_whole = contextvars.ContextVar("keras_tfm_whole_products", default=False)


@contextlib.contextmanager
def whole_products():
    """Where no product is cut into parts, as for a LiteRT file of one row."""
    before = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(before)


@keras.saving.register_keras_serializable(package="keras_tfm")
class Projection(keras.layers.Dense):
    """`keras.layers.Dense` that multiplies a single row part by part.

    Args:
        units: int O.
        **kwargs: of `keras.layers.Dense`.

    Call arguments:
        inputs: float (..., I).

    Returns: float (..., O).
    """

    def call(self, inputs, training=None):
        width = inputs.shape[-1]
        if not _one_row(self, inputs) or width % PARTS:
            return super().call(inputs, training=training)
        row = ops.reshape(inputs, (PARTS, 1, width // PARTS))
        kernel = ops.reshape(self.kernel, (PARTS, width // PARTS, self.units))
        outputs = ops.sum(ops.matmul(row, kernel), axis=0)  # (P, 1, O) -> (1, O)
        outputs = ops.reshape(outputs, (*inputs.shape[:-1], self.units))
        if self.bias is not None:
            outputs = outputs + self.bias
        return outputs if self.activation is None else self.activation(outputs)

    def quantize(self, mode=None, type_check=True, config=None):
        return super().quantize(mode, type_check=False, config=config)


@keras.saving.register_keras_serializable(package="keras_tfm")
class TiedEmbedding(keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` that does not transpose its table for one row.

    Args:
        input_dim: int V.
        output_dim: int D.
        **kwargs: of `keras.layers.ReversibleEmbedding`.

    Call arguments:
        inputs: int (...) ids; with `reverse` float (..., D).
        reverse: bool.

    Returns: float (..., D); with `reverse` float (..., V).
    """

    def call(self, inputs, reverse=False):
        plain = self.tie_weights and self.logit_soft_cap is None
        plain = plain and self.reverse_dtype is None
        if not reverse or not plain or not _one_row(self, inputs):
            return super().call(inputs, reverse=reverse)
        column = ops.reshape(inputs, (-1, 1))  # (D, 1)
        logits = ops.matmul(self.embeddings, column)
        return ops.reshape(logits, (*inputs.shape[:-1], self.input_dim))

    def quantize(self, mode=None, type_check=True, config=None):
        return super().quantize(mode, type_check=False, config=config)


def _one_row(layer, inputs):
    """Whether there is one row for sure, in full precision."""
    single = all(size == 1 for size in inputs.shape[:-1])
    return single and not _whole.get() and layer.compute_dtype == "float32"
