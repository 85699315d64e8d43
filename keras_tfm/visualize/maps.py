"""Pictures of attention weights: over tokens and over an image.

Letters: N num_heads, T query length, S key length, P patches.
"""

import math

import numpy as np

from keras_tfm.visualize.figures import (
    SEQUENTIAL,
    check_labels,
    finish,
    heat,
    new_figure,
)


def attention_map(weights, rows=None, columns=None, title=None, path=None):
    """Draw who attends to whom: one panel per head, rows are the queries.

    All heads share one colour scale that starts at 0, so they can be compared.
    Maps of up to 10 x 10 also show the numbers.

    Args:
        weights: float (T, S) or (N, T, S), attention weights after the softmax.
        rows: list of T labels, the query tokens, or None for numbers.
        columns: list of S labels, the key tokens; None means those of the rows if
            T is S.
        title: string, defaults to "Attention weights".
        path: string or path, where to save a PNG, or None.

    Returns: `matplotlib.figure.Figure`.

    Raises:
        ValueError: weights of another rank, or another number of labels.

    Example:
        >>> words = ["a", "small", "test"]
        >>> figure = keras_tfm.visualize.attention_map(np.eye(3), rows=words)
        >>> len(figure.axes)  # the map and its colour bar
        2
    """
    weights = np.asarray(weights, "float32")
    if weights.ndim not in (2, 3) or not weights.size:
        raise ValueError(
            f"`weights` must have shape (T, S) or (N, T, S), got {weights.shape}."
        )
    heads = weights.reshape((-1, *weights.shape[-2:]))  # (N, T, S)
    count, queries, keys = heads.shape
    if columns is None and queries == keys:
        columns = rows
    rows = check_labels("rows", rows, queries)
    columns = check_labels("columns", columns, keys)
    across = min(count, 4)
    down = math.ceil(count / across)
    size = (min(max(0.22 * keys, 2.6), 9.0), min(max(0.22 * queries, 2.4), 9.0))
    if across > 2:
        size = (min(size[0], 4.5), min(size[1], 4.5))
    figure = new_figure(across * size[0] + 1.2, down * size[1] + 1.0)
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for index, axes in enumerate(panels.flat):
        if index >= count:
            axes.set_axis_off()
            continue
        image = heat(
            axes, heads[index], (0.0, float(heads.max())), SEQUENTIAL, rows, columns
        )
        if count > 1:
            axes.set_title(f"head {index}", fontsize=10)
        if index % across == 0:
            axes.set_ylabel("query")
        if index + across >= count:
            axes.set_xlabel("key")
            axes.tick_params(labelbottom=True)
    figure.colorbar(
        image, ax=panels, label="weight", fraction=0.06 / across, pad=0.02, aspect=30
    )
    return finish(figure, title or "Attention weights", path)


def patch_attention(image, weights, grid, title=None, path=None):
    """Draw where a Vision Transformer looks: attention over the patches.

    The image comes first, then one panel per head: the image in grey under its
    weights. Each head has its own scale, up to its largest weight, which the panel's
    title tells: a head that looks everywhere and one that looks at a single patch
    can both be read.

    Args:
        image: (height, width, channels) or (height, width), uint8 0 to 255 or float
            0 to 1; floats of another range are stretched to it.
        weights: float (P,) or (N, P), the weights from one query, say the class
            token, to the patches, row by row, without class tokens.
        grid: pair of ints (rows, columns) with rows * columns = P.
        title: string, defaults to "Attention over patches".
        path: string or path, where to save a PNG, or None.

    Returns: `matplotlib.figure.Figure`.

    Raises:
        ValueError: shapes that do not fit together.

    Example:
        >>> image, weights = np.zeros((8, 8, 3)), np.full(4, 0.25)
        >>> figure = keras_tfm.visualize.patch_attention(image, weights, (2, 2))
        >>> len(figure.axes)  # the image, one head, its colour bar
        3
    """
    from matplotlib.cm import ScalarMappable

    weights = np.atleast_2d(np.asarray(weights, "float32"))  # (N, P)
    rows, columns = grid
    if weights.ndim != 2 or weights.shape[1] != rows * columns:
        raise ValueError(
            f"`weights` must have shape (P,) or (N, P) with P = {rows * columns} as "
            f"`grid` {tuple(grid)} says, got {weights.shape}."
        )
    pixels = _pixels(image)
    grey = pixels.mean(axis=-1) if pixels.ndim == 3 else pixels
    heads = weights.reshape((-1, rows, columns))
    across = min(len(heads) + 1, 5)
    down = math.ceil((len(heads) + 1) / across)
    figure = new_figure(2.3 * across + 0.9, 2.3 * down + 0.7)
    panels = figure.subplots(down, across, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    first, *others = panels.flat
    first.imshow(pixels, cmap="gray", vmin=0.0, vmax=1.0)
    first.set_title("image", fontsize=10)
    edges = (-0.5, pixels.shape[1] - 0.5, pixels.shape[0] - 0.5, -0.5)
    for index, (axes, head) in enumerate(zip(others, heads)):
        largest = float(head.max()) or 1.0
        axes.imshow(0.25 + 0.75 * grey, cmap="gray", vmin=0.0, vmax=1.0)
        drawn = axes.imshow(
            head / largest,
            cmap=SEQUENTIAL,
            vmin=0.0,
            vmax=1.0,
            alpha=0.3 + 0.5 * np.clip(head / largest, 0.0, 1.0),
            extent=edges,
        )
        axes.set_title(f"head {index}, up to {largest:.2g}", fontsize=9)
    bar = figure.colorbar(
        ScalarMappable(drawn.norm, drawn.cmap),
        ax=panels,
        label="share of the head's largest",
        fraction=0.08 / across,
        pad=0.02,
        aspect=20,
    )
    bar.ax.tick_params(labelsize=8)
    return finish(figure, title or "Attention over patches", path)


def _pixels(image):
    """An image as floats from 0 to 1, (height, width) or (height, width, 3)."""
    image = np.asarray(image)
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[-1] != 3):
        raise ValueError(
            "`image` must have shape (height, width) or (height, width, 1 or 3), "
            f"got {image.shape}."
        )
    if image.dtype == np.uint8:
        return image / 255.0
    image = image.astype("float32")
    low, high = float(image.min()), float(image.max())
    if low >= 0.0 and high <= 1.0:
        return image
    return (image - low) / max(high - low, 1e-12)
