"""The plain layers inside a layer: named, in its policy, trainable if it is, built."""

import keras

from keras_tfm.layers.dropout import PairedDropout
from keras_tfm.layers.policies import part_policy
from keras_tfm.layers.projection import Projection

NORMS = {
    "layer": keras.layers.LayerNormalization,
    "rms": keras.layers.RMSNormalization,
}


def part_arguments(owner, name):
    """What every part of `owner` is made with: `name`, `dtype` and `trainable`."""
    return {
        "name": name,
        "dtype": part_policy(owner.dtype_policy, name),
        "trainable": owner.trainable,
    }


def make_dense(owner, name, units, shape, use_bias=None):
    """A `Dense` with the owner's `use_bias` and its `kernel_initializer`, cloned.

    Args:
        owner: a layer with these two attributes.
        name: string.
        units: int, width of the output.
        shape: of the input.
        use_bias: bool, the owner's unless given.
    """
    part = Projection(
        units,
        use_bias=owner.use_bias if use_bias is None else use_bias,
        kernel_initializer=owner.kernel_initializer.clone(),
        **part_arguments(owner, name),
    )
    part.build(shape)
    return part


def make_norm(owner, name, kind, epsilon, shape):
    """A norm over the last axis.

    Args:
        owner: a layer.
        name: string.
        kind: "layer" or "rms".
        epsilon: float.
        shape: of the input.
    """
    part = NORMS[kind](epsilon=epsilon, **part_arguments(owner, name))
    part.build(shape)
    return part


def make_dropout(owner, name, rate):
    """A dropout layer."""
    return PairedDropout(rate, **part_arguments(owner, name))
