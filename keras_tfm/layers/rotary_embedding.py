"""Rotary positions: turn pairs of query and key columns by their position.

Letters: B batch, T length, N heads, H width of a head, R rotated width.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.rotary_scaling import (
    check_scaling,
    rotary_attention_factor,
    rotary_frequencies,
)
from keras_tfm.layers.sinusoidal_position_encoding import token_positions


@keras.saving.register_keras_serializable(package="keras_tfm")
class RotaryEmbedding(keras.layers.Layer):
    """Rotate queries or keys, so that scores see distances instead of places.

    Pair i of a head turns by `position * max_wavelength ** (-2i / R)` radians;
    the score of a query and a key then depends on their distance only. Angles
    and rotation are float32 at least, whatever the policy, and are cast last.
    Masks pass through.

    `scaling` stretches a trained model to longer texts. The types "dynamic" and
    "longrope" choose the frequencies by the current length, the largest position
    + 1. Keys that were rotated and cached at a shorter length are not turned
    again, so cached decoding past the original length differs from a full pass,
    as it does in the reference implementations.

    Args:
        max_wavelength: float above 0, the base (also called theta).
        layout: which columns form a pair: "half" joins column i with i + R / 2
            (GPT-NeoX, Llama in Hugging Face files), "interleaved" joins 2i with
            2i + 1 (the paper, GPT-J, Llama's own files). Weights trained with one
            need their query and key columns permuted for the other.
        rotary_dim: int R, even: only the first R columns of a head turn, the rest
            passes. None means all of them.
        scaling: dict or None. `{"type": ..., "factor": ...}` with the further keys
            of the type, named as in Hugging Face configurations:
            "linear": -;
            "dynamic": original_max_position_embeddings;
            "yarn": original_max_position_embeddings, and optionally beta_fast,
            beta_slow, attention_factor, mscale, mscale_all_dim, truncate;
            "longrope": original_max_position_embeddings, short_factor and
            long_factor (R / 2 numbers each), factor or attention_factor;
            "llama3": original_max_position_embeddings, low_freq_factor,
            high_freq_factor.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, N, H).
        positions: int (T,) or (B, T); 0, 1, 2 ... if None.

    Returns: float (B, T, N, H).

    Raises:
        ValueError: an argument is out of range, R is odd or wider than a head, or
            `scaling` has an unknown type, an unknown key or misses one.

    Example:
        >>> layer = keras_tfm.layers.RotaryEmbedding()
        >>> tuple(layer(keras.ops.zeros((2, 7, 4, 16))).shape)
        (2, 7, 4, 16)

    References: Su et al. 2021, sec. 3.4, arXiv:2104.09864; the scalings are in
        `rotary_frequencies`.
    """

    def __init__(
        self,
        max_wavelength=10000.0,
        layout="half",
        rotary_dim=None,
        scaling=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        if max_wavelength <= 0:
            raise ValueError(
                f"`max_wavelength` must be positive, got {max_wavelength}."
            )
        if layout not in ("half", "interleaved"):
            raise ValueError(
                f'`layout` must be "half" or "interleaved", got {layout!r}.'
            )
        if rotary_dim is not None and (rotary_dim < 2 or rotary_dim % 2):
            raise ValueError(f"`rotary_dim` must be even and > 0, got {rotary_dim}.")
        self.max_wavelength = max_wavelength
        self.layout = layout
        self.rotary_dim = rotary_dim
        self.scaling = check_scaling(scaling)
        self.supports_masking = True

    def build(self, inputs_shape):
        key_dim = inputs_shape[-1]
        rotary_dim = self.rotary_dim or key_dim
        if rotary_dim % 2 or rotary_dim > key_dim:
            raise ValueError(
                f"The rotated width {rotary_dim} must be even and at most that of a "
                f"head, {key_dim}; set `rotary_dim`."
            )
        for key in ("short_factor", "long_factor"):
            numbers = (self.scaling or {}).get(key)
            if numbers is not None and len(numbers) != rotary_dim // 2:
                raise ValueError(
                    f'`scaling["{key}"]` must have {rotary_dim // 2} numbers, got '
                    f"{len(numbers)}."
                )

    def call(self, inputs, positions=None):
        inputs = ops.cast(inputs, self.compute_dtype)
        positions = token_positions(inputs, positions)
        wide = keras.backend.result_type(self.compute_dtype, "float32")
        rotary_dim = self.rotary_dim or inputs.shape[-1]
        x = ops.cast(inputs[..., :rotary_dim], wide)
        cos, sin = self._waves(positions, rotary_dim, wide)  # (T, 1, R), (B, T, 1, R)
        x = ops.cast(x * cos + self._partners(x) * sin, self.compute_dtype)
        if rotary_dim == inputs.shape[-1]:
            return x
        return ops.concatenate([x, inputs[..., rotary_dim:]], axis=-1)

    def _waves(self, positions, rotary_dim, dtype):
        """Cosines, and sines with the sign of their column, one per column."""
        length = None
        if self.scaling and self.scaling["type"] in ("dynamic", "longrope"):
            length = ops.cast(ops.max(positions, initial=0) + 1, dtype)
        frequencies = rotary_frequencies(
            rotary_dim, self.max_wavelength, self.scaling, length
        )
        # The pair of every column, and the sign of its sine.
        pairs, signs = np.arange(rotary_dim // 2), np.array([-1.0, 1.0])
        if self.layout == "half":
            pairs, signs = np.tile(pairs, 2), np.repeat(signs, rotary_dim // 2)
        else:
            pairs, signs = np.repeat(pairs, 2), np.tile(signs, rotary_dim // 2)
        frequencies = ops.take(ops.cast(frequencies, dtype), pairs, axis=0)
        angles = ops.expand_dims(ops.cast(positions, dtype), -1) * frequencies
        angles = ops.expand_dims(angles, -2)  # one for all heads
        factor = rotary_attention_factor(self.scaling)
        signs = ops.convert_to_tensor(signs * factor, dtype)
        return ops.cos(angles) * factor, ops.sin(angles) * signs

    def _partners(self, x):
        """The other column of every column's pair."""
        half = x.shape[-1] // 2
        if self.layout == "half":
            return ops.concatenate([x[..., half:], x[..., :half]], axis=-1)
        pairs = ops.reshape(x, (*ops.shape(x)[:-1], half, 2))
        return ops.reshape(ops.flip(pairs, axis=-1), ops.shape(x))

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
            "rotary_dim": self.rotary_dim,
            "scaling": check_scaling(self.scaling),
        }
