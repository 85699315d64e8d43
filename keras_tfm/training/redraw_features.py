"""Random features drawn anew while a model is trained."""

import keras
import numpy as np

from keras_tfm.training.adapters import all_layers


class RedrawFeatures(keras.callbacks.Callback):
    """Callback that gives `PerformerAttention` layers other random directions.

    The attention then stays right for whatever queries and keys the training leads
    to, and fits no single draw. The last draw is saved with the model.

    Args:
        every: int, training steps between two draws.
        seed: int, of all draws; new ones unless given.

    Raises:
        ValueError: `every` below 1, or, in `fit`, a model without such a layer.

    Example:
        >>> callback = keras_tfm.training.RedrawFeatures(every=500, seed=0)

    References: Choromanski et al. 2020, sec. 4.2, arXiv:2009.14794.
    """

    def __init__(self, every=1000, seed=None):
        super().__init__()
        if every < 1:
            raise ValueError(f"`every` must be at least 1, got {every}.")
        self.every = every
        self.seed = seed

    def on_train_begin(self, logs=None):
        self._steps = 0
        self._rng = np.random.default_rng(self.seed)
        if not _redrawable(self.model):
            raise ValueError(
                "`RedrawFeatures` needs a model with a PerformerAttention, "
                f"{self.model.name!r} has none."
            )

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1
        if self._steps % self.every:
            return
        # On JAX the weights of `self.model` are those of this step, others are not.
        for layer in _redrawable(self.model):
            layer.redraw(int(self._rng.integers(2**31)))


def _redrawable(model):
    """The layers of a model that can draw their features anew."""
    return [layer for layer in all_layers(model) if hasattr(layer, "redraw")]
