import matplotlib.pyplot as plt
import numpy as np
import pytest

from keras_tfm import visualize
from keras_tfm.visualize.figures import check_labels, finish, heat, label, new_figure


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("word", "word"),
        ("", "(empty)"),
        (" ", "␣"),
        ("\n", "\\n"),
        ("\n\n ", "\\n\\n␣"),
        (b"caf\xc3\xa9", "café"),
        (b"\xff", "\ufffd"),
        (17, "17"),
        ("x" * 16, "x" * 16),
        ("x" * 17, "x" * 15 + "…"),
    ],
)
def test_label(token, expected):
    assert label(token) == expected


def test_small_maps_show_numbers_and_large_ones_do_not():
    axes = new_figure(2, 2).subplots()
    heat(axes, np.array([[0.0, 0.25], [0.5, 1.0]]), (0.0, 1.0), "cividis")
    assert [text.get_text() for text in axes.texts] == ["0.00", "0.25", "0.50", "1.00"]
    # Light numbers on dark cells, dark numbers on light ones.
    assert [text.get_color() for text in axes.texts][::3] == ["white", "black"]
    axes = new_figure(2, 2).subplots()
    heat(axes, np.zeros((11, 2)), (0.0, 1.0), "cividis")
    assert not axes.texts


def test_many_labels_become_numbers():
    axes = new_figure(2, 2).subplots()
    heat(axes, np.zeros((49, 3)), (0, 1), "cividis", rows=["a"] * 49, columns="xyz")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["x", "y", "z"]
    assert "a" not in [tick.get_text() for tick in axes.get_yticklabels()]


def test_dollars_and_underscores_are_no_formulas(tmp_path):
    words = ["$a_b", "\\frac{", "c$"]
    figure = visualize.attention_map(
        np.eye(3), rows=words, title="$5 and \\bad $x_", path=tmp_path / "a.png"
    )
    labels = figure.axes[0].get_yticklabels()
    assert [text.get_text() for text in labels] == words


def test_finish_saves_and_returns(tmp_path):
    figure = new_figure(2, 1)
    assert finish(figure, None, tmp_path / "empty.png") is figure
    assert (tmp_path / "empty.png").read_bytes()[:4] == b"\x89PNG"
    assert finish(figure, "title", None).get_suptitle() == "title"


def test_pyplot_keeps_no_figure():
    """It would have to be closed, and matplotlib warns past 20 of them."""
    visualize.similarity(np.eye(2))
    visualize.position_table(np.eye(2))
    assert plt.get_fignums() == []


def test_check_labels():
    assert check_labels("rows", None, 3) is None
    assert check_labels("rows", "abc", 3) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="`rows` must have 3 labels, got 2"):
        check_labels("rows", ["a", "b"], 3)


def test_a_long_title_is_broken_into_lines(tmp_path):
    figure, title = new_figure(4.2, 3.5), "A small model, trained on a data set " * 3
    figure.subplots()
    finish(figure, title, tmp_path / "title.png")
    (text,) = figure.texts
    extent = text.get_window_extent()
    assert extent.x0 >= 0 and extent.x1 <= figure.bbox.x1
    assert text.get_text().split() == title.split()
