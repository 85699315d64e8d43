"""Layer-scale: a trained factor for every channel of a residual branch.

Letters: D width.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_tfm")
class LayerScale(keras.layers.Layer):
    """Multiply every channel by its own trained factor, small at first.

    Started near zero, it lets deep stacks begin as nearly the identity. Masks
    pass through.

    Args:
        init_value: float, the first value of every factor.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (..., D).

    Returns: float (..., D).

    Example:
        >>> layer = keras_tfm.layers.LayerScale(0.5)
        >>> float(layer(keras.ops.ones((1, 1, 4)))[0, 0, 0])
        0.5

    References: Touvron et al. 2021, sec. 2, arXiv:2103.17239.
    """

    def __init__(self, init_value=1e-5, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.init_value = init_value
        self.supports_masking = True

    def build(self, inputs_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(inputs_shape[-1],),
            initializer=keras.initializers.Constant(self.init_value),
            autocast=False,
        )

    def call(self, inputs):
        inputs = ops.cast(inputs, self.compute_dtype)
        return inputs * ops.cast(self.gamma, self.compute_dtype)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), "init_value": self.init_value}
