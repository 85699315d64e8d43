"""Cross-entropy of a linear output head, whose logits are never held as a whole.

Letters: M positions, V vocabulary size, D width, C positions of a chunk.
"""

import keras
from keras import ops


def linear_crossentropy(
    hidden, matrix, bias, labels, weights, num_chunks=16, label_smoothing=0.0
):
    """Weighted sum of the cross-entropies of all positions.

    Chunk by chunk the logits are made, turned into the loss and, at once, into the
    gradients, and forgotten. Positions of weight 0 come last, and chunks of nothing
    else are left out. First gradients only.

    Args:
        hidden: float (M, D), the states before the logits.
        matrix: float (V, D), the logits are hidden times its transpose.
        bias: float (V,), added to them.
        labels: int (M,); any number where the weight is 0.
        weights: float32 (M,).
        num_chunks: int.
        label_smoothing: float in [0, 1).

    Returns: float32 scalar.

    References: Wijmans et al. 2024, arXiv:2411.09009; Hsu et al. 2024 (gradients in the
        forward pass), arXiv:2410.10989.
    """
    first = ops.argsort(ops.cast(weights == 0, "int32"))
    length = ops.shape(labels)[0]
    size = -(-length // num_chunks)
    room = size * num_chunks - length
    vocabulary = matrix.shape[0]

    def sorted_(x):
        x = ops.take(x, first, axis=0)
        return ops.pad(x, ((0, room), *((0, 0) for _ in x.shape[1:])))

    labels = sorted_(ops.where(weights == 0, 0, labels))
    weights = sorted_(weights)
    full = -(-ops.sum(ops.cast(weights != 0, "int32")) // size)  # chunks with a label

    @ops.custom_gradient
    def run(hidden, matrix, bias):
        low = hidden.dtype

        def part(x, i):
            start = (i * size, *(0 for _ in x.shape[1:]))
            return ops.slice(x, start, (size, *x.shape[1:]))

        def step(i, total, hidden_grad, matrix_grad, bias_grad):
            rows, label, weight = part(hidden, i), part(labels, i), part(weights, i)
            logits = ops.cast(ops.matmul(rows, ops.transpose(matrix)), "float32")
            logits = logits + ops.cast(bias, "float32")  # (C, V)
            target = ops.one_hot(label, vocabulary, dtype="float32")
            target = target * (1 - label_smoothing) + label_smoothing / vocabulary
            logits = ops.log_softmax(logits, axis=-1)
            total = total - ops.sum(ops.sum(target * logits, axis=-1) * weight)
            change = (ops.exp(logits) - target) * ops.expand_dims(weight, -1)
            bias_grad = bias_grad + ops.sum(change, axis=0)
            change = ops.cast(change, low)
            moved = ops.cast(ops.matmul(change, matrix), "float32")  # (C, D)
            hidden_grad = ops.slice_update(hidden_grad, (i * size, 0), moved)
            moved = ops.matmul(ops.transpose(change), rows)  # (V, D)
            matrix_grad = matrix_grad + ops.cast(moved, "float32")
            return i + 1, total, hidden_grad, matrix_grad, bias_grad

        wide = [ops.zeros_like(x, dtype="float32") for x in (hidden, matrix, bias)]
        _, total, *grads = ops.while_loop(
            lambda i, *_: ops.less(i, full), step, (full * 0, ops.zeros(()), *wide)
        )

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            found = zip(grads, (hidden, matrix, bias))
            return tuple(ops.cast(upstream * g, x.dtype) for g, x in found)

        return total, gradient

    low = keras.backend.standardize_dtype(hidden.dtype)
    return run(sorted_(hidden), ops.cast(matrix, low), ops.cast(bias, "float32"))
