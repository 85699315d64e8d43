"""What all pictures share: a figure without global state, a heat map, labels.

Letters: R rows, C columns of a matrix.
"""

import textwrap

import numpy as np

SEQUENTIAL, DIVERGING = "cividis", "PuOr_r"  # both safe for colour-blind readers
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MOST_LABELS, MOST_NUMBERS = 48, 10  # per side: more would not be readable
INVISIBLE = {"": "(empty)", " ": "␣", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def new_figure(width, height):
    """An empty figure that pyplot does not know, so nothing has to be closed.

    Args:
        width: float, inches.
        height: float, inches.

    Returns: `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def finish(figure, title, path):
    """Write the title and, if there is a path, the file.

    Args:
        figure: `matplotlib.figure.Figure`.
        title: string or None.
        path: string or path of a PNG file (or what its ending says), or None.

    Returns: the figure.
    """
    if title:
        width = int(7 * figure.get_figwidth())  # letters that fit beside each other
        figure.suptitle(textwrap.fill(title, width), parse_math=False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def heat(axes, matrix, limits, colours, rows=None, columns=None):
    """A heat map with labels, and with its numbers if it is small.

    Args:
        axes: matplotlib axes.
        matrix: float (R, C).
        limits: pair of floats, the ends of the colour scale.
        colours: name of a colour map.
        rows: list of R labels, or None for numbers.
        columns: list of C labels, or None for numbers.

    Returns: the image, for a colour bar.
    """
    height, width = matrix.shape
    image = axes.imshow(
        matrix, cmap=colours, vmin=limits[0], vmax=limits[1], aspect="auto"
    )
    _label_ticks(axes.xaxis, columns, width, rotation=90)
    _label_ticks(axes.yaxis, rows, height, rotation=0)
    if max(height, width) <= MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(matrix):
            red, green, blue, _ = image.cmap(image.norm(value))
            light = 0.3 * red + 0.6 * green + 0.1 * blue > 0.5
            axes.text(
                column,
                row,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="black" if light else "white",
            )
    return image


def label(token):
    """A token as a tick label: white space visible, long ones cut.

    Args:
        token: string, bytes or anything with a string form.

    Returns: string of at most 16 characters.
    """
    if isinstance(token, bytes):
        token = token.decode("utf-8", errors="replace")
    token = str(token)
    if not token.strip():
        token = "".join(INVISIBLE.get(mark, "␣") for mark in token) or INVISIBLE[""]
    return token if len(token) <= 16 else token[:15] + "…"


def check_labels(name, labels, size):
    """Return the labels as a list.

    Args:
        name: string, the argument's name for the error.
        labels: sequence or None.
        size: int, how many are needed.

    Returns: list or None.

    Raises:
        ValueError: another number of labels.
    """
    if labels is None:
        return None
    labels = list(labels)
    if len(labels) != size:
        raise ValueError(f"`{name}` must have {size} labels, got {len(labels)}.")
    return labels


def _label_ticks(axis, labels, size, rotation):
    """Every label if they fit; else numbers, spread out by matplotlib."""
    if labels is None or size > MOST_LABELS:
        axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        return
    axis.set_ticks(range(size), [label(token) for token in labels])
    for tick in axis.get_ticklabels():
        tick.set(rotation=rotation, fontsize=8, parse_math=False)
