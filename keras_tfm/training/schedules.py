"""Learning rates that warm up: `peak` is reached after `warmup_steps` updates.

Letters: D hidden_dim. A step is one update of the weights; Keras counts from 0.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_tfm")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak`, then decay with the square root of the step.

    With n = step + 1 the rate is `peak * min(n / warmup_steps, sqrt(warmup_steps
    / n))`. Counting from 1 lets the first update move and keeps step 0 finite.
    It never ends: training may go on. `noam` gives the original paper's peak.

    Args:
        peak: float, the highest rate.
        warmup_steps: int of at least 1.

    Called with:
        step: int scalar, updates done so far.

    Returns: float32 scalar.

    Raises:
        ValueError: `peak` or `warmup_steps` is not positive.

    Example:
        >>> schedule = keras_tfm.training.InverseSquareRoot(peak=1e-3, warmup_steps=100)
        >>> [round(float(schedule(step)), 6) for step in (0, 99, 399)]
        [1e-05, 0.001, 0.0005]

    References: Vaswani et al. 2017, sec. 5.3, arXiv:1706.03762.
    """

    def __init__(self, peak, warmup_steps):
        super().__init__()
        _check_positive(peak=peak, warmup_steps=warmup_steps)
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        ratio = (ops.cast(step, "float32") + 1.0) / self.warmup_steps
        return self.peak * ops.minimum(ratio, ops.rsqrt(ratio))

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def noam(hidden_dim, warmup_steps=4000, scale=1.0):
    """The schedule of the first Transformer, named after Noam Shazeer.

    The rate is `scale * D**-0.5 * min(n**-0.5, n * warmup_steps**-1.5)` with n
    counted from 1: an `InverseSquareRoot` whose peak follows from the width.

    Args:
        hidden_dim: int D, the width of the model.
        warmup_steps: int of at least 1. Defaults to 4000.
        scale: float, multiplies every rate. Defaults to 1.0.

    Returns: `InverseSquareRoot`.

    Raises:
        ValueError: an argument is not positive.

    Example:
        >>> round(keras_tfm.training.noam(hidden_dim=512).peak, 7)
        0.0006988

    References: Vaswani et al. 2017, eq. 3, arXiv:1706.03762.
    """
    _check_positive(hidden_dim=hidden_dim, warmup_steps=warmup_steps, scale=scale)
    peak = scale * float(hidden_dim * warmup_steps) ** -0.5
    return InverseSquareRoot(peak, warmup_steps)


@keras.saving.register_keras_serializable(package="keras_tfm")
class LinearWarmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to `peak`, then a straight line down to `end`.

    The rate is 0 at step 0, `peak` at `warmup_steps`, `end` at `total_steps` and
    ever after: the schedule of BERT's pretraining and of most fine-tuning.

    Args:
        peak: float, the highest rate.
        warmup_steps: int of at least 0, often a tenth of `total_steps`.
        total_steps: int, more than `warmup_steps`.
        end: float in [0, peak], the last rate. Defaults to 0.0.

    Called with:
        step: int scalar, updates done so far.

    Returns: float32 scalar.

    Raises:
        ValueError: numbers out of order.

    Example:
        >>> schedule = keras_tfm.training.LinearWarmup(1e-3, 10, total_steps=110)
        >>> [round(float(schedule(step)), 6) for step in (0, 5, 10, 60, 110, 500)]
        [0.0, 0.0005, 0.001, 0.0005, 0.0, 0.0]

    References: Devlin et al. 2018, app. A.2, arXiv:1810.04805.
    """

    def __init__(self, peak, warmup_steps, total_steps, end=0.0):
        super().__init__()
        _check_warmup(peak, warmup_steps, total_steps, end)
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.end = end

    def __call__(self, step):
        step = ops.cast(step, "float32")
        left = (self.total_steps - step) / (self.total_steps - self.warmup_steps)
        down = self.end + (self.peak - self.end) * ops.maximum(left, 0.0)
        if self.warmup_steps == 0:
            return down
        return ops.minimum(self.peak * step / self.warmup_steps, down)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "end": self.end,
        }


def cosine_warmup(peak, warmup_steps, total_steps, end=0.0):
    """Linear warm-up from 0 to `peak`, then half a cosine down to `end`.

    Keras has this schedule with other arguments: `CosineDecay` counts the decay
    alone and takes the end as a fraction. The arguments here are those of
    `LinearWarmup`.

    Args:
        peak: float, the highest rate.
        warmup_steps: int of at least 0.
        total_steps: int, more than `warmup_steps`.
        end: float in [0, peak], the last rate. Defaults to 0.0.

    Returns: `keras.optimizers.schedules.CosineDecay`.

    Raises:
        ValueError: numbers out of order.

    Example:
        >>> schedule = keras_tfm.training.cosine_warmup(1e-3, 10, total_steps=110)
        >>> [round(float(schedule(step)), 6) for step in (0, 5, 10, 60, 110, 500)]
        [0.0, 0.0005, 0.001, 0.0005, 0.0, 0.0]

    References: Loshchilov and Hutter 2016, arXiv:1608.03983.
    """
    _check_warmup(peak, warmup_steps, total_steps, end)
    steps, fraction = total_steps - warmup_steps, end / peak
    if warmup_steps == 0:
        return keras.optimizers.schedules.CosineDecay(peak, steps, alpha=fraction)
    return keras.optimizers.schedules.CosineDecay(
        0.0, steps, alpha=fraction, warmup_target=peak, warmup_steps=warmup_steps
    )


@keras.saving.register_keras_serializable(package="keras_tfm")
class ScaledSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Another schedule, times a constant: the rate of one depth of a model.

    Args:
        schedule: a `LearningRateSchedule`.
        factor: positive float.

    Called with:
        step: int scalar, updates done so far.

    Returns: float scalar.

    Raises:
        ValueError: `factor` is not positive.

    Example:
        >>> whole = keras_tfm.training.LinearWarmup(1e-3, 10, total_steps=110)
        >>> half = keras_tfm.training.ScaledSchedule(whole, factor=0.5)
        >>> round(float(half(10)), 6)
        0.0005
    """

    def __init__(self, schedule, factor):
        super().__init__()
        _check_positive(factor=factor)
        self.schedule = schedule
        self.factor = factor

    def __call__(self, step):
        return self.schedule(step) * self.factor

    def get_config(self):
        schedule = keras.optimizers.schedules.serialize(self.schedule)
        return {"schedule": schedule, "factor": self.factor}

    @classmethod
    def from_config(cls, config):
        schedule = keras.optimizers.schedules.deserialize(config["schedule"])
        return cls(**{**config, "schedule": schedule})


def _check_positive(**numbers):
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"`{name}` must be positive, got {number}.")


def _check_warmup(peak, warmup_steps, total_steps, end):
    _check_positive(peak=peak)
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            "`warmup_steps` must be at least 0 and less than `total_steps`, "
            f"got {warmup_steps} and {total_steps}."
        )
    if not 0 <= end <= peak:
        raise ValueError(f"`end` must lie between 0 and `peak`, got {end} and {peak}.")
