"""LoRA: train a small product of two matrices beside each large one that stays.

A layer then computes x W + scale (x A) B, with W frozen and scale = alpha / R.

Letters: I width of the input, O of the output, R rank.
"""

import dataclasses
import re

import numpy as np
from keras import ops

from keras_tfm.training import adapters

DEFAULT_TARGETS = (r"[^/]*attention[^/]*/(query|value)",)


@dataclasses.dataclass(frozen=True)
class ParameterCount:
    """How many of a model's parameters are trained.

    Args:
        trainable: int.
        total: int, those of the adapters included.
    """

    trainable: int
    total: int

    @property
    def percent(self):
        """The trainable share, of 100."""
        return 100 * self.trainable / max(self.total, 1)

    def __str__(self):
        """One line for a person."""
        return (
            f"{self.trainable:,} of {self.total:,} parameters are trained "
            f"({self.percent:.2f} %)."
        )


def count_parameters(model):
    """Count the parameters of a model and those that `fit` changes.

    Args:
        model: a built `keras.Model`.

    Returns: `ParameterCount`; it prints as a sentence.
    """
    trainable = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    return ParameterCount(trainable, sum(int(np.prod(w.shape)) for w in model.weights))


def add_lora(
    model,
    rank=8,
    targets=DEFAULT_TARGETS,
    alpha=None,
    train=(),
    seed=None,
    verbose=True,
):
    """Freeze a model and give some of its projections a low-rank adapter to train.

    The adapters start at zero, so the model's numbers are the same at first. Call it
    before `compile`, or compile again. Setting `trainable` on the model or a layer
    afterwards would let the frozen kernels move too.

    `save_lora` writes what is trained alone, `merge_lora` adds it to the kernels, as
    before an export. `model.save` merges: a `.keras` file needs no LoRA to be read.

    Args:
        model: a built `keras.Model` of `keras_tfm.models`, or any with Dense or
            EinsumDense layers.
        rank: int R.
        targets: names or regular expressions, each compared with the last parts of
            the layers' paths: "query", "attention/(query|value)",
            "block_0/.*", ".*". The query and value projections unless given.
        alpha: float; the product A B counts alpha / rank. The rank unless given, so
            that it counts once.
        train: names or regular expressions of layers that are trained as a whole,
            such as a new head: ("logits",). Compared with the parts of their paths.
        seed: int, decides A; another one in every layer.
        verbose: bool, whether the count is printed.

    Returns: `ParameterCount`, of what is trained now.

    Raises:
        ValueError: a model that is not built or has adapters already, a rank that is
            too large for a target, targets that match no layer, quantized targets.

    Example:
        >>> model = keras_tfm.models.Bert(
        ...     vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32,
        ... )
        >>> count = keras_tfm.training.add_lora(model, rank=2)
        128 of 6,472 parameters are trained (1.98 %).

    References: Hu et al. 2021, arXiv:2106.09685.
    """
    layers = adapters.projections(model)
    if not layers:
        raise ValueError(
            "`model` must be built and have Dense or EinsumDense layers, got none."
        )
    if adapters.adapted(model):
        raise ValueError("`model` has adapters already; one `add_lora` per model.")
    if adapters.merged(model):
        raise ValueError("`model` holds merged adapters; call `unmerge_lora` first.")
    chosen = _choose(layers, targets)
    for path, layer in chosen.items():
        _check(path, layer, rank)
    kept = _weights_of(model, train)
    adapters.freeze(model, kept - {id(layer.kernel) for layer in chosen.values()})
    for number, layer in enumerate(chosen.values()):
        adapters.enable(layer, rank, alpha, None if seed is None else seed + number)
    adapters.forget_compiled(model)
    count = count_parameters(model)
    if verbose:
        print(count)
    return count


def merge_lora(model):
    """Add the adapters to the kernels: a plain model of the same numbers, to export.

    The kernels before and the factors are kept for `unmerge_lora`; a saved file does
    not hold them. Nothing of a merged model's adapters is trained.

    Args:
        model: a model after `add_lora`.

    Raises:
        ValueError: a model without adapters.
    """
    layers = _need(
        adapters.adapted(model), "`model` must have adapters (`add_lora`), got none."
    )
    with adapters.quick_deletion():
        for layer in layers.values():
            _merge(layer)
    adapters.forget_compiled(model)


