"""Cross-entropy over integer labels, some of which are no labels at all.

Letters: B batch, T length, V vocabulary size or number of classes.
"""

import keras
from keras import ops

MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


@keras.saving.register_keras_serializable(package="keras_tfm")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy with label smoothing, averaged over the real labels only.

    The loss of one position with label y is `-sum_v p_v log q_v`, where q is the
    softmax of its logits and p the smoothed target: `1 - e + e / V` at y, `e / V`
    elsewhere (Keras's definition for dense labels). Positions with label
    `ignore_id`, or hidden by a Keras mask on the logits, give 0 and are not
    counted in the mean; a batch without any real label gives 0.0. Logits are
    taken to float32 first, in mixed precision too.

    Args:
        from_logits: bool, `y_pred` are logits; False: probabilities.
        label_smoothing: float e in [0, 1). Defaults to 0.0.
        ignore_id: int, the label that marks "no label", or None for none.
            Defaults to -100; 0 ignores padding of token ids.
        reduction: Keras's: "sum_over_batch_size" or "mean" (the sum over the
            number of real positions), "mean_with_sample_weight" (over the sum of
            their weights), "sum", "none" or None (one loss per position).
        name: string. Defaults to "smoothed_crossentropy".

    Called with:
        y_true: int (B, T) labels, or (B,), or either with a last axis of 1.
        y_pred: float (B, T, V), or (B, V).
        sample_weight: float (B, T) or (B,), optional.

    Returns: float32 scalar, or one loss per label without reduction.

    Raises:
        ValueError: smoothing outside [0, 1), or labels that do not fit the logits.

    Example:
        >>> loss = keras_tfm.training.SmoothedCrossentropy(ignore_id=0)
        >>> labels, logits = np.array([[1, 2, 0]]), np.zeros((1, 3, 4))
        >>> round(float(loss(labels, logits)), 4)  # log 4
        1.3863

    References: Szegedy et al. 2015, sec. 7, arXiv:1512.00567; Vaswani et al. 2017,
    sec. 5.4, arXiv:1706.03762.
    """

    def __init__(
        self,
        from_logits=True,
        label_smoothing=0.0,
        ignore_id=-100,
        reduction="sum_over_batch_size",
        name="smoothed_crossentropy",
    ):
        super().__init__(name=name, reduction=reduction, dtype=float_dtype())
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(
                f"`label_smoothing` must be in [0, 1), got {label_smoothing}."
            )
        self.from_logits = from_logits
        self.label_smoothing = label_smoothing
        self.ignore_id = ignore_id
        self._count = MaskedValues(reduction="sum", dtype=self.dtype)

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = integer_labels(y_true, y_pred)
        sample_weight = label_weights(sample_weight, y_true)
        loss = super().__call__(y_true, y_pred, sample_weight)
        if self.reduction not in MEANS:
            return loss
        # Keras divided by all unmasked positions: divide by the real ones instead.
        if self.reduction != "mean_with_sample_weight":
            sample_weight = None
        real = is_real(y_true, self.ignore_id)
        total = self._count(ops.ones_like(real), y_pred, sample_weight)
        return loss * ops.divide_no_nan(total, self._count(real, y_pred, sample_weight))

    def call(self, y_true, y_pred):
        return token_crossentropy(
            ops.cast(y_true, "int32"),
            y_pred,
            from_logits=self.from_logits,
            label_smoothing=self.label_smoothing,
            ignore_id=self.ignore_id,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "from_logits": self.from_logits,
            "label_smoothing": self.label_smoothing,
            "ignore_id": self.ignore_id,
        }


class MaskedValues(keras.losses.Loss):
    """Keras's own masking and weighting, of values computed already.

    Called as `(values, predictions, sample_weight)`: the Keras mask that the
    predictions carry, if any, and the weights are applied to the values. No
    public function tells that mask; every Keras loss applies it.
    """

    def call(self, y_true, y_pred):
        return y_true


def token_crossentropy(
    labels, predictions, from_logits=True, label_smoothing=0.0, ignore_id=-100
):
    """Cross-entropy of each position, 0 where the label is `ignore_id`.

    Args:
        labels: int (...,) labels.
        predictions: float (..., V) logits or probabilities, float32 at least.
        from_logits: bool, which of the two they are.
        label_smoothing: float e in [0, 1).
        ignore_id: int, the label without a loss, or None.

    Returns: float (...,), the dtype of `predictions`.
    """
    real = is_real(labels, ignore_id)
    labels = ops.where(ops.cast(real, "bool"), labels, 0)  # a safe index
    if from_logits:
        losses = ops.sparse_categorical_crossentropy(
            labels, predictions, from_logits=True
        )
    else:
        predictions = predictions / ops.sum(predictions, axis=-1, keepdims=True)
        predictions = ops.log(ops.maximum(predictions, keras.config.epsilon()))
        losses = -_at(labels, predictions)
    if label_smoothing > 0.0:
        # -(1 - e) log q_y - e mean(log q), with log q = predictions - constant:
        shift = _at(labels, predictions) - ops.mean(predictions, axis=-1)
        losses = losses + label_smoothing * shift
    return ops.where(ops.cast(real, "bool"), losses, ops.zeros_like(losses))


def _at(labels, predictions):
    """The prediction at each label, (...,) of (..., V)."""
    index = ops.expand_dims(labels, -1)
    return ops.squeeze(ops.take_along_axis(predictions, index, axis=-1), -1)


def is_real(labels, ignore_id):
    """Return float 1 where a label counts and 0 where it is `ignore_id`."""
    if ignore_id is None:
        return ops.ones_like(labels, dtype=float_dtype())
    return ops.cast(ops.not_equal(labels, ignore_id), float_dtype())


def integer_labels(labels, predictions):
    """Return labels as int32 of the predictions' shape without the last axis.

    Raises:
        ValueError: the number of axes does not fit.
    """
    labels = ops.cast(labels, "int32")
    rank = len(predictions.shape)
    if len(labels.shape) == rank and labels.shape[-1] == 1:
        labels = ops.squeeze(labels, axis=-1)
    if len(labels.shape) != rank - 1:
        raise ValueError(
            "`y_true` must be integer labels with one axis fewer than `y_pred`, "
            f"got shapes {tuple(labels.shape)} and {tuple(predictions.shape)}."
        )
    return labels


def label_weights(sample_weight, labels):
    """Return one weight per label, from weights per label or per row."""
    if sample_weight is None:
        return None
    weights = ops.convert_to_tensor(sample_weight, dtype=float_dtype())
    if len(weights.shape) == len(labels.shape) + 1 and weights.shape[-1] == 1:
        weights = ops.squeeze(weights, axis=-1)
    while len(weights.shape) < len(labels.shape):
        weights = ops.expand_dims(weights, -1)
    return ops.broadcast_to(weights, ops.shape(labels))


def float_dtype():
    """Return the dtype of losses and metrics: float32 at least."""
    return "float64" if keras.config.floatx() == "float64" else "float32"
