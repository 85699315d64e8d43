import numpy as np
import pytest

from keras_tfm.visualize import attention_map, patch_attention

N, T, S = 3, 4, 6
RNG = np.random.default_rng(0)
WEIGHTS = RNG.dirichlet(np.ones(S), size=(N, T)).astype("float32")


def drawn(axes):
    """What the first image of a panel shows, as numbers."""
    return np.asarray(axes.images[0].get_array())


def ticks(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def test_one_panel_per_head_with_one_scale():
    figure = attention_map(WEIGHTS, rows="abcd", columns=list(range(S)))
    *panels, bar = figure.axes
    assert len(panels) == N
    for head, axes in enumerate(panels):
        np.testing.assert_array_equal(drawn(axes), WEIGHTS[head])
        assert axes.images[0].get_clim() == (0.0, float(WEIGHTS.max()))
        assert axes.get_title() == f"head {head}"
    assert ticks(panels[0].yaxis) == list("abcd")
    assert ticks(panels[0].xaxis) == [str(i) for i in range(S)]
    assert panels[0].get_ylabel() == "query" and panels[0].get_xlabel() == "key"
    assert figure.get_suptitle() == "Attention weights"


def test_self_attention_labels_both_sides():
    figure = attention_map(np.eye(3), rows=["a", "b", "c"], title="Mine")
    axes = figure.axes[0]
    assert ticks(axes.xaxis) == ticks(axes.yaxis) == ["a", "b", "c"]
    assert axes.get_title() == "" and figure.get_suptitle() == "Mine"


def test_cross_attention_does_not_take_the_rows_for_columns():
    axes = attention_map(WEIGHTS[0], rows="abcd").axes[0]
    assert ticks(axes.yaxis) == list("abcd")
    assert "a" not in ticks(axes.xaxis)


def test_eight_heads_make_two_rows(tmp_path):
    figure = attention_map(np.ones((8, 2, 2)), path=tmp_path / "heads.png")
    assert len(figure.axes) == 9
    assert (tmp_path / "heads.png").stat().st_size > 1000
    five = attention_map(np.ones((5, 2, 2)))
    assert [axes.axison for axes in five.axes[:8]] == [True] * 5 + [False] * 3


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3, 3), (0, 3), ()])
def test_attention_map_refuses(shape):
    with pytest.raises(ValueError, match=r"`weights` must have shape \(T, S\)"):
        attention_map(np.zeros(shape))


def test_attention_map_refuses_labels():
    with pytest.raises(ValueError, match="`columns` must have 6 labels, got 4"):
        attention_map(WEIGHTS, columns="abcd")


def test_patch_attention_lies_on_the_image():
    image = RNG.uniform(size=(8, 12, 3))
    weights = RNG.dirichlet(np.ones(6), size=2).astype("float32")
    figure = patch_attention(image, weights, grid=(2, 3))
    first, *heads = [axes for axes in figure.axes if axes.images]
    np.testing.assert_allclose(drawn(first), image)
    assert len(heads) == 2
    for axes, expected in zip(heads, weights.reshape((2, 2, 3))):
        grey, over = axes.images
        np.testing.assert_allclose(over.get_array(), expected / expected.max())
        assert over.get_extent() == [-0.5, 11.5, 7.5, -0.5] == list(grey.get_extent())
        assert f"{expected.max():.2g}" in axes.get_title()


@pytest.mark.parametrize("channels", [(), (1,), (3,)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_kinds_of_images(channels, dtype, tmp_path):
    image = RNG.integers(0, 256, size=(4, 4, *channels)).astype(dtype)
    figure = patch_attention(image, np.ones(4), (2, 2), path=tmp_path / "image.png")
    shown = drawn(figure.axes[0])
    assert shown.shape == ((4, 4, 3) if channels == (3,) else (4, 4))
    assert shown.min() >= 0.0 and shown.max() <= 1.0
    if dtype == "uint8":
        np.testing.assert_allclose(shown, np.squeeze(image) / 255.0)
    assert (tmp_path / "image.png").exists()


def test_no_attention_and_a_black_image_are_finite():
    figure = patch_attention(np.full((4, 4), -2.0), np.zeros(4), (2, 2))
    assert all(np.isfinite(drawn(axes)).all() for axes in figure.axes[:2])


def test_patch_attention_refuses():
    with pytest.raises(ValueError, match=r"P = 4 as `grid` \(2, 2\) says.*\(1, 5\)"):
        patch_attention(np.zeros((4, 4)), np.ones(5), (2, 2))
    with pytest.raises(ValueError, match=r"`image` must have shape.*\(4, 4, 2\)"):
        patch_attention(np.zeros((4, 4, 2)), np.ones(4), (2, 2))
