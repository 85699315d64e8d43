"""Rotary positions in a config: the reference library's spellings and our layer.

Old: `rope_theta` beside `rope_scaling`, a dict with `type` or `rope_type`. New: all of
it in `rope_parameters`. The numbers of a scaling have the same names here and there.
"""

from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.layers import RotaryEmbedding
from keras_tfm.layers.rotary_scaling import SCALINGS

ORIGINAL = "original_max_position_embeddings"
# The first files of the family have no `rope_theta`: there it was always this.
FIRST_THETA = 10000.0


def rotary_of(config):
    """The rotary positions that a config describes.

    Args:
        config: `Config`.

    Returns: `RotaryEmbedding`.

    Raises:
        CheckpointError: a scaling that is not known, or lacks a number.
    """
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = given.get("rope_theta") or config.get("rope_theta") or FIRST_THETA
    kind = given.get("rope_type") or given.get("type") or "default"
    if kind == "default":
        return RotaryEmbedding(theta)
    if kind not in SCALINGS:
        raise CheckpointError(
            f"The config of {config.source} scales its rotary positions by {kind!r}; "
            f"known are {', '.join(SCALINGS)}."
        )
    try:
        return RotaryEmbedding(theta, scaling=_scaling(kind, given, config))
    except ValueError as error:
        raise CheckpointError(f"The config of {config.source}: {error}") from error


def _scaling(kind, given, config):
    """The numbers of a scaling, with those that files may leave to other fields."""
    needed, optional = SCALINGS[kind]
    names = needed | optional
    scaling = {k: v for k, v in given.items() if k in names and v is not None}
    longest = config["max_position_embeddings"]
    if kind == "dynamic":  # grows from there, whatever else is written
        scaling[ORIGINAL] = longest
    elif ORIGINAL in needed:
        outside = config.get(ORIGINAL)
        scaling[ORIGINAL] = outside or scaling.get(ORIGINAL, longest)
    if kind == "longrope" and not scaling.keys() & optional:
        scaling["factor"] = longest / scaling[ORIGINAL]
    return {"type": kind, **scaling}


def rotary_fields(rotary):
    """The fields of a config for rotary positions, in the spelling all versions read.

    Args:
        rotary: `RotaryEmbedding`.

    Returns: dict.
    """
    scaling = rotary.scaling
    if scaling is not None:
        scaling = {**scaling, "rope_type": scaling["type"]}
    return {"rope_theta": rotary.max_wavelength, "rope_scaling": scaling}
