"""Smaller learning rates for the layers near the input.

Letters: L num_layers.
"""

import re

import keras

from keras_tfm.training.schedules import ScaledSchedule

# "block_3/attention/query/kernel", also "encoder_block_3/..." and "vit/block_3/...".
_BLOCK = re.compile(r"(?:.*/|.*_)?block_(\d+)/.*")
_INPUT = r"(?!(?:.*/|.*_)?block_\d+/).*(?:embedding|position|patch|class_token).*"


def layer_wise_decay(optimizer, model, decay=0.75):
    """An optimizer whose learning rate falls by a factor per layer downwards.

    A variable of depth d learns with `rate * decay**(L + 1 - d)`: the embeddings
    have depth 0, block i has depth i + 1, everything after the blocks has depth
    L + 1 and learns at the full rate. For fine-tuning, where the lower layers hold
    the general knowledge. With schedules too, and with weight decay, which is
    scaled in step (Keras multiplies it by the rate).

    The result is Keras's `MultiOptimizer` with a copy of `optimizer` per depth,
    chosen by the variable's path; it compiles, trains, saves and loads as usual.
    Its parts are `result.optimizers`. To spare norms and biases, call
    `exclude_norms_and_biases` on the result.

    Args:
        optimizer: keras optimizer, not built yet; its config is copied.
        model: a built model of `keras_tfm.models`, or any whose blocks are layers
            named `block_<i>`, `encoder_block_<i>` or `decoder_block_<i>`.
        decay: float in (0, 1], often 0.65 to 0.95. Defaults to 0.75.

    Returns: `keras.optimizers.MultiOptimizer`.

    Raises:
        ValueError: a decay out of range, a model without blocks, an optimizer that
            is built or that clips by the norm over all variables.

    References: Howard and Ruder 2018, arXiv:1801.06146; Clark et al. 2020,
    arXiv:2003.10555; Bao et al. 2021, arXiv:2106.08254.
    """
    if not 0.0 < decay <= 1.0:
        raise ValueError(f"`decay` must be in (0, 1], got {decay}.")
    if optimizer.built:
        raise ValueError(
            "`optimizer` must be a new one, got one that is built already."
        )
    if optimizer.global_clipnorm is not None:
        raise ValueError(
            "`optimizer` must not use `global_clipnorm`, which would see one depth "
            f"at a time, got {optimizer.global_clipnorm}; use `clipnorm`."
        )
    top = _count_blocks(model) + 1
    depths = {_INPUT: 0}
    for depth in range(1, top):
        depths[rf"(?:.*/|.*_)?block_{depth - 1}/.*"] = depth
    return keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(
            _copy(optimizer, 1.0, top),
            {
                pattern: _copy(optimizer, decay ** (top - depth), depth)
                for pattern, depth in depths.items()
            },
        )
    )


def layer_depths(model):
    """The depth of every weight, as `layer_wise_decay` sees it.

    Args:
        model: a built model with layers named `block_<i>`.

    Returns: dict from a weight's path to an int: 0 for embeddings (of tokens,
        positions, patches, their norm), i + 1 for block i, L + 1 after the blocks.

    Raises:
        ValueError: no weight lies in a block.
    """
    top = _count_blocks(model) + 1
    depths = {}
    for weight in model.weights:
        block = _BLOCK.fullmatch(weight.path)
        if block:
            depths[weight.path] = int(block[1]) + 1
        else:
            depths[weight.path] = 0 if re.fullmatch(_INPUT, weight.path) else top
    return depths


def _count_blocks(model):
    """The number L of blocks, in the taller stack if there are two."""
    blocks = [_BLOCK.fullmatch(weight.path) for weight in model.weights]
    if not any(blocks):
        raise ValueError(
            "`model` must be built and have layers named `block_<i>`, got "
            f"{[layer.name for layer in model.layers]}."
        )
    return 1 + max(int(block[1]) for block in blocks if block)


def _copy(optimizer, factor, depth):
    config = optimizer.get_config()
    config["name"] = f"{config['name']}_depth_{depth}"
    rate = config["learning_rate"]
    if isinstance(rate, dict):
        schedule = keras.optimizers.schedules.deserialize(rate)
        config["learning_rate"] = ScaledSchedule(schedule, factor)
    else:
        config["learning_rate"] = rate * factor
    return type(optimizer).from_config(config)
