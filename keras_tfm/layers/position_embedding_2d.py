"""Positions on a grid of image patches, and how to move them to another grid.

Letters: B batch, P patches, D width, C number of class tokens.
"""

import keras
import numpy as np
from keras import ops


def sincos_grid(grid_size, dim, max_wavelength=10000.0):
    """Fixed sine-cosine positions of a grid, row-major.

    Args:
        grid_size: ints (rows, columns).
        dim: int D, a multiple of 4.
        max_wavelength: float above 0, the base of the wavelengths.

    Returns: NumPy float64 (rows * columns, D): sines, then cosines, of the row in
        the first half of the columns, the same of the column in the second.

    Raises:
        ValueError: 4 does not divide `dim`.
    """
    if dim % 4:
        raise ValueError(f"`dim` must be a multiple of 4 for sincos, got {dim}.")
    frequencies = float(max_wavelength) ** (-np.arange(dim // 4) / (dim // 4))
    places = np.indices(grid_size).reshape(2, -1, 1)  # rows and columns of (P, 1)
    return np.concatenate(
        [wave(place * frequencies) for place in places for wave in (np.sin, np.cos)],
        axis=-1,
    )


def _resize_matrix(old, new, interpolation, antialias):
    """Weights (new, old) that resample one axis; wider when it shrinks."""
    centers = (np.arange(new) + 0.5) * old / new - 0.5
    if interpolation == "nearest":
        return np.eye(old)[np.floor(centers + 0.5).astype(int)]
    cubic = interpolation == "bicubic"
    if not antialias:
        return _clamped_matrix(centers, old, _sharp_cubic if cubic else _triangle)
    kernel = _cubic if cubic else _triangle
    offsets = (np.arange(old) - centers.reshape(-1, 1)) / max(old / new, 1.0)
    weights = kernel(offsets)
    return weights / weights.sum(1, keepdims=True)


def _clamped_matrix(centers, old, kernel):
    """Weights (new, old) of the four nearest places, the outermost repeated."""
    weights = np.zeros((len(centers), old))
    rows = np.arange(len(centers))
    for step in (-1, 0, 1, 2):
        places = np.floor(centers).astype(int) + step
        np.add.at(weights, (rows, places.clip(0, old - 1)), kernel(places - centers))
    return weights


def _triangle(x):
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x, a=-0.5):
    """Keys's cubic; a is -0.5 in Pillow and TensorFlow."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _sharp_cubic(x):
    """The cubic of PyTorch and OpenCV where they do not antialias."""
    return _cubic(x, -0.75)


def resize_position_table(
    table,
    old_grid,
    new_grid,
    num_class_tokens=0,
    interpolation="bicubic",
    antialias=True,
):
    """Resample a position table, so that a model can read images of other sizes.

    Both grids are stated, never guessed from the number of rows. The rows of
    class tokens come first and are copied untouched.

    Args:
        table: float (C + rows * columns, D) of the old grid, row-major.
        old_grid: ints (rows, columns).
        new_grid: ints (rows, columns).
        num_class_tokens: int C.
        interpolation: "bicubic", "bilinear" or "nearest".
        antialias: bool, average when shrinking, as Pillow does. False gives what
            PyTorch's `interpolate` gives without it, and so DINOv2 and ViT of the
            reference library; the cubic is then a little sharper (a = -0.75).

    Returns: NumPy array (C + rows * columns, D) of the new grid, in the dtype of
        `table`; bit-equal to `table` if both grids are the same.

    Raises:
        ValueError: the table has not the stated number of rows, a grid is not two
            positive ints, or the interpolation is unknown.

    Example:
        >>> table = keras.ops.zeros((1 + 14 * 14, 8))
        >>> keras_tfm.layers.resize_position_table(table, (14, 14), (7, 20), 1).shape
        (141, 8)
    """
    table = np.asarray(ops.convert_to_numpy(table))
    old_grid, new_grid = _grid("old_grid", old_grid), _grid("new_grid", new_grid)
    expected = num_class_tokens + old_grid[0] * old_grid[1]
    if table.ndim != 2 or len(table) != expected:
        raise ValueError(
            f"`table` must have {num_class_tokens} + {old_grid[0]} * {old_grid[1]} "
            f"rows, got the shape {table.shape}."
        )
    if interpolation not in ("bicubic", "bilinear", "nearest"):
        raise ValueError(
            '`interpolation` must be "bicubic", "bilinear" or "nearest", got '
            f"{interpolation!r}."
        )
    if old_grid == new_grid:
        return table.copy()
    first, rest = table[:num_class_tokens], table[num_class_tokens:]
    grid = rest.reshape(*old_grid, -1).astype("float64")
    down, right = (
        _resize_matrix(old, new, interpolation, antialias)
        for old, new in zip(old_grid, new_grid)
    )
    grid = np.einsum("ry,cx,yxd->rcd", down, right, grid, optimize=True)
    rest = grid.reshape(-1, table.shape[1]).astype(table.dtype)
    return np.concatenate([first, rest])


def _grid(name, value):
    """`value` as (rows, columns), or ValueError."""
    grid = tuple(int(side) for side in value)
    if len(grid) != 2 or min(grid) < 1:
        raise ValueError(f"`{name}` must be two positive ints, got {value}.")
    return grid


@keras.saving.register_keras_serializable(package="keras_tfm")
class PositionEmbedding2D(keras.layers.Layer):
    """Add the position on a grid of patches to every patch token.

    Tokens are class tokens first, then patches row by row. Other grids need
    another table: see `resize_position_table`.

    Args:
        grid_size: ints (rows, columns) of patches.
        kind: "learned": one trained row for every token, class tokens included;
            "sincos": fixed waves, half of the width for the row and half for the
            column (4 must divide D), and zeros for class tokens.
        num_class_tokens: int C, tokens before the patches.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, C + P, D) with P = rows * columns.

    Returns: float (B, C + P, D).

    Raises:
        ValueError: an argument is out of range, or the number of tokens is not
            C + P. A number not known before the model runs is compared then.

    Example:
        >>> layer = keras_tfm.layers.PositionEmbedding2D((2, 3), num_class_tokens=1)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Dosovitskiy et al. 2020, sec. 3.1, arXiv:2010.11929; Beyer et al.
        2022 (sincos), arXiv:2205.01580.
    """

    def __init__(self, grid_size, kind="learned", num_class_tokens=0, **kwargs):
        super().__init__(autocast=False, **kwargs)
        if kind not in ("learned", "sincos"):
            raise ValueError(f'`kind` must be "learned" or "sincos", got {kind!r}.')
        if num_class_tokens < 0:
            raise ValueError(
                f"`num_class_tokens` must not be negative, got {num_class_tokens}."
            )
        self.grid_size = _grid("grid_size", grid_size)
        self.kind = kind
        self.num_class_tokens = num_class_tokens
        self.num_tokens = num_class_tokens + self.grid_size[0] * self.grid_size[1]
        self.supports_masking = True

    def build(self, inputs_shape):
        self._check_length(inputs_shape[1])
        hidden_dim = inputs_shape[-1]
        if self.kind == "learned":
            self.table = self.add_weight(
                name="table",
                shape=(self.num_tokens, hidden_dim),
                initializer=keras.initializers.TruncatedNormal(stddev=0.02),
                autocast=False,
            )
        else:
            waves = sincos_grid(self.grid_size, hidden_dim)
            self.table = np.pad(waves, ((self.num_class_tokens, 0), (0, 0)))

    def call(self, inputs):
        self._check_length(inputs.shape[1])
        inputs = ops.cast(inputs, self.compute_dtype)
        table = ops.cast(self.table, self.compute_dtype)
        if inputs.shape[1] is None:  # a slice of all rows, or else an error
            start = (ops.shape(inputs)[1] - self.num_tokens, 0)
            table = ops.slice(table, start, table.shape)
        return inputs + table

    def _check_length(self, length):
        if isinstance(length, int) and length != self.num_tokens:
            raise ValueError(
                f"`inputs` must have {self.num_class_tokens} + {self.grid_size[0]} * "
                f"{self.grid_size[1]} = {self.num_tokens} tokens, got {length}."
            )

    def compute_output_shape(self, inputs_shape):
        self._check_length(inputs_shape[1])
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "grid_size": self.grid_size,
            "kind": self.kind,
            "num_class_tokens": self.num_class_tokens,
        }
