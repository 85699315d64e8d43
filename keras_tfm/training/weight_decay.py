"""Which variables weight decay should leave alone."""

import re

import keras

# Tables of positions and the learned first tokens of a Vision Transformer.
_LONE_VECTORS = re.compile(r"position|class_token|relative_bias")


def exclude_norms_and_biases(optimizer, model):
    """Tell an optimizer to decay the matrices of a model and nothing else.

    Left alone: every vector (biases, gamma and beta of norms, layer-scale), every
    variable called bias, gamma, beta or scale, position tables and class tokens
    (as in DeiT and timm; BERT and GPT-2 decayed their position tables). Decayed:
    the kernels of projections, token and segment embeddings, patch kernels.

    Call it before training. Keras keeps the choice in the optimizer object and not
    in its config: after `keras.models.load_model`, compile again with an optimizer
    prepared by this function. With layer-wise decay, apply that first, then this.

    Args:
        optimizer: keras optimizer with a weight decay, not built yet; also a
            `MultiOptimizer` or `LossScaleOptimizer` around such ones.
        model: a built `keras.Model`.

    Returns: the same optimizer, for `compile(optimizer=...)`.

    Raises:
        ValueError: no weight decay, an optimizer or a model in the wrong state.

    Example:
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        >>> optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.01)
        >>> optimizer = keras_tfm.training.exclude_norms_and_biases(optimizer, model)
        >>> model.compile(optimizer, "mse")

    References: Loshchilov and Hutter 2017, arXiv:1711.05101; Touvron et al. 2020,
    arXiv:2012.12877.
    """
    if not model.trainable_variables:
        raise ValueError(
            "`model` must be built and have trainable variables, got none."
        )
    spared = [v for v in model.trainable_variables if not is_decayed(v)]
    for part in _parts(optimizer):
        if part.built:
            raise ValueError(
                "`optimizer` must be a new one, got one that is built already."
            )
        if part.weight_decay is None:
            raise ValueError(
                f"`optimizer` must have a weight decay, got {part.name} without."
            )
        part.exclude_from_weight_decay(var_list=spared)
    return optimizer


def is_decayed(variable):
    """Return whether weight decay should shrink a variable of a Transformer.

    Args:
        variable: a keras variable.

    Returns: bool, True for matrices that are neither bias nor position table.
    """
    name = variable.path.split("/")[-1]
    if len(variable.shape) < 2 or name.endswith(("bias", "gamma", "beta", "scale")):
        return False
    return _LONE_VECTORS.search(variable.path) is None


def _parts(optimizer):
    """The optimizers that update variables, inside their wrappers."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return _parts(optimizer.inner_optimizer)
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        return optimizer.optimizers
    return [optimizer]
