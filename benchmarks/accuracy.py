"""What a smaller file costs: accuracy of a trained classifier and of its LiteRT files.

    python -m benchmarks.accuracy outputs/bert_classification/glue_sst2

The folder is one that `recipes.bert_classification` wrote. All texts that the recipe
evaluates on are read by the model, by its float32 file and by one of dynamic int8.
"""

import argparse
import json
import pathlib
import tempfile

import numpy as np

from benchmarks.pairing import write


def read_run(folder):
    """The model and the evaluation batches of a finished run.

    Args:
        folder: `pathlib.Path` of the results.

    Returns: `keras.Model`, and a list of (features, labels).
    """
    import keras

    from keras_tfm import checkpoints, data
    from recipes import bert_classification

    settings = json.loads((folder / "metrics.json").read_text())["config"]
    config = bert_classification.Config(**settings)
    _, (texts, labels), _ = bert_classification.load(config)
    if config.init:
        tokenizer = checkpoints.load_tokenizer(folder)
    else:
        tokenizer = data.load_tokenizer(folder / "tokenizer.json")
    batches = data.classification_dataset(
        texts, labels, tokenizer=tokenizer, max_length=config.max_length, batch_size=64
    )
    model = keras.models.load_model(folder / "model.keras", compile=False)
    return model, list(batches.as_numpy_iterator())


def accuracy(predict, batches):
    """Share of right answers.

    Args:
        predict: function from features to logits (B, C).
        batches: list of (features, labels).

    Returns: float.
    """
    right = [np.argmax(predict(x), axis=-1) == labels for x, labels in batches]
    return float(np.mean(np.concatenate(right)))


def main():
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="of a finished run")
    parser.add_argument("--output-dir", default="outputs/benchmarks", help="for files")
    given = parser.parse_args()
    from keras_tfm import export

    model, batches = read_run(given.folder)
    score = accuracy(model.predict_on_batch, batches)
    size = (given.folder / "model.keras").stat().st_size / 1e6
    rows = [{"contender": "model.keras", "accuracy": f"{score:.2%}", "MB": size}]
    for quantize in (None, "dynamic"):
        with tempfile.TemporaryDirectory() as made:
            path = export.to_litert(model, pathlib.Path(made) / "x.tflite", quantize)
            score = accuracy(lambda x: export.run_file(path, x)["logits"], batches)
            name = f"LiteRT, {quantize or 'float32'}"
            megabytes = path.stat().st_size / 1e6
        rows.append({"contender": name, "accuracy": f"{score:.2%}", "MB": megabytes})
    write("accuracy", {str(given.folder): rows}, given.output_dir)


if __name__ == "__main__":
    main()
