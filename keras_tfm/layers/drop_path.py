"""Drop-path (stochastic depth): leave a whole branch out, sample by sample.

Letters: B batch.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_tfm")
class DropPath(keras.layers.Layer):
    """In training, zero whole samples of a residual branch at random.

    Each sample is dropped on its own; kept samples are divided by 1 - rate, so
    the mean stays. At inference and at rate 0 nothing happens; at rate 1 the
    branch is zero in training. Masks pass through.

    Args:
        rate: float in [0, 1], the probability of dropping a sample.
        seed: int or None, seed of the random numbers.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, ...), the output of the branch.
        training: bool.

    Returns: float (B, ...).

    Raises:
        ValueError: `rate` is outside [0, 1].

    Example:
        >>> layer = keras_tfm.layers.DropPath(0.1)
        >>> tuple(layer(keras.ops.ones((2, 7, 16)), training=True).shape)
        (2, 7, 16)

    References: Huang et al. 2016, sec. 3, arXiv:1603.09382.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate <= 1:
            raise ValueError(f"`rate` must be in [0, 1], got {rate}.")
        self.rate = rate
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True

    def call(self, inputs, training=None):
        if not training or self.rate == 0:
            return inputs
        if self.rate == 1:
            return ops.zeros_like(inputs)
        shape = (ops.shape(inputs)[0], *(1 for _ in inputs.shape[1:]))
        draw = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)
        kept = inputs / ops.cast(1.0 - self.rate, inputs.dtype)
        return ops.where(draw >= self.rate, kept, ops.zeros_like(inputs))

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
