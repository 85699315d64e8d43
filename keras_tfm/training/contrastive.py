"""A loss that brings together what belongs together, and the rest apart.

Letters: n rows of a batch, D width of a vector.
"""

import keras
from keras import ops

from keras_tfm.training.losses import float_dtype


@keras.saving.register_keras_serializable(package="keras_tfm")
class ContrastiveLoss(keras.losses.Loss):
    """Cross-entropy of each vector's partners among all other vectors of the batch.

    With cosines s and temperature t, a row i with partners P(i) (the other rows of
    its label) has the loss `mean over p in P(i) of -log(exp(s_ip / t) / sum over all
    j != i of exp(s_ij / t))`. Rows without a partner serve as the others of the rest
    and are not counted in the mean; a batch without any partner gives 0.0. All in
    float32 at least.

    Args:
        temperature: float above 0; small ones look at the nearest of the others.
        name: string. Defaults to "contrastive_loss".

    Called with:
        y_true: int (n,), rows of one label belong together.
        y_pred: float (n, D), of any length.

    Returns: float32 scalar.

    Raises:
        ValueError: a temperature that is not positive.

    Example:
        >>> loss = keras_tfm.training.ContrastiveLoss(temperature=1.0)
        >>> vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> round(float(loss(np.array([0, 0, 1, 1]), vectors)), 4)  # log(1 + 2 / e)
        0.5514

    References: van den Oord et al. 2018, arXiv:1807.03748; Khosla et al. 2020,
    arXiv:2004.11362; Gao et al. 2021, arXiv:2104.08821.
    """

    def __init__(self, temperature=0.05, name="contrastive_loss"):
        super().__init__(name=name, reduction="sum", dtype=float_dtype())
        if not temperature > 0:
            raise ValueError(f"`temperature` must be positive, got {temperature}.")
        self.temperature = temperature

    def call(self, y_true, y_pred):
        labels = ops.reshape(y_true, (-1, 1))
        vectors = ops.normalize(y_pred, axis=-1)
        scores = ops.matmul(vectors, ops.transpose(vectors)) / self.temperature
        others = ops.logical_not(ops.cast(ops.eye(ops.shape(scores)[0]), "bool"))
        scores = ops.where(others, scores, -1e9)  # (n, n), a row is none of its own
        partners = ops.logical_and(others, ops.equal(labels, ops.transpose(labels)))
        partners = ops.cast(partners, scores.dtype)
        count = ops.sum(partners, axis=-1)  # (n,)
        log_shares = ops.log_softmax(scores, axis=-1)
        losses = -ops.sum(partners * log_shares, axis=-1) / ops.maximum(count, 1.0)
        rows = ops.sum(ops.cast(count > 0, losses.dtype))
        return ops.sum(losses) / ops.maximum(rows, 1.0)

    def get_config(self):
        return {"temperature": self.temperature, "name": self.name}
