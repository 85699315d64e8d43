"""Nonlinearities that Keras has no name for."""

import keras


@keras.saving.register_keras_serializable(package="keras_tfm")
def gelu_tanh(x):
    """The tanh form of GELU, as in GPT-2.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Args:
        x: float tensor.

    Returns: float tensor of the same shape.

    References: Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """
    return keras.activations.gelu(x, approximate=True)
