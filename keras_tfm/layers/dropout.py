"""Dropout that draws half as many random numbers as there are entries.

In a profile of a training step of BERT-base (docs/benchmarks.md), with XLA on CPUs, the
draws of `keras.layers.Dropout` are 7 % of the time.
"""

import keras
from keras import ops

PARTS = 2**12  # of the unit interval, in which a draw's position is used once more


@keras.saving.register_keras_serializable(package="keras_tfm")
class PairedDropout(keras.layers.Dropout):
    """`keras.layers.Dropout` that decides on two entries with one random number.

    A draw from [0, 1) is compared with the rate, and so is its position within the
    4096th part of [0, 1) that it fell into, which does not depend on it. A draw has
    23 bits, so the second decision knows the rate to within 1/4096.

    Args:
        rate: float in [0, 1].
        **kwargs: `noise_shape`, `seed`, and `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float, any shape.
        training: bool; the inputs pass as they are unless True.

    Returns: like `inputs`.

    References: Srivastava et al. 2014, JMLR 15.
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1 or self.noise_shape is not None:
            return super().call(inputs, training=training)
        shape = ops.shape(inputs)
        count = 1
        for size in shape:
            count = count * size
        draws = keras.random.uniform((-(-count // 2),), seed=self.seed_generator)
        within = draws * PARTS
        within = within - ops.floor(within)
        kept = ops.concatenate([draws >= self.rate, within >= self.rate])[:count]
        scaled = inputs * (1.0 / (1.0 - self.rate))
        return ops.where(ops.reshape(kept, shape), scaled, ops.zeros_like(inputs))
