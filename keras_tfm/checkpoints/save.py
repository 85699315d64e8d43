"""From a model to a checkpoint that the reference library loads."""

import json
import pathlib

import numpy as np

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.families import family_of_model
from keras_tfm.checkpoints.report import weights_of
from keras_tfm.checkpoints.safetensors_arrays import write_safetensors
from keras_tfm.checkpoints.weight_map import find_entry, write_weights
from keras_tfm.models import BertPretrainer, ReplacedTokenDetector
from keras_tfm.models.classifier import Classifier


def save_pretrained(model, path):
    """Write a model as a folder that the reference library loads.

    The folder gets `config.json` and `model.safetensors`, in float32. What was read
    by `load_pretrained` is written back bit by bit.

    Args:
        model: what `load_pretrained` gives, such as a `Bert`, a head on one, a `GPT` or
            a `VisionTransformer`.
        path: folder, made if need be.

    Raises:
        CheckpointError: (a `ValueError`) if no reference architecture is like it.
    """
    backbone, task_name = _backbone_and_task(model)
    family, config = family_of_model(model, backbone, task_name)
    task = family.tasks[task_name]
    config.setdefault("architectures", [task.architectures[0]])
    if task_name == "classification":
        config["id2label"] = {str(i): f"LABEL_{i}" for i in range(model.num_classes)}
    arrays = _arrays(model, family.entries_of(config, backbone), task)
    folder = pathlib.Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", arrays)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, "utf-8")


def _backbone_and_task(model):
    if isinstance(model, Classifier):
        return model.backbone, "classification"
    if isinstance(model, BertPretrainer):
        kind = "pretraining" if model.next_sentence else "masked_tokens"
        return model.backbone, kind
    if isinstance(model, ReplacedTokenDetector):
        return model.backbone, "replaced_tokens"
    return model, "backbone"


def _arrays(model, entries, task):
    """The arrays of the file, under the reference library's names."""
    weights = weights_of(model)
    heads = [find_entry(task.entries, w.path) for w in weights]
    bodies = [find_entry(entries, w.path) for w in weights]
    lost = [w.path for w, h, b in zip(weights, heads, bodies) if not (h or b)]
    if lost:
        raise CheckpointError(f"{model.name!r} has {lost[0]}, which has no place.")
    head_names = {entry.theirs for entry in heads if entry}
    found = [head or body for head, body in zip(heads, bodies)]
    values = [np.asarray(w.numpy(), "float32") for w in weights]
    return {
        name if name in head_names else task.prefix + name: array
        for name, array in write_weights(found, values).items()
    }
