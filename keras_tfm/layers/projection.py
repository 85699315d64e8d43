"""Keras's `Dense` and tied embedding, quick for a single row too.

XLA's CPU backend multiplies one row and a matrix on one core, as soon as a bias is
added, and that is the work of every step that decodes a single text. In parts it uses
all cores: 1.5 times the tokens a second. LiteRT is better off with whole products.

Adapters (LoRA) act on the row, not on the matrix, and are saved as they are.

Letters: P parts, I width of the input, O of the output, R rank of an adapter,
V vocabulary, D width.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.one_row import is_one_row

PARTS = 8
_ADAPTER = ("lora_kernel_a", "lora_kernel_b", "lora_scale")


@keras.saving.register_keras_serializable(package="keras_tfm")
class Projection(keras.layers.Dense):
    """`keras.layers.Dense` that multiplies a single row part by part.

    With `enable_lora` it adds scale (x A) B to the product, which needs no matrix of
    the kernel's size, forward or backward. Its files hold kernel and factors apart, so
    that a stopped training goes on; in a layer without LoRA they are loaded merged.

    Args:
        units: int O.
        **kwargs: of `keras.layers.Dense`.

    Call arguments:
        inputs: float (..., I).

    Returns: float (..., O).
    """

    def call(self, inputs, training=None):
        in_parts = _one_row(self, inputs) and inputs.shape[-1] % PARTS == 0
        if not in_parts and not self.lora_enabled:
            return super().call(inputs, training=training)
        kernel = self._kernel if self.lora_enabled else self.kernel  # without adapter
        if in_parts:
            outputs = _product_in_parts(inputs, kernel)
        else:
            outputs = ops.matmul(inputs, kernel)
        if self.lora_enabled:
            narrow = ops.matmul(inputs, self.lora_kernel_a)  # (..., R)
            scale = self.lora_alpha / self.lora_rank
            outputs = outputs + scale * ops.matmul(narrow, self.lora_kernel_b)
        if self.bias is not None:
            outputs = outputs + self.bias
        return outputs if self.activation is None else self.activation(outputs)

    def save_own_variables(self, store):
        if not self.lora_enabled or self.quantization_mode is not None:
            return super().save_own_variables(store)
        names = ["_kernel"] if self.bias is None else ["_kernel", "bias"]
        for number, name in enumerate(names):
            store[str(number)] = getattr(self, name)
        store["lora_kernel_a"] = self.lora_kernel_a
        store["lora_kernel_b"] = self.lora_kernel_b
        store["lora_scale"] = np.float32(self.lora_alpha / self.lora_rank)

    def load_own_variables(self, store):
        found = {name: np.asarray(store[name]) for name in store.keys()}
        adapter = [found.pop(name, None) for name in _ADAPTER]
        if not self.lora_enabled:
            if adapter[0] is not None:
                found["0"] = found["0"] + adapter[2] * (adapter[0] @ adapter[1])
            return super().load_own_variables(found)
        first = ops.convert_to_numpy(self.lora_kernel_a)
        super().load_own_variables(found)  # sets both factors to zero
        if adapter[0] is None:  # B stays zero, A may not: nothing would be learned
            return self.lora_kernel_a.assign(first)
        scale = self.lora_alpha / self.lora_rank
        if adapter[0].shape != first.shape:
            raise ValueError(
                f"{self.path} has an adapter of rank {first.shape[1]}, the file one of "
                f"rank {adapter[0].shape[1]}."
            )
        self.lora_kernel_a.assign(adapter[0])
        self.lora_kernel_b.assign(adapter[1] * (adapter[2] / scale))

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


def _product_in_parts(inputs, kernel):
    """One row (..., I) times (I, O), as (P, 1, I / P) times (P, I / P, O)."""
    width, units = kernel.shape
    row = ops.reshape(inputs, (PARTS, 1, width // PARTS))
    kernel = ops.reshape(kernel, (PARTS, width // PARTS, units))
    outputs = ops.sum(ops.matmul(row, kernel), axis=0)  # (P, 1, O) -> (1, O)
    return ops.reshape(outputs, (*inputs.shape[:-1], units))


def _one_row(layer, inputs):
    """Whether there is one row for sure, in full precision."""
    single = is_one_row(inputs) and all(size == 1 for size in inputs.shape[1:-1])
    return single and layer.compute_dtype == "float32"
