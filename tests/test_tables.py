import numpy as np
import pytest

from keras_tfm.layers import sinusoidal_table
from keras_tfm.visualize import position_table, similarity


def drawn(axes):
    return np.asarray(axes.images[0].get_array())


def test_position_table_shows_all_and_some_columns(tmp_path):
    table = np.asarray(sinusoidal_table(12, 10))
    figure = position_table(table, path=tmp_path / "table.png")
    heat, curves, _ = figure.axes
    np.testing.assert_array_equal(drawn(heat), table)
    low, high = heat.images[0].get_clim()
    assert -low == high == pytest.approx(np.abs(table).max())
    labels = [line.get_label() for line in curves.lines]
    assert labels == ["column 0", "column 1", "column 3", "column 5"]
    for line, column in zip(curves.lines, (0, 1, 3, 5)):
        np.testing.assert_array_equal(line.get_ydata(), table[:, column])
    assert (tmp_path / "table.png").exists()


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 5), (2, 2)])
def test_position_table_of_any_size(shape):
    figure = position_table(np.zeros(shape))
    assert figure.axes[1].lines and figure.get_suptitle() == "Position table"


def test_similarity_is_coloured_around_zero_only_if_signed(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (vectors @ vectors.T).astype("float32")
    figure = similarity(cosines, rows="abcd", path=tmp_path / "similarity.png")
    image = figure.axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), cosines)
    low, high = image.get_clim()
    assert -low == high == pytest.approx(1.0)
    assert image.get_cmap().name == "PuOr_r"
    ticks = [tick.get_text() for tick in figure.axes[0].get_xticklabels()]
    assert ticks == list("abcd")
    image = similarity(np.abs(cosines)).axes[0].images[0]
    assert image.get_clim() == (0.0, high) and image.get_cmap().name == "cividis"
    assert (tmp_path / "similarity.png").exists()


@pytest.mark.parametrize(
    ("draw", "name"), [(position_table, "table"), (similarity, "matrix")]
)
@pytest.mark.parametrize("shape", [(3,), (1, 2, 2), (0, 2)])
def test_refuses_other_ranks(draw, name, shape):
    with pytest.raises(ValueError, match=f"`{name}` must have shape"):
        draw(np.zeros(shape))


def test_refuses_labels():
    with pytest.raises(ValueError, match="`rows` must have 2 labels, got 3"):
        similarity(np.zeros((2, 4)), rows="abc")
