"""The files that all recipes share: flags, stopping and going on, files, messages."""

import dataclasses
import errno
import json

import keras
import numpy as np
import pytest

from keras_tfm import data
from recipes import artifacts, classifiers, flags, session

pytestmark = pytest.mark.tensorflow

PRESETS = {"big": {"width": 9, "epochs": 3}, "csv": {"width": 5}, "a/b": {"width": 7}}


@dataclasses.dataclass
class Config(flags.Common):
    """A small recipe's settings."""

    dataset: str = flags.option("toy", "data set")
    epochs: int = flags.option(4, "passes")
    width: int = flags.option(2, "100% of the width")
    weight_decay: float = flags.option(0.0, "decay")
    label_smoothing: float = flags.option(0.0, "smoothing")


# --- flags


def test_preset_by_name_by_dataset_and_by_kind_of_file():
    make = flags.configure
    assert make(Config, PRESETS).width == 2
    assert make(Config, PRESETS, preset="big").width == 9
    assert make(Config, PRESETS, dataset="a/b").width == 7
    assert make(Config, PRESETS, dataset="csv:x/y.csv").width == 5
    given = make(Config, PRESETS, preset="big", width=1)
    assert (given.width, given.epochs) == (1, 3)  # what is given wins


def test_command_line_equals_configure():
    argv = "--dataset a/b --epochs 7 --learning-rate 1e-2 --mixed-precision bfloat16"
    config = flags.parse(Config, PRESETS, "doc", [*argv.split(), "--jit", "off"])
    assert config == flags.configure(
        Config,
        PRESETS,
        dataset="a/b",
        epochs=7,
        learning_rate=0.01,
        mixed_precision="bfloat16",
        jit="off",
    )
    assert config.policy == "mixed_bfloat16" and config.jit_compile is False


def test_help_explains_every_flag_with_its_default(capsys):
    with pytest.raises(SystemExit) as stop:
        flags.parse(Config, PRESETS, "What it does.", ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert stop.value.code == 0 and "What it does." in text
    for field in dataclasses.fields(Config):
        assert flags.flag(field.name) in text
        assert field.metadata["help"] in text
        assert field.default == "" or f"(default: {field.default})" in text
    assert "big: --width 9 --epochs 3" in text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--epochs few", "--epochs: invalid int value: 'few'"),
        ("--epochs 0", "--epochs must be positive, got 0"),
        ("--no-such-flag 1", "unrecognized arguments: --no-such-flag 1"),
        ("--preset none", "--preset must be one of a/b, big, csv, got 'none'"),
        ("--jit maybe", "--jit: invalid choice: 'maybe'"),
    ],
)
def test_wrong_flags_end_in_one_line_and_exit_code_2(argv, words, capsys):
    try:
        code = session.main(never, Config, PRESETS, "doc", argv.split())
    except SystemExit as stop:  # argparse's own way
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2 and words in error
    assert len(error.strip().splitlines()) == 1


def test_settings_from_python_are_checked_too():
    with pytest.raises(
        ValueError, match="--resume must be one of auto, never, got 'x'"
    ):
        Config(resume="x")


def never(config):
    raise AssertionError("should not run")


# --- exit codes


def disk_full(config):
    raise OSError(errno.ENOSPC, "No space left on device", "model.keras")


def stopped(config):
    raise KeyboardInterrupt


def wrong_data(config):
    raise data.DataError("x.csv has no column\n'text'.")


def no_package(config):
    raise ImportError("pip install it")


@pytest.mark.parametrize(
    ("run", "code", "words"),
    [
        (disk_full, 1, "No space left on device: 'model.keras'"),
        (wrong_data, 2, "error: x.csv has no column 'text'."),
        (no_package, 1, "pip install it"),
        (stopped, 130, "stopped. No epoch was complete"),
    ],
)
def test_failures_end_in_one_line(run, code, words, capsys, tmp_path):
    argv = ["--output-dir", str(tmp_path)]
    assert session.main(run, Config, PRESETS, "doc", argv) == code
    error = capsys.readouterr().err
    assert words in error and len(error.strip().splitlines()) == 1


