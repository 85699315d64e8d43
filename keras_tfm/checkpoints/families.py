"""All families, and which one a config or a model belongs to."""

from keras_tfm.checkpoints import bert, gpt2, llama
from keras_tfm.checkpoints.errors import CheckpointError

FAMILIES = (bert.FAMILY, gpt2.FAMILY, llama.FAMILY)


def family_of_config(config):
    """The family that a config's `model_type` names.

    Args:
        config: `Config`.

    Raises:
        CheckpointError: if no family has it.
    """
    for family in FAMILIES:
        if config["model_type"] in family.model_types:
            return family
    known = sorted(name for family in FAMILIES for name in family.model_types)
    raise CheckpointError(
        f"{config.source} is a {config['model_type']!r}, which is not one of the "
        f"architectures known here: {', '.join(known)}."
    )


def family_of_model(backbone):
    """The family that a backbone can be written as, and its config.

    Args:
        backbone: model without its head.

    Returns: pair of `Family` and dict.

    Raises:
        CheckpointError: if no family can hold it.
    """
    for family in FAMILIES:
        config = family.describe(backbone) if family.describe else None
        if config is not None:
            return family, {"model_type": family.model_types[0], **config}
    raise CheckpointError(
        f"{type(backbone).__name__} {backbone.name!r} is like none of the reference "
        "architectures that can be written."
    )