def unmerge_lora(model):
    """Undo `merge_lora`: the kernels of before, bit for bit, and the adapters.

    Args:
        model: a model after `merge_lora`.

    Raises:
        ValueError: a model without merged adapters.
    """
    layers = _need(
        adapters.merged(model), "`model` must be merged (`merge_lora`), it is not."
    )
    for layer in layers.values():
        _unmerge(layer)
    adapters.forget_compiled(model)


def _merge(layer):
    """Merge one layer, and keep on it what it was."""
    total = ops.convert_to_numpy(ops.cast(_merged_kernel(layer), "float32"))
    a, b, alpha = layer.lora_kernel_a, layer.lora_kernel_b, layer.lora_alpha
    layer.lora_enabled = False
    layer.lora_rank = layer.lora_alpha = None  # no part of its config any more
    layer.keras_tfm_merged = adapters.Merged(
        ops.convert_to_numpy(layer.kernel),
        ops.convert_to_numpy(a),
        ops.convert_to_numpy(b),
        alpha,
        tuple(weight.trainable for weight in (layer.kernel, a, b)),
    )
    del layer.lora_kernel_a, layer.lora_kernel_b
    layer.kernel.assign(total)


def _unmerge(layer):
    """Give one layer its old kernel and its adapter back."""
    kept = layer.keras_tfm_merged
    kernel = layer.kernel
    kernel.assign(kept.kernel)
    adapters.enable(layer, kept.a.shape[-1], kept.alpha)
    layer.lora_kernel_a.assign(kept.a)
    layer.lora_kernel_b.assign(kept.b)
    weights = kernel, layer.lora_kernel_a, layer.lora_kernel_b
    for weight, trainable in zip(weights, kept.trainable):
        weight.trainable = trainable
    del layer.keras_tfm_merged


def _choose(layers, targets):
    """The layers whose path ends as a target says, each target at least one."""
    targets = (targets,) if isinstance(targets, str) else tuple(targets)
    chosen = set()
    for target in targets or ("",):  # none at all is an error, too
        pattern = re.compile(rf"(?:.*/)?(?:{target})")
        found = {path for path in layers if pattern.fullmatch(path)}
        if not found:
            raise ValueError(
                f"`targets`: no projection is called {target!r}; there are "
                f"{_examples(layers)}."
            )
        chosen |= found
    return {path: layer for path, layer in layers.items() if path in chosen}


def _examples(paths, limit=8):
    shown = list(paths)[:limit]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _check(path, layer, rank):
    if layer.dtype_policy.quantization_mode is not None:
        raise ValueError(f"`targets` must not be quantized, {path} is.")
    limit = min(int(np.prod(layer.kernel.shape[:-1])), layer.kernel.shape[-1])
    if not isinstance(rank, int) or not 1 <= rank <= limit:
        raise ValueError(
            f"`rank` must be an int from 1 to {limit} for the kernel "
            f"{tuple(layer.kernel.shape)} of {path}, got {rank!r}."
        )


def _weights_of(model, train):
    """The ids of all weights below the layers that `train` names."""
    train = (train,) if isinstance(train, str) else tuple(train)
    found = set()
    for name in train:
        pattern = re.compile(rf"(?:.*/)?(?:{name})/.*")
        part = [w for w in model.weights if pattern.fullmatch(w.path)]
        if not part:
            raise ValueError(
                f"`train`: no layer with weights is called {name!r}; the model's are "
                f"{_examples([x.name for x in model.layers if x.weights], 30)}."
            )
        found |= {id(weight) for weight in part}
    return found


def _merged_kernel(layer):
    """W + scale A B, in float32 at least, whatever the layer computes in."""
    a, b = layer.lora_kernel_a, layer.lora_kernel_b
    layer.lora_enabled = False
    kernel = layer.kernel
    layer.lora_enabled = True
    product = layer.lora_alpha / layer.lora_rank * ops.matmul(a, b)
    return ops.cast(kernel, product.dtype) + product


def _need(layers, message):
    if not layers:
        raise ValueError(message)
    return layers
