"""Metrics over the real tokens of all batches, whatever their shapes.

Letters: B batch, T length, V vocabulary size.
"""

import keras
from keras import ops

from keras_tfm.training.losses import (
    MaskedValues,
    integer_labels,
    is_real,
    label_weights,
    token_crossentropy,
)


@keras.saving.register_keras_serializable(package="keras_tfm")
class Perplexity(keras.metrics.Mean):
    """exp of the mean cross-entropy per token: V for a uniform guess, 1 at best.

    Sums and counts are kept over batches, so short and long batches weigh by
    their tokens: the result equals that of one big batch. Positions with label
    `ignore_id`, or hidden by a Keras mask on the predictions, do not count.

    Args:
        ignore_id: int, the label that marks "no label", or None. Defaults to -100.
        from_logits: bool, `y_pred` are logits; False: probabilities.
        name: string. Defaults to "perplexity".
        dtype: dtype of the sums. Defaults to Keras's float type.

    Called with:
        y_true: int (B, T) or (B,).
        y_pred: float (B, T, V) or (B, V).
        sample_weight: float (B, T) or (B,), optional.

    Returns: float scalar; 1.0 when nothing was counted.

    Raises:
        ValueError: labels that do not fit the predictions.

    Example:
        >>> metric = keras_tfm.training.Perplexity(ignore_id=0)
        >>> metric.update_state(np.array([[1, 2, 0]]), np.zeros((1, 3, 4)))
        >>> round(float(metric.result()), 4)
        4.0
    """

    def __init__(self, ignore_id=-100, from_logits=True, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_id = ignore_id
        self.from_logits = from_logits
        self._direction = "down"

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = integer_labels(y_true, y_pred)
        losses = token_crossentropy(
            labels,
            ops.cast(y_pred, self.dtype),
            from_logits=self.from_logits,
            ignore_id=self.ignore_id,
        )
        weights = _token_weights(labels, y_pred, sample_weight, self.ignore_id)
        super().update_state(ops.reshape(losses, (-1,)), weights)

    def result(self):
        return ops.exp(super().result())

    def get_config(self):
        return {
            **super().get_config(),
            "ignore_id": self.ignore_id,
            "from_logits": self.from_logits,
        }


@keras.saving.register_keras_serializable(package="keras_tfm")
class MaskedAccuracy(keras.metrics.Mean):
    """Share of real tokens whose label has the largest prediction.

    Counted as in `Perplexity`: over all batches, without the positions whose
    label is `ignore_id` or that a Keras mask hides.

    Args:
        ignore_id: int, the label that marks "no label", or None. Defaults to -100.
        name: string. Defaults to "accuracy".
        dtype: dtype of the sums. Defaults to Keras's float type.

    Called with:
        y_true: int (B, T) or (B,).
        y_pred: float (B, T, V) or (B, V), logits or probabilities.
        sample_weight: float (B, T) or (B,), optional.

    Returns: float scalar in [0, 1]; 0.0 when nothing was counted.

    Raises:
        ValueError: labels that do not fit the predictions.

    Example:
        >>> metric = keras_tfm.training.MaskedAccuracy(ignore_id=0)
        >>> metric.update_state(np.array([[1, 2, 0]]), np.eye(3)[[[1, 1, 0]]])
        >>> float(metric.result())
        0.5
    """

    def __init__(self, ignore_id=-100, name="accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.ignore_id = ignore_id
        self._direction = "up"

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = integer_labels(y_true, y_pred)
        best = ops.cast(ops.argmax(y_pred, axis=-1), "int32")
        hits = ops.cast(ops.equal(labels, best), self.dtype)
        weights = _token_weights(labels, y_pred, sample_weight, self.ignore_id)
        super().update_state(ops.reshape(hits, (-1,)), weights)

    def get_config(self):
        return {**super().get_config(), "ignore_id": self.ignore_id}


def _token_weights(labels, predictions, sample_weight, ignore_id):
    """Weights (B * T,): 0 where ignored or masked, else the sample's weight."""
    weights = MaskedValues(reduction=None)(
        is_real(labels, ignore_id),
        predictions,
        label_weights(sample_weight, labels),
    )
    return ops.reshape(weights, (-1,))
