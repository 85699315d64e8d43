"""How the next token is chosen from the logits.

A strategy is a frozen dataclass with `start(batch_size)`, the state that the loop
carries, and `pick(logits, state)`, which gives the token and the next state.

Letters: B batch, V vocabulary.
"""

import dataclasses

import numpy as np
from keras import ops

# Wichmann and Hill 1982, AS 183: three small generators, in int32 without overflow.
FACTORS = (171, 172, 170)
MODULI = (30269, 30307, 30323)


@dataclasses.dataclass(frozen=True)
class Greedy:
    """Always the most probable token.

    Example:
        >>> strategy = keras_tfm.generation.Greedy()
    """

    def start(self, batch_size):
        """No state: an empty int32 array (B, 0)."""
        return np.zeros((batch_size, 0), "int32")

    def pick(self, logits, state):
        """The best token.

        Args:
            logits: float (B, V).
            state: as given by `start`.

        Returns: pair of int32 (B,) and the state.
        """
        return ops.cast(ops.top_k(logits, 1)[1][:, 0], "int32"), state


@dataclasses.dataclass(frozen=True)
class Sample:
    """A token drawn at random.

    In this order: logits are divided by the temperature, all but the `top_k` best
    are dropped, then all outside the smallest set whose probability reaches `top_p`,
    then all whose probability is below `min_p` times that of the best. The best
    token always stays. Draws are made by a small integer generator, so that the same
    seed gives the same tokens on every backend and in exported models.

    Args:
        temperature: float, at least 0; 0 is greedy.
        top_k: int or None.
        top_p: float in [0, 1] or None.
        min_p: float in [0, 1] or None.
        seed: int.

    Raises:
        ValueError: a value out of its range.

    Example:
        >>> strategy = keras_tfm.generation.Sample(temperature=0.8, top_k=40, seed=1)

    References:
        top-k: Fan et al. 2018, arXiv:1805.04833; top-p: Holtzman et al. 2019,
        arXiv:1904.09751; min-p: Nguyen et al. 2024, arXiv:2407.01082.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = dataclasses.field(default=0, compare=False)  # compiled code has none

    def __post_init__(self):
        if self.temperature < 0:
            raise ValueError(f"`temperature` must not be negative: {self.temperature}.")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"`top_k` must be positive, got {self.top_k}.")
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"`{name}` must be between 0 and 1, got {value}.")

    def start(self, batch_size):
        """One generator per row, int32 (B, 3)."""
        rng = np.random.default_rng(self.seed)
        return rng.integers(1, MODULI, (batch_size, 3)).astype("int32")

    def pick(self, logits, state):
        """A token drawn by inverting the cumulative distribution.

        Args:
            logits: float (B, V).
            state: int32 (B, 3).

        Returns: pair of int32 (B,) and the next state.
        """
        if self.temperature == 0:
            return Greedy().pick(logits, state)
        count = min(self.top_k or logits.shape[-1], logits.shape[-1])
        logits, ids = ops.top_k(ops.cast(logits, "float32"), count)  # best first
        best = logits[:, :1]
        weights = ops.exp((logits - best) / self.temperature)  # (B, count), best is 1
        total = ops.sum(weights, axis=-1, keepdims=True)
        if self.top_p is not None:
            before = (ops.cumsum(weights, axis=-1) - weights) / total
            inside = ops.less(before, max(self.top_p, 1e-6))
            weights = ops.where(inside, weights, 0.0)
        if self.min_p is not None:
            weights = ops.where(ops.greater_equal(weights, self.min_p), weights, 0.0)
        uniform, state = next_uniform(state)
        cumulative = ops.cumsum(weights, axis=-1)
        target = uniform * cumulative[:, -1:]
        chosen = ops.sum(ops.cast(ops.less_equal(cumulative, target), "int32"), axis=-1)
        last = ops.sum(ops.cast(ops.greater(weights, 0), "int32"), axis=-1) - 1
        chosen = ops.expand_dims(ops.minimum(chosen, last), -1)
        return ops.cast(ops.take_along_axis(ids, chosen, axis=1)[:, 0], "int32"), state


def next_uniform(state):
    """One step of the generators.

    Args:
        state: int32 (B, 3).

    Returns: pair of float32 (B, 1), uniform in [0, 1), and the next state.
    """
    moduli = ops.convert_to_tensor(MODULI, "int32")
    state = ops.mod(state * ops.convert_to_tensor(FACTORS, "int32"), moduli)
    parts = ops.cast(state, "float32") / ops.cast(moduli, "float32")
    return ops.mod(ops.sum(parts, axis=-1, keepdims=True), 1.0), state
