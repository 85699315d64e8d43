"""Curves of a training run: one panel per quantity, training and validation."""

import math

import numpy as np

from keras_tfm.visualize.figures import CURVES, finish, new_figure


def training_curves(history, title=None, path=None):
    """Draw how a training went: each metric over the epochs.

    A metric and its `val_` twin share a panel; the best validation value (the
    smallest of losses, errors and perplexities, the largest of the rest) is
    marked.

    Args:
        history: what `fit` returns, its `history` dict from names to lists, or a
            list of dicts of logs, one per epoch.
        title: string, defaults to "Training".
        path: string or path, where to save a PNG, or None.

    Returns: `matplotlib.figure.Figure`.

    Raises:
        ValueError: there is nothing to draw.

    Example:
        >>> history = {"loss": [2.0, 1.0], "val_loss": [2.1, 1.5]}
        >>> figure = keras_tfm.visualize.training_curves(history)
        >>> [line.get_label() for line in figure.axes[0].lines[:2]]
        ['training', 'validation']
    """
    logs = _columns(history)
    names = [name for name in logs if not name.startswith("val_")]
    names += [n[4:] for n in logs if n.startswith("val_") and n[4:] not in logs]
    names.sort(key=lambda name: name != "loss")  # the loss first
    across = min(len(names), 3)
    down = math.ceil(len(names) / across)
    figure = new_figure(4.2 * across, 3.0 * down + 0.5)
    panels = figure.subplots(down, across, squeeze=False)
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(panels.flat, names):
        _draw(axes, name, logs.get(name), logs.get(f"val_{name}"))
    return finish(figure, title or "Training", path)


def _columns(history):
    """Logs as a dict from names to arrays with one value per epoch."""
    history = getattr(history, "history", history)
    if not isinstance(history, dict):
        rows = list(history)
        names = dict.fromkeys(name for row in rows for name in row)
        history = {n: [row.get(n, float("nan")) for row in rows] for n in names}
    logs = {name: np.asarray(column, "float64") for name, column in history.items()}
    if not any(column.size for column in logs.values()):
        raise ValueError("`history` must hold at least one epoch, got none.")
    return logs


def _draw(axes, name, training, validation):
    """One panel; a single epoch is a dot."""
    for values, colour, legend, style in (
        (training, CURVES[0], "training", "-"),
        (validation, CURVES[1], "validation", "--"),
    ):
        if values is not None and values.size:
            axes.plot(
                np.arange(1, len(values) + 1),
                values,
                style,
                color=colour,
                label=legend,
                marker="o" if len(values) <= 20 else "",
                markersize=3.5,
            )
    if validation is not None and np.isfinite(validation).any():
        falls = any(word in name for word in ("loss", "error", "perplexity"))
        best = int((np.nanargmin if falls else np.nanargmax)(validation))
        axes.plot(best + 1, validation[best], "*", color="black", markersize=9)
        axes.annotate(
            f"best {validation[best]:.4g}",
            (best + 1, validation[best]),
            xytext=(0, 8 if falls else -14),
            textcoords="offset points",
            ha="right" if best > len(validation) / 2 else "left",
            fontsize=8,
        )
        axes.margins(y=0.15)
    axes.set_title(name.replace("_", " "), fontsize=10, parse_math=False)
    axes.set_xlabel("epoch")
    epochs = max(len(x) for x in (training, validation) if x is not None)
    axes.set_xlim(0.5, epochs + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.grid(alpha=0.3)
    if training is not None and validation is not None:
        axes.legend(fontsize=8, frameon=False)
