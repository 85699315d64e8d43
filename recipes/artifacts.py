"""What a run leaves behind: pictures, model files, numbers and a model card."""

import dataclasses
import platform
import shlex
import sys
from importlib import metadata

import keras

import keras_tfm
from keras_tfm import export, visualize
from recipes import flags, session

VERSIONS = ("keras", "tensorflow", "numpy")


def export_all(model, folder, inputs, preprocess=None, postprocess=None, **shapes):
    """Write model.keras, saved_model/ and model.tflite, and compare them with it.

    Args:
        model: the trained `keras.Model`.
        folder: `pathlib.Path` of the results.
        inputs: all inputs of the model, a few rows.
        preprocess: see `keras_tfm.export.to_saved_model`.
        postprocess: likewise.
        **shapes: `batch_size` and `length` for the LiteRT file.

    Returns: dict, the largest difference and the agreement of each file.
    """
    model.save(folder / "model.keras")
    saved_model = export.to_saved_model(
        model, folder / "saved_model", preprocess, postprocess
    )
    litert = export.to_litert(model, folder / "model.tflite", **shapes)
    results = {}
    for name, path in {"saved_model": saved_model, "litert": litert}.items():
        parity = export.check_parity(model, path, inputs)
        print(f"  {parity}")
        results[name] = {
            "max_difference": parity.max_difference,
            "agreement": parity.agreement,
        }
    return results


def finish(config, model, history, metrics, card, parity=None):
    """Draw the learning curves, write metrics.json and the model card, say where.

    Args:
        config: the recipe's `Config`.
        model: the trained `keras.Model`.
        history: dict from `session.fit`.
        metrics: dict of the final numbers, the baseline among them.
        card: dict with `title`, `task`, `data`, `use` (how to run the files) and
            `limits`, each a str of one or more lines.
        parity: dict from `export_all`, or None.

    Returns: `metrics`, with the seconds of training added.
    """
    folder = session.folder_of(config)
    curves = {name: values for name, values in history.items() if name != "seconds"}
    if curves:  # nothing was trained otherwise
        path = folder / "curves.png"
        visualize.training_curves(curves, title=card["title"], path=path)
    metrics = {**metrics, "train_seconds": round(sum(history["seconds"]), 1)}
    record = {
        "metrics": metrics,
        "parity": parity,
        "parameters": model.count_params(),
        "history": history,
        "config": dataclasses.asdict(config),
        "command": command(config),
        "versions": _versions(),
    }
    text = _model_card(config, model, metrics, card, parity)
    (folder / "README.md").write_text(text, encoding="utf-8")
    session.finish(folder, record)
    shown = "  ".join(f"{name} {show(value)}" for name, value in metrics.items())
    print(f"{shown}\nAll files are in {folder}/ (README.md tells how to use them).")
    return metrics


def _model_card(config, model, metrics, card, parity):
    rows = [f"| {name} | {show(value)} |" for name, value in metrics.items()]
    files = [
        "- `model.keras`: `import keras_tfm`, then `keras.models.load_model`",
        "- `saved_model/`: TensorFlow; its README.md lists the signatures",
        "- `model.tflite`: LiteRT, built-in operations only",
        "- `curves.png`, `attention.png`: pictures; `logs/`: for TensorBoard",
        "- `metrics.json`: all numbers, settings and versions",
    ]
    if "generator" in (parity or {}):
        files.append("- `generator/` (strings in and out), `generator.tflite` (ids)")
    lines = [f"# {card['title']}", "", card["task"], "", "## Results", ""]
    lines += ["| measure | value |", "| --- | --- |", *rows, ""]
    for name, numbers in (parity or {}).items():
        line = (
            f"The {name} file agrees with the model in {numbers['agreement']:.2%} of "
        )
        if "prompts" in numbers:
            line += f"{numbers['prompts']} generated rows."
        else:
            line += (
                f"its predictions (largest difference {numbers['max_difference']:.2g})."
            )
        lines.append(line)
    lines += ["", "## Data", "", card["data"], "", "## Training", ""]
    lines += [f"{model.count_params():,} parameters, trained by", ""]
    lines += [f"    {command(config)}", "", "with"]
    lines += [", ".join(f"{k} {v}" for k, v in _versions().items()) + ".", ""]
    lines += ["## Use", "", card["use"], "", *files, ""]
    return "\n".join([*lines, "## Limits", "", card["limits"], ""])


def command(config):
    """The command line that makes a config, `--resume` aside.

    Args:
        config: a `Config`.

    Returns: str.
    """
    module = sys.modules[type(config).__module__].__spec__.name
    words = ["python", "-m", module]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != field.default and field.name not in ("resume", "debug"):
            words += [flags.flag(field.name), shlex.quote(str(value))]
    return " ".join(words)


def _versions():
    versions = {name: metadata.version(name) for name in VERSIONS}
    versions["keras_tfm"] = keras_tfm.__version__
    versions["backend"] = keras.backend.backend()
    return {**versions, "python": platform.python_version()}


def show(value):
    """A metric for a person.

    Args:
        value: float or another.

    Returns: str.
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)
