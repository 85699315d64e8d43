"""What joins a sub-layer to the stream: norms, dropout, scale, residual sum.

Letters: B batch, T length, D width of the stream.
"""

import keras

from keras_tfm.layers.drop_path import DropPath
from keras_tfm.layers.layer_scale import LayerScale
from keras_tfm.layers.parts import NORMS, make_dropout, make_norm, part_arguments
from keras_tfm.layers.values import given, takes

NORM_POSITIONS = ("pre", "post", "sandwich")


def check_residual(norm_position, norm):
    """Refuse unknown names.

    Args:
        norm_position: should be "pre", "post" or "sandwich".
        norm: should be "layer" or "rms".
    """
    if norm_position not in NORM_POSITIONS:
        raise ValueError(
            '`norm_position` must be "pre", "post" or "sandwich", got '
            f"{norm_position!r}."
        )
    if norm not in NORMS:
        raise ValueError(f'`norm` must be "layer" or "rms", got {norm!r}.')


def make_residual(block, name, shape):
    """The residual branch around the part `name` of a block, built.

    Args:
        block: an encoder or decoder block, whose arguments it takes.
        name: string, name of the part.
        shape: of the stream, (B, T, D).
    """
    residual = Residual(
        norm_position=block.norm_position,
        norm=block.norm,
        norm_epsilon=block.norm_epsilon,
        dropout=block.dropout,
        drop_path=block.drop_path,
        layer_scale=block.layer_scale,
        **part_arguments(block, f"{name}_residual"),
    )
    residual.build(shape)
    return residual


@keras.saving.register_keras_serializable(package="keras_tfm")
class Residual(keras.layers.Layer):
    """One residual branch of a block, around a sub-layer that it does not own.

        y = residual.leave(x, sublayer(residual.enter(x)))

    pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + norm(f(norm(x))).

    Args:
        norm_position: "pre", "post" or "sandwich".
        norm: "layer" or "rms".
        norm_epsilon: float.
        dropout: float in [0, 1), on the branch, in training.
        drop_path: float in [0, 1], probability that a sample skips the branch.
        layer_scale: float or None, initial value of a learned factor per channel.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D), the stream.
        branch: float (B, T, D), what the sub-layer made of it.
        training: bool.

    Returns: float (B, T, D).

    References:
        post: Vaswani et al. 2017; pre: Xiong et al. 2020, arXiv:2002.04745;
        sandwich: Ding et al. 2021, arXiv:2105.13290.
    """

    def __init__(
        self,
        norm_position="pre",
        norm="layer",
        norm_epsilon=1e-5,
        dropout=0.0,
        drop_path=0.0,
        layer_scale=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_residual(norm_position, norm)
        self.norm_position = norm_position
        self.norm = norm
        self.norm_epsilon = norm_epsilon
        self.dropout = dropout
        self.drop_path = drop_path
        self.layer_scale = layer_scale
        self.supports_masking = True

    def build(self, inputs_shape):
        norm = self.norm, self.norm_epsilon, inputs_shape
        self.norm_before = self.norm_after = None
        if self.norm_position != "post":
            self.norm_before = make_norm(self, "norm_before", *norm)
        if self.norm_position != "pre":
            self.norm_after = make_norm(self, "norm_after", *norm)
        self.scale = None
        if self.layer_scale is not None:
            scale = part_arguments(self, "layer_scale")
            self.scale = LayerScale(self.layer_scale, **scale)
            self.scale.build(inputs_shape)
        self.drop = make_dropout(self, "drop", self.dropout)
        self.skip = DropPath(self.drop_path, **part_arguments(self, "drop_path"))
        self.skip.build(inputs_shape)

    def enter(self, inputs):
        """What the sub-layer is given."""
        return inputs if self.norm_before is None else self.norm_before(inputs)

    def leave(self, inputs, branch, training=None):
        """The stream after the sub-layer gave `branch`."""
        branch = self.drop(branch, training=training)
        if self.norm_position == "sandwich":
            branch = self.norm_after(branch)
        if self.scale is not None:
            branch = self.scale(branch)
        outputs = inputs + self.skip(branch, training=training)
        return self.norm_after(outputs) if self.norm_position == "post" else outputs

    def around(self, feed_forward, inputs, padding_mask=None, training=None):
        """The whole branch of a position-wise layer.

        It is given the mask if it wants it: a router must not count padding.
        """
        mask = padding_mask if takes(feed_forward, "padding_mask") else None
        flag = training if takes(feed_forward, "training") else None
        branch = feed_forward(
            self.enter(inputs), **given(padding_mask=mask, training=flag)
        )
        return self.leave(inputs, branch, training=training)

    def call(self, inputs, branch, training=None):
        return self.leave(inputs, branch, training=training)

    def compute_output_shape(self, inputs_shape, branch_shape=None):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "norm_position": self.norm_position,
            "norm": self.norm,
            "norm_epsilon": self.norm_epsilon,
            "dropout": self.dropout,
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
        }