def test_a_fault_of_the_code_and_debug_keep_the_traceback(tmp_path):
    def fault(config):
        raise TypeError("a fault")

    argv = ["--output-dir", str(tmp_path)]
    with pytest.raises(TypeError):
        session.main(fault, Config, PRESETS, "doc", argv)
    with pytest.raises(data.DataError):
        session.main(wrong_data, Config, PRESETS, "doc", [*argv, "--debug", "1"])


# --- the folder


def test_default_folder_tells_recipe_and_dataset():
    names = {"toy": "toy", "glue/sst2": "glue_sst2", "csv:my/reviews.csv": "reviews"}
    for dataset, name in names.items():
        folder = session.folder_of(Config(dataset=dataset))
        assert folder.parts == ("outputs", "test_recipes_shared", name)


def test_a_finished_run_is_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "metrics.json").write_text("{}")
    config = Config(output_dir=str(tmp_path))
    with pytest.raises(ValueError, match="finished run.*--resume never"):
        session.start(config)
    session.start(dataclasses.replace(config, resume="never"))
    assert not (tmp_path / "metrics.json").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_history_counts_an_epoch_once_and_survives_a_cut_line(tmp_path):
    lines = ['{"epoch": 1, "loss": 3}', '{"epoch": 2, "loss": 9}', '{"epoch": 2, "l']
    lines += ['{"epoch": 2, "loss": 2, "extra": 1}']
    (tmp_path / "history.jsonl").write_text("\n".join(lines))
    assert session.read_history(tmp_path) == {"loss": [3, 2]}


# --- stopping and going on


