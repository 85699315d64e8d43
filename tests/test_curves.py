import keras
import numpy as np
import pytest

from keras_tfm.visualize import training_curves

LOGS = {
    "accuracy": [0.2, 0.5, 0.6],
    "loss": [3.0, 2.0, 1.0],
    "val_loss": [3.1, 2.2, 2.5],
    "val_accuracy": [0.3, 0.55, 0.4],
    "learning_rate": [0.1, 0.1, 0.01],
    "val_perplexity": [9.0, 8.0, 7.0],
}


def panels(figure):
    return {axes.get_title(): axes for axes in figure.axes if axes.lines}


def test_a_panel_per_quantity_the_loss_first():
    found = panels(training_curves(LOGS))
    assert list(found) == ["loss", "accuracy", "learning rate", "perplexity"]
    training, validation = found["loss"].lines[:2]
    assert training.get_label() == "training"
    np.testing.assert_array_equal(training.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(training.get_ydata(), LOGS["loss"])
    np.testing.assert_array_equal(validation.get_ydata(), LOGS["val_loss"])
    only = found["perplexity"].lines[0]
    assert only.get_label() == "validation"


def test_the_best_validation_value_is_marked():
    found = panels(training_curves(LOGS))
    for name, best in (
        ("loss", (2, 2.2)),
        ("accuracy", (2, 0.55)),
        ("perplexity", (3, 7.0)),
    ):
        star = found[name].lines[-1]
        assert (star.get_xdata()[0], star.get_ydata()[0]) == best
        assert found[name].texts[0].get_text() == f"best {best[1]:.4g}"
    assert not found["learning rate"].texts


def test_takes_what_fit_returns_and_lists_of_logs(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    history = model.fit(np.ones((2, 1)), np.ones((2, 1)), epochs=2, verbose=0)
    figure = training_curves(history, title="Mine", path=tmp_path / "curves.png")
    np.testing.assert_allclose(
        figure.axes[0].lines[0].get_ydata(), history.history["loss"]
    )
    assert figure.get_suptitle() == "Mine" and (tmp_path / "curves.png").exists()
    rows = [{"loss": 2.0}, {"loss": 1.0, "val_loss": 1.5}]
    axes = training_curves(rows).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [2.0, 1.0])
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), [np.nan, 1.5])
    assert axes.lines[-1].get_xdata()[0] == 2


def test_one_epoch_and_values_that_are_not_numbers(tmp_path):
    logs = {"loss": [np.nan], "val_loss": [np.nan]}
    figure = training_curves(logs, path=tmp_path / "one.png")
    figure.canvas.draw()
    low, high = figure.axes[0].get_xlim()
    assert [x for x in figure.axes[0].get_xticks() if low <= x <= high] == [1]


@pytest.mark.parametrize("history", [{}, [], {"loss": []}])
def test_refuses_nothing(history):
    with pytest.raises(ValueError, match="`history` must hold at least one epoch"):
        training_curves(history)
