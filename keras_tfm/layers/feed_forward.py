"""Feed-forward sub-layers: what one token computes by itself.

Letters: B batch, T length, D width of `inputs`, F intermediate_dim.
"""

import keras

from keras_tfm.layers.parts import make_dense, make_dropout
from keras_tfm.layers.policies import owner_dtype


@keras.saving.register_keras_serializable(package="keras_tfm")
class FeedForward(keras.layers.Layer):
    """Widen, apply a nonlinearity, narrow again: act(x W_up) W_down.

    D is read from the input. Positions never mix, so masks pass through.

    Args:
        intermediate_dim: int F, the inner width (often 4 D).
        activation: name or callable of the nonlinearity.
        dropout: float in [0, 1), on the inner activations, in training only.
        use_bias: bool.
        kernel_initializer: initializer of both matrices.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        training: bool.

    Returns: float (B, T, D).

    Raises:
        ValueError: if `intermediate_dim` is not positive.

    Example:
        >>> layer = keras_tfm.layers.FeedForward(64)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Vaswani et al. 2017, sec. 3.3, arXiv:1706.03762.
    """

    def __init__(
        self,
        intermediate_dim,
        activation="gelu",
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        _check_positive(intermediate_dim)
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        *outer, hidden_dim = inputs_shape
        self.up = make_dense(self, "up", self.intermediate_dim, inputs_shape)
        inner_shape = (*outer, self.intermediate_dim)
        self.down = make_dense(self, "down", hidden_dim, inner_shape)
        self.drop = make_dropout(self, "drop", self.dropout)

    def call(self, inputs, training=None):
        hidden = self.activation(self.up(inputs))  # (B, T, F)
        return self.down(self.drop(hidden, training=training))  # (B, T, D)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        parts = [self.up, self.down] if self.built else []
        return {**super().get_config(), **_config(self, parts)}


@keras.saving.register_keras_serializable(package="keras_tfm")
class GatedFeedForward(keras.layers.Layer):
    """Feed-forward with a multiplicative gate: (act(x W_gate) * x W_up) W_down.

    SwiGLU with `activation="silu"`, GEGLU with "gelu", ReGLU with "relu".

    Args:
        intermediate_dim: int F, the inner width (often 8/3 D).
        activation: name or callable of the gate's nonlinearity.
        dropout: float in [0, 1), on the inner activations, in training only.
        use_bias: bool.
        kernel_initializer: initializer of the three matrices.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        training: bool.

    Returns: float (B, T, D).

    Raises:
        ValueError: if `intermediate_dim` is not positive.

    Example:
        >>> layer = keras_tfm.layers.GatedFeedForward(64)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Shazeer 2020, arXiv:2002.05202.
    """

    def __init__(
        self,
        intermediate_dim,
        activation="silu",
        dropout=0.0,
        use_bias=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        _check_positive(intermediate_dim)
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape):
        *outer, hidden_dim = inputs_shape
        self.gate = make_dense(self, "gate", self.intermediate_dim, inputs_shape)
        self.up = make_dense(self, "up", self.intermediate_dim, inputs_shape)
        inner_shape = (*outer, self.intermediate_dim)
        self.down = make_dense(self, "down", hidden_dim, inner_shape)
        self.drop = make_dropout(self, "drop", self.dropout)

    def call(self, inputs, training=None):
        hidden = self.activation(self.gate(inputs)) * self.up(inputs)  # (B, T, F)
        return self.down(self.drop(hidden, training=training))  # (B, T, D)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        parts = [self.gate, self.up, self.down] if self.built else []
        return {**super().get_config(), **_config(self, parts)}


def _check_positive(intermediate_dim):
    if intermediate_dim < 1:
        raise ValueError(
            f"`intermediate_dim` must be positive, got {intermediate_dim}."
        )


def _config(layer, parts):
    return {
        "dtype": owner_dtype(layer, parts),
        "intermediate_dim": layer.intermediate_dim,
        "activation": keras.activations.serialize(layer.activation),
        "dropout": layer.dropout,
        "use_bias": layer.use_bias,
        "kernel_initializer": keras.initializers.serialize(layer.kernel_initializer),
    }
