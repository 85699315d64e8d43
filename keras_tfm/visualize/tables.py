"""Pictures of tables: positions, and how alike things are.

Letters: T length, D hidden_dim.
"""

import numpy as np

from keras_tfm.visualize.figures import (
    CURVES,
    DIVERGING,
    SEQUENTIAL,
    check_labels,
    finish,
    heat,
    new_figure,
)


def position_table(table, title=None, path=None):
    """Draw a table of positions: as a heat map, and a few columns as curves.

    The columns are of the left half, where sinusoids are fast.

    Args:
        table: float (T, D), say `keras_tfm.layers.sinusoidal_table(64, 32)`.
        title: string, defaults to "Position table".
        path: string or path, where to save a PNG, or None.

    Returns: `matplotlib.figure.Figure`.

    Raises:
        ValueError: a table of another rank.

    Example:
        >>> figure = keras_tfm.visualize.position_table(np.zeros((5, 8)))
        >>> len(figure.axes)  # map, curves, colour bar
        3
    """
    table = np.asarray(table, "float32")
    if table.ndim != 2 or not table.size:
        raise ValueError(f"`table` must have shape (T, D), got {table.shape}.")
    length, width = table.shape
    figure = new_figure(11.0, 4.2)
    left, right = figure.subplots(1, 2)
    bound = float(np.abs(table).max()) or 1.0
    image = heat(left, table, (-bound, bound), DIVERGING)
    left.set(xlabel="column", ylabel="position")
    figure.colorbar(image, ax=left, label="value")
    last = min(width // 2, width - 1)  # sinusoids are flat in the other half
    chosen = np.unique(np.linspace(0, last, 4).astype(int))
    for colour, column in zip(CURVES, chosen):
        right.plot(
            np.arange(length),
            table[:, column],
            color=colour,
            label=f"column {column}",
            marker="o" if length <= 20 else "",
            markersize=3.5,
        )
    right.set(xlabel="position", ylabel="value")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.grid(alpha=0.3)
    right.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finish(figure, title or "Position table", path)


def similarity(matrix, rows=None, columns=None, title=None, path=None):
    """Draw how alike things are: tokens, positions, sentences, layers.

    A matrix with negative numbers is coloured around 0 in two colours, another
    from 0 upwards in one.

    Args:
        matrix: float (R, C), say cosines of embeddings.
        rows: list of R labels, or None for numbers.
        columns: list of C labels; None means those of the rows if R is C.
        title: string, defaults to "Similarity".
        path: string or path, where to save a PNG, or None.

    Returns: `matplotlib.figure.Figure`.

    Raises:
        ValueError: a matrix of another rank, or another number of labels.

    Example:
        >>> len(keras_tfm.visualize.similarity(np.eye(3), rows=["a", "b", "c"]).axes)
        2
    """
    matrix = np.asarray(matrix, "float32")
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"`matrix` must have shape (R, C), got {matrix.shape}.")
    height, width = matrix.shape
    if columns is None and height == width:
        columns = rows
    rows = check_labels("rows", rows, height)
    columns = check_labels("columns", columns, width)
    bound = float(np.abs(matrix).max()) or 1.0
    signed = float(matrix.min()) < 0.0
    figure = new_figure(
        min(max(0.25 * width, 4.0), 10.0) + 1.0, min(max(0.25 * height, 3.6), 10.0)
    )
    axes = figure.subplots()
    image = heat(
        axes,
        matrix,
        (-bound if signed else 0.0, bound),
        DIVERGING if signed else SEQUENTIAL,
        rows,
        columns,
    )
    figure.colorbar(image, ax=axes, label="similarity")
    return finish(figure, title or "Similarity", path)
