"""All families, and which one a checkpoint or a model belongs to."""

import warnings

from keras_tfm.checkpoints import (
    albert,
    bart,
    bert,
    dinov2,
    distilbert,
    electra,
    gpt2,
    llama,
    marian,
    roberta,
    vit,
)
from keras_tfm.checkpoints.errors import CheckpointError

FAMILIES = (
    bert.FAMILY,
    roberta.FAMILY,
    distilbert.FAMILY,
    albert.FAMILY,
    electra.FAMILY,
    gpt2.FAMILY,
    llama.FAMILY,
    vit.VIT,
    vit.DEIT,
    dinov2.FAMILY,
    marian.FAMILY,
    bart.BART,
    bart.MBART,
)


def family_of_source(source):
    """The family that a config's `model_type` names.

    Configs from before that field had none: there the names of the arrays tell.

    Args:
        source: `Source`.

    Raises:
        CheckpointError: if no family has it.
    """
    config = source.config
    if "model_type" not in config:
        return _family_of_names(source)
    for family in FAMILIES:
        if config["model_type"] in family.model_types:
            return family
    known = sorted(name for family in FAMILIES for name in family.model_types)
    raise CheckpointError(
        f"{config.source} is a {config['model_type']!r}, which is not one of the "
        f"architectures known here: {', '.join(known)}."
    )


def family_of_model(model, backbone, task_name):
    """The first family that a model can be written as, and the config for it.

    Args:
        model: with its head.
        backbone: model without it.
        task_name: str, see `Family`.

    Returns: pair of `Family` and dict.

    Raises:
        CheckpointError: if no family can hold it.
    """
    for family in FAMILIES:
        config = family.describe(backbone) if family.describe else None
        task = family.tasks.get(task_name)
        if config is not None and task is not None and task.holds(model, backbone):
            return family, {"model_type": family.model_types[0], **config}
    raise CheckpointError(
        f"{type(backbone).__name__} {backbone.name!r}, for the task {task_name!r}, is "
        "like none of the reference architectures that can be written."
    )


def _family_of_names(source):
    """The one family with such a prefix, else the first with such names."""
    names = list(source.arrays)
    found = [f for f in FAMILIES if any(n.startswith(tuple(f.prefixes)) for n in names)]
    if len(found) == 1:
        return found[0]
    for family in FAMILIES:
        if not callable(family.entries) and all(
            entry.theirs.replace("{i}", "0") in names for entry in family.entries
        ):
            warnings.warn(
                f"The config of {source.label} has no `model_type`: taken for a "
                f"{family.model_types[0]!r} by the names of its arrays.",
                stacklevel=5,
            )
            return family
    return source.config["model_type"]  # raises