class StopIn(keras.callbacks.Callback):
    """Ctrl-C in the middle of an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.stop_in = epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == self.stop_in and batch == 1:
            raise KeyboardInterrupt


def toy(config):
    """A model, its data, and one label that depends on the inputs."""
    import tensorflow as tf

    x = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("int32")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    inputs = keras.Input((3,), name="features")
    hidden = keras.layers.Dense(config.width, activation="tanh")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2, name="logits")(hidden))
    classifiers.compile_classifier(model, config, steps=3)
    return model, dataset


def train(config, callbacks=()):
    session.start(config)
    model, dataset = toy(config)
    return model, session.fit(model, config, dataset, dataset, callbacks)


def test_the_same_command_goes_on_after_ctrl_c(tmp_path, capsys):
    def run_until_stopped(config):
        train(config, [StopIn(epoch=2)])

    argv = ["--output-dir", str(tmp_path), "--learning-rate", "0.1"]
    assert session.main(run_until_stopped, Config, PRESETS, "", argv) == 130
    error = capsys.readouterr().err.strip()
    assert error == "stopped. The same command goes on after epoch 2."

    config = flags.parse(Config, PRESETS, "", argv)
    model, history = train(config)
    assert "Going on after epoch 2 of 4." in capsys.readouterr().out
    assert len(history["loss"]) == len(history["seconds"]) == 4
    assert int(model.optimizer.iterations) == 4 * 3  # the optimizer went on too
    # Without a stop the same numbers come out.
    other = dataclasses.replace(config, output_dir=str(tmp_path / "other"))
    whole, expected = train(other)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)
    for one, two in zip(model.get_weights(), whole.get_weights()):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_other_settings_do_not_go_on(tmp_path):
    config = Config(output_dir=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        train(config, [StopIn(epoch=1)])
    with pytest.raises(ValueError, match="--width was 2, now 3.*--resume never"):
        train(dataclasses.replace(config, width=3))
    _, history = train(dataclasses.replace(config, epochs=2))  # may change
    assert len(history["loss"]) == 2
    _, history = train(dataclasses.replace(config, width=3, resume="never"))
    assert len(history["loss"]) == 4


def cut(path):
    with open(path, "r+b") as file:
        file.truncate(500)


def leave_out(path):
    """A file that opens, but was closed before all was in it."""
    import h5py

    with h5py.File(path, "r+") as file:
        del file["layers"]["dense"]


@pytest.mark.parametrize("damage", [cut, leave_out])
def test_a_full_disk_keeps_the_last_good_checkpoint(
    damage, tmp_path, capsys, monkeypatch
):
    save = keras.Model.save_weights

    def save_two_then_half(self, filepath, **kwargs):
        save(self, filepath, **kwargs)
        if session.epochs_done(tmp_path) == 2:
            damage(filepath)
            raise OSError(errno.ENOSPC, "No space left on device")

    argv = ["--output-dir", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(keras.Model, "save_weights", save_two_then_half)
        assert session.main(train, Config, PRESETS, "", argv) == 1
    error = capsys.readouterr().err.strip()
    assert error == "error: [Errno 28] No space left on device"
    model, history = train(flags.parse(Config, PRESETS, "", argv))
    assert len(history["loss"]) == 4 and int(model.optimizer.iterations) == 12


@pytest.mark.parametrize(("epoch", "done"), [(0, 0), (2, 1)])
def test_progress_that_was_not_written_to_its_end(epoch, done, tmp_path):
    config = Config(output_dir=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        train(config, [StopIn(epoch=max(epoch, 1))])
    (tmp_path / "backup" / "training_metadata.json").write_text("")
    if not epoch:
        cut(tmp_path / "backup" / "latest.weights.h5")
    assert session.epochs_done(tmp_path) == done
    model, history = train(config)
    assert len(history["loss"]) == 4 and int(model.optimizer.iterations) == 12


def test_a_damaged_backup_is_an_error(tmp_path):
    config = Config(output_dir=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        train(config, [StopIn(epoch=1)])
    cut(tmp_path / "backup" / "latest.weights.h5")
    with pytest.raises(ValueError, match="cannot be read; --resume never starts over"):
        train(config)


def test_a_stop_after_training_only_repeats_the_exports(tmp_path):
    config = Config(output_dir=str(tmp_path))
    trained, _ = train(config)
    again, history = train(config)
    assert len(history["loss"]) == 4
    for one, two in zip(trained.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(one, two)


# --- files


def test_exports_metrics_and_model_card(tmp_path, capsys):
    config = Config(output_dir=str(tmp_path), width=3)
    model, history = train(config)
    x = np.ones((2, 3), "float32")
    parity = artifacts.export_all(
        model, tmp_path, x, postprocess=classifiers.name_classes(["no", "yes"])
    )
    card = {name: f"{name} text" for name in ("title", "task", "data", "use", "limits")}
    metrics = artifacts.finish(
        config, model, history, {"test_accuracy": 0.5}, card, parity
    )
    assert metrics["test_accuracy"] == 0.5 and metrics["train_seconds"] >= 0

    record = json.loads((tmp_path / "metrics.json").read_text())
    assert record["metrics"] == metrics
    assert record["parameters"] == 3 * 3 + 3 + 3 * 2 + 2
    assert record["config"]["width"] == 3
    assert record["command"].endswith(f"--output-dir {tmp_path} --width 3")
    assert record["versions"]["keras"] == keras.__version__
    assert record["parity"]["litert"]["agreement"] == 1.0
    text = (tmp_path / "README.md").read_text()
    for piece in (*card.values(), "| test_accuracy | 0.5 |", record["command"]):
        assert piece in text
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert list((tmp_path / "logs").rglob("events*"))
    assert not (tmp_path / "backup").exists()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x))
    assert "model.tflite: predictions agree 100.00%" in capsys.readouterr().out


# --- classifiers


def test_choose():
    assert list(classifiers.choose(3, Config())) == [0, 1, 2]
    assert list(classifiers.choose(3, Config(examples=5))) == [0, 1, 2]
    few = classifiers.choose(100, Config(examples=7))
    assert len(set(few)) == 7 and max(few) < 100 and set(few) != set(range(7))


def test_text_reader_equals_the_pipeline():
    texts = ["a few", "hello (w", "", "a few words here and hello", "ÄÖ 12345"]
    tokenizer = data.train_wordpiece(["a few words here", "hello world"] * 3, 60)
    features = classifiers.text_reader(tokenizer, 6)(np.array(texts, object))
    expected, _ = next(
        iter(
            data.classification_dataset(
                texts, np.zeros(5, int), tokenizer, max_length=6, buckets=[]
            )
        )
    )
    assert set(features) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(features[name], value)
        assert features[name].dtype == value.dtype


def test_word_dropper_hides_words_only():
    tokenizer = data.train_wordpiece(["a few words here", "hello world"] * 3, 60)
    ids = np.tile(np.arange(60, dtype="int32"), (200, 1))
    drop = classifiers.word_dropper(tokenizer, 0.25)
    features, _ = drop({"token_ids": ids, "more": 1}, 0)
    hidden = np.array(features["token_ids"]) != ids
    mask_id = data.special_ids(tokenizer)["mask"]
    assert not hidden[:, : mask_id + 1].any() and features["more"] == 1
    assert (np.array(features["token_ids"])[hidden] == mask_id).all()
    assert abs(hidden[:, mask_id + 1 :].mean() - 0.25) < 0.02


def test_one_hot_labels_give_the_same_loss():
    x, y = np.ones((4, 3), "float32"), np.array([0, 1, 1, 0])
    losses = []
    for one_hot, labels in ((False, y), (True, np.eye(2, dtype="float32")[y])):
        keras.utils.set_random_seed(0)
        config = Config(label_smoothing=0.1)
        model, _ = toy(config)
        classifiers.compile_classifier(model, config, 1, one_hot)
        losses.append(model.evaluate(x, labels, verbose=0, return_dict=True))
    assert losses[0] == pytest.approx(losses[1])


def test_gradients_of_several_batches_are_one_step():
    model, dataset = toy(Config(accumulate=3))
    before = model.get_weights()[0]
    for steps, moved in ((2, False), (1, True)):  # the rate of the first batch is 0
        model.fit(dataset.take(steps), shuffle=False, verbose=0)
        assert np.any(model.get_weights()[0] != before) is np.bool_(moved)
    assert toy(Config())[0].optimizer.gradient_accumulation_steps is None


class Average(keras.callbacks.Callback):
    """The averages that `--ema` promises, and the loss that goes with them."""

    def __init__(self, momentum):
        super().__init__()
        self.momentum, self.weights = momentum, None

    def on_train_batch_end(self, batch, logs=None):
        now = self.model.get_weights()
        before = self.weights or now
        shares = self.momentum, 1 - self.momentum
        self.weights = [shares[0] * a + shares[1] * b for a, b in zip(before, now)]


def test_the_average_of_the_weights_is_measured_and_kept(tmp_path):
    config = Config(output_dir=str(tmp_path), learning_rate=0.1, ema=0.7)
    average = Average(0.7)
    model, history = train(config, [average])
    for one, two in zip(model.get_weights(), average.weights):
        np.testing.assert_allclose(one, two, atol=1e-6)
    loss = model.evaluate(toy(config)[1], return_dict=True)["loss"]
    assert history["val_loss"][-1] == pytest.approx(loss, rel=1e-5)
    again, _ = train(config)  # stopped after training: from the backup
    for one, two in zip(model.get_weights(), again.get_weights()):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_there_is_no_average_unless_asked_for(tmp_path):
    model, _ = train(Config(output_dir=str(tmp_path)))
    assert not model.optimizer.use_ema
    with pytest.raises(ValueError, match="--ema must be in .0, 1., got 1"):
        Config(ema=1.0)
