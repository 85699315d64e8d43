"""A training run that can be stopped, gone on with, and that fails in one line."""

import dataclasses
import json
import pathlib
import shutil
import signal
import sys
import time

import keras

from recipes import flags

BACKUP, HISTORY = "backup", "history.jsonl"
SETTINGS, METRICS = "config.json", "metrics.json"
WEIGHTS, PROGRESS = "latest.weights.h5", "training_metadata.json"  # Keras's names
# Settings that may change when a stopped run goes on.
FREE = {"resume", "output_dir", "data_dir", "epochs", "jit", "debug", "preset"}


def main(run, config_class, presets, description, argv=None):
    """Run a recipe from the command line.

    Args:
        run: function of a `Config`.
        config_class: see `flags.parse`.
        presets: likewise.
        description: likewise.
        argv: list of str, or None for the command line's own.

    Returns: int, the exit code: 0, 1 (a disk or a package fails), 2 (a wrong flag or
        file), 130 (Ctrl-C or SIGTERM).
    """
    config = None
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        config = flags.parse(config_class, presets, description, argv)
        run(config)
    except KeyboardInterrupt:
        return _fail(130, f"stopped. {_how_to_go_on(config)}")
    except Exception as error:
        if config is not None and config.debug:
            raise
        code = _exit_code(error)
        if code is None:
            raise
        return _fail(code, f"error: {_one_line(error)}")
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def folder_of(config):
    """The folder of a run's results.

    Args:
        config: a `Config`; its `output_dir`, or outputs/RECIPE/DATASET.

    Returns: `pathlib.Path`.
    """
    if config.output_dir:
        return pathlib.Path(config.output_dir)
    recipe = sys.modules[type(config).__module__].__spec__.name.rpartition(".")[-1]
    kind, _, path = config.dataset.partition(":")
    name = pathlib.Path(path).stem if path else kind
    return pathlib.Path("outputs") / recipe / name.replace("/", "_")


