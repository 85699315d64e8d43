"""Sinusoidal positions: fixed waves added to the embeddings.

Letters: B batch, T length, D width.
"""

import keras
import numpy as np
from keras import ops


def token_positions(inputs, positions=None):
    """The position of every token: `positions`, checked, or 0, 1, 2 ...

    Args:
        inputs: tensor (B, T, ...).
        positions: int (T,) or (B, T), or None.

    Returns: int (T,) or (B, T).

    Raises:
        ValueError: `positions` is not an integer tensor of one of these shapes.
    """
    if positions is None:
        return ops.arange(ops.shape(inputs)[1], dtype="int32")
    positions = ops.convert_to_tensor(positions)
    shape, length = tuple(positions.shape), inputs.shape[1]
    fits = len(shape) in (1, 2) and (None in (shape[-1], length) or shape[-1] == length)
    if "int" not in keras.backend.standardize_dtype(positions.dtype):
        raise ValueError(f"`positions` must be integers, got {positions.dtype}.")
    if not fits:
        raise ValueError(
            "`positions` must have the shape (T,) or (B, T) with T the length of "
            f"`inputs`, {length}, got {shape}."
        )
    return positions


def sinusoidal_waves(
    positions, dim, max_wavelength=10000.0, dtype="float32", interleaved=True
):
    """Sines and cosines of given positions, without any limit on them.

    Args:
        positions: int or float (...,).
        dim: int D, the number of columns.
        max_wavelength: float; column pairs have wavelengths from 2 pi to
            2 pi max_wavelength.
        dtype: string, in which angles and waves are computed.
        interleaved: bool; False puts all sines before all cosines.

    Returns: (..., D) in `dtype`: column 2i is sin(position / w), column 2i + 1
        cos(position / w) with w = max_wavelength ** (2i / D). If D is odd, there is
        one sine more.
    """
    pairs = (dim + 1) // 2
    frequencies = float(max_wavelength) ** (-2.0 * np.arange(pairs) / dim)
    positions = ops.expand_dims(ops.cast(positions, dtype), -1)
    angles = positions * ops.convert_to_tensor(frequencies, dtype)  # (..., D / 2)
    waves = ops.sin(angles), ops.cos(angles)
    if not interleaved:
        return ops.concatenate(waves, axis=-1)[..., :dim]
    waves = ops.stack(waves, axis=-1)
    waves = ops.reshape(waves, (*ops.shape(angles)[:-1], 2 * pairs))
    return waves if dim % 2 == 0 else waves[..., :dim]


def sinusoidal_table(length, dim, max_wavelength=10000.0):
    """The sinusoidal position table of the first Transformer.

    Args:
        length: int T, number of positions; may be a scalar tensor.
        dim: int D, number of columns; odd numbers end in a lone sine.
        max_wavelength: float above 0, the base of the wavelengths.

    Returns: float32 (T, D), columns interleaved sin, cos, sin, cos ...

    Raises:
        ValueError: `dim` or `max_wavelength` is not positive.

    Example:
        >>> table = keras_tfm.layers.sinusoidal_table(2, 4)
        >>> [round(float(x), 4) for x in table[1]]
        [0.8415, 0.5403, 0.01, 0.9999]

    References: Vaswani et al. 2017, sec. 3.5, arXiv:1706.03762.
    """
    if dim < 1:
        raise ValueError(f"`dim` must be positive, got {dim}.")
    if max_wavelength <= 0:
        raise ValueError(f"`max_wavelength` must be positive, got {max_wavelength}.")
    return sinusoidal_waves(ops.arange(length, dtype="int32"), dim, max_wavelength)


@keras.saving.register_keras_serializable(package="keras_tfm")
class SinusoidalPositionEncoding(keras.layers.Layer):
    """Add sinusoidal positions to embeddings; no weights, no longest length.

    The waves are computed from the positions in float32 at least and cast last,
    so far positions stay apart under 16-bit policies too. Masks pass through.

    Args:
        max_wavelength: float above 0, the base of the wavelengths.
        interleaved: bool, columns sin, cos, sin, cos ... as published; False: all
            sines, then all cosines, as in Marian.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        positions: int (T,) or (B, T), the position of every token; 0, 1, 2 ... if
            None. With padding on the left, count the real tokens only.

    Returns: float (B, T, D).

    Raises:
        ValueError: `max_wavelength` is not positive, or `positions` has another
            shape or is not integer.

    Example:
        >>> layer = keras_tfm.layers.SinusoidalPositionEncoding()
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Vaswani et al. 2017, sec. 3.5, arXiv:1706.03762.
    """

    def __init__(self, max_wavelength=10000.0, interleaved=True, **kwargs):
        super().__init__(autocast=False, **kwargs)
        if max_wavelength <= 0:
            raise ValueError(
                f"`max_wavelength` must be positive, got {max_wavelength}."
            )
        self.max_wavelength = max_wavelength
        self.interleaved = interleaved
        self.supports_masking = True

    def call(self, inputs, positions=None):
        inputs = ops.cast(inputs, self.compute_dtype)
        waves = sinusoidal_waves(  # (T, D) or (B, T, D)
            token_positions(inputs, positions),
            inputs.shape[-1],
            self.max_wavelength,
            keras.backend.result_type(self.compute_dtype, "float32"),
            self.interleaved,
        )
        return inputs + ops.cast(waves, self.compute_dtype)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "interleaved": self.interleaved,
        }