def start(config):
    """Seed everything and open the folder of the results.

    Args:
        config: a `Config`.

    Returns: `pathlib.Path` of the folder; it exists.

    Raises:
        ValueError: the folder holds a finished run, or a stopped one with other
            settings.
    """
    keras.utils.set_random_seed(config.seed)
    folder = folder_of(config)
    if config.resume == "never":
        _clear(folder)
    if (folder / METRICS).exists():
        raise ValueError(
            f"{folder} holds a finished run. Give another --output-dir, or "
            "--resume never to replace it."
        )
    if epochs_done(folder):
        _check_same(config, folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.dumps(dataclasses.asdict(config), indent=2)
    (folder / SETTINGS).write_text(settings + "\n", encoding="utf-8")
    return folder


def epochs_done(folder):
    """Count the epochs that a stopped run has behind it.

    Args:
        folder: path of the results.

    Returns: int, 0 if there is nothing to go on with.
    """
    for ending in ("", ".bkp"):
        try:
            path = pathlib.Path(folder) / BACKUP / f"{PROGRESS}{ending}"
            return int(json.loads(path.read_text())["epoch"])
        except (OSError, ValueError):
            continue
    return 0


def fit(model, config, train, validation, callbacks=()):
    """Train, or go on training, and keep a log of all epochs.

    Args:
        model: a built and compiled `keras.Model`.
        config: a `Config`.
        train: `tf.data.Dataset`.
        validation: `tf.data.Dataset`.
        callbacks: further callbacks.

    Returns: dict from names ("loss", "val_loss", ..., "seconds") to a list with one
        number an epoch, those before a stop included.
    """
    folder = folder_of(config)
    if epochs_done(folder):
        _mend_backup(model, folder / BACKUP)
        print(f"Going on after epoch {epochs_done(folder)} of {config.epochs}.")
    else:
        shutil.rmtree(folder / BACKUP, ignore_errors=True)
    averages = [keras.callbacks.SwapEMAWeights()] if config.ema else []  # to validate
    model.fit(
        train,
        validation_data=validation,
        shuffle=False,  # the pipeline does
        epochs=config.epochs,
        callbacks=[
            EpochLog(folder / HISTORY),
            keras.callbacks.BackupAndRestore(
                str(folder / BACKUP), double_checkpoint=True, delete_checkpoint=False
            ),
            keras.callbacks.TensorBoard(str(folder / "logs")),
            *averages,
            *callbacks,
        ],
    )
    return read_history(folder)


def finish(folder, record):
    """Write metrics.json, which marks the run as finished, and drop the backup.

    Args:
        folder: `pathlib.Path` of the results.
        record: dict of numbers and strings.
    """
    text = json.dumps(record, indent=2) + "\n"
    part = folder / f"{METRICS}.part"
    part.write_text(text, encoding="utf-8")
    part.replace(folder / METRICS)
    shutil.rmtree(folder / BACKUP, ignore_errors=True)


def read_history(folder):
    """Read what `EpochLog` wrote; an epoch trained twice counts once.

    Args:
        folder: path of the results.

    Returns: dict from names to lists.
    """
    lines = (pathlib.Path(folder) / HISTORY).read_text(encoding="utf-8").splitlines()
    epochs = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # cut short by a full disk
            continue
        epochs[record.pop("epoch")] = record
    records = [epochs[number] for number in sorted(epochs)]
    names = [n for n in records[0] if all(n in record for record in records)]
    return {name: [record[name] for record in records] for name in names}


class EpochLog(keras.callbacks.Callback):
    """Adds a line of JSON an epoch to a file, also over several runs.

    Args:
        path: path of the file.
    """

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        seconds = round(time.monotonic() - self.began, 3)
        record = {"epoch": epoch + 1, "seconds": seconds}
        record |= {name: float(value) for name, value in (logs or {}).items()}
        with open(self.path, "a", encoding="utf-8") as file:
            line_end = "\n" if file.tell() else ""  # also behind a line cut short
            file.write(line_end + json.dumps(record))


def _mend_backup(model, backup):
    """Take the backup before the last one if that was not written to its end."""
    weights = backup / WEIGHTS
    model.optimizer.build(model.trainable_variables)
    try:
        json.loads((backup / PROGRESS).read_text())
        model.load_weights(weights)
    except Exception as error:  # h5py and Keras raise many kinds for a cut file
        if not (backup / f"{WEIGHTS}.bkp").exists():
            raise ValueError(
                f"{weights} cannot be read; --resume never starts over."
            ) from error
        for name in (WEIGHTS, PROGRESS):
            (backup / f"{name}.bkp").replace(backup / name)


def _clear(folder):
    """Remove what tells of an earlier run, and nothing that a recipe did not write."""
    for name in (BACKUP, "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (HISTORY, SETTINGS, METRICS):
        (folder / name).unlink(missing_ok=True)


def _check_same(config, folder):
    old = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    new = dataclasses.asdict(config)
    changed = [
        f"{flags.flag(name)} was {old[name]}, now {new[name]}"
        for name in new
        if name not in FREE and name in old and old[name] != new[name]
    ]
    if changed:
        raise ValueError(
            f"{folder} holds a stopped run with other settings "
            f"({'; '.join(changed)}). Give the same flags to go on, another "
            "--output-dir, or --resume never to start over."
        )


def _how_to_go_on(config):
    done = epochs_done(folder_of(config)) if config is not None else 0
    if not done:
        return "No epoch was complete; the same command starts again."
    return f"The same command goes on after epoch {done}."


def _exit_code(error):
    """The exit code of what a user can mend, None for a fault of the code."""
    if isinstance(error, ValueError):
        return 2
    disk = "No space left" in str(error) or "ResourceExhausted" in type(error).__name__
    return 1 if disk or isinstance(error, (OSError, ImportError)) else None


def _one_line(error):
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 500 else text[:497] + "..."


def _fail(code, message):
    print(f"\n{message}", file=sys.stderr, flush=True)
    return code
