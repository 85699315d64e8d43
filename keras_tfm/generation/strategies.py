"""How the next token is chosen from the logits.

A strategy is a frozen dataclass: `decoder`, the class of its loop; for `Decoder`
itself also `rows`, how many rows it keeps for a prompt;
`begin(history, seed)`, its first state; `prepare(logits)`, what processors are given;
`choose(logits, own, history, state)`, a `Choice`; `finish(history, state)`, the
results and their scores.

Letters: B batch, R rows, M tokens that a row has room for, V vocabulary.
"""

import dataclasses
from typing import ClassVar

from keras import ops

from keras_tfm.generation.decoder import Choice, Decoder
from keras_tfm.generation.largest import largest

# Wichmann and Hill 1982, AS 183: three small generators, in int32 without overflow.
FACTORS = (171, 172, 170)
MODULI = (30269, 30307, 30323)


class OneRow:
    """What strategies share that keep one row for a prompt.

    They define `pick(logits, generator)`, which gives the token (R,) and the next
    state of the random generator.
    """

    rows: ClassVar[int] = 1
    decoder: ClassVar[type] = Decoder

    def begin(self, history, seed):
        """The generators' first numbers and scores of 0.

        Args:
            history: `History`.
            seed: int32 scalar.

        Returns: dict of `generator` int32 (R, 3) and `scores` float32 (R,).
        """
        return {
            "generator": seed_generators(seed, ops.shape(history.finished)[0]),
            "scores": ops.zeros_like(history.finished, dtype="float32"),
        }

    def prepare(self, logits):
        """Processors see the model's logits.

        Args:
            logits: float32 (R, V).

        Returns: the same.
        """
        return logits

    def choose(self, logits, own, history, state):
        """The next token of each row.

        Args:
            logits: float32 (R, V), as the processors left them.
            own: float32 (R, V), what `prepare` gave.
            history: `History`.
            state: dict from `begin` or the last `choose`.

        Returns: `Choice`.
        """
        token, generator = self.pick(logits, state["generator"])
        log_probs = ops.log_softmax(own, axis=-1)
        chosen = ops.take_along_axis(log_probs, ops.expand_dims(token, 1), axis=1)
        gain = ops.where(history.finished, 0.0, chosen[:, 0])
        finished = ops.logical_or(history.finished, history.is_stop(token))
        state = {"generator": generator, "scores": state["scores"] + gain}
        return Choice(token, finished, state)

    def finish(self, history, state):
        """The rows themselves.

        Returns: pair of int32 (B, 1, M) and float32 (B, 1).
        """
        scores = ops.expand_dims(state["scores"], 1)
        return ops.expand_dims(history.token_ids, 1), scores


@dataclasses.dataclass(frozen=True)
class Greedy(OneRow):
    """Always the most probable token.

    Example:
        >>> strategy = keras_tfm.generation.Greedy()
    """

    def pick(self, logits, generator):
        """The best token.

        Args:
            logits: float (R, V).
            generator: handed through.

        Returns: pair of int32 (R,) and the generator.
        """
        return largest(logits, 1)[1][:, 0], generator

    def weights(self, logits):
        """1 for the best token, 0 for the others.

        Args:
            logits: float (..., V).

        Returns: float32 (..., V).
        """
        best = largest(logits, 1)[1][..., 0]
        return ops.one_hot(best, logits.shape[-1], dtype="float32")


@dataclasses.dataclass(frozen=True)
class Sample(OneRow):
    """A token drawn at random.

    In this order: logits are divided by the temperature, all below the `top_k`-th best
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

    def pick(self, logits, generator):
        """A token drawn by inverting the cumulative distribution.

        Args:
            logits: float (R, V).
            generator: int32 (R, 3).

        Returns: pair of int32 (R,) and the next generator.
        """
        if self.temperature == 0:
            return Greedy().pick(logits, generator)
        return draw(self.weights(logits), generator)

    def weights(self, logits):
        """What is left of each token's probability, the best one's being 1.

        Args:
            logits: float (..., V).

        Returns: float32 (..., V), at least 0.
        """
        if self.temperature == 0:
            return Greedy().weights(logits)
        logits = ops.cast(logits, "float32")
        best = ops.max(logits, axis=-1, keepdims=True)
        weights = ops.exp((logits - best) / self.temperature)
        count = min(self.top_k or logits.shape[-1], logits.shape[-1])
        if self.top_k is not None or self.top_p is not None:
            ordered = largest(weights, count)[0]  # best first
            least = ordered[..., -1:]
            if self.top_p is not None:
                total = ops.sum(ordered, axis=-1, keepdims=True)
                before = (ops.cumsum(ordered, axis=-1) - ordered) / total
                inside = ops.less(before, max(self.top_p, 1e-6))
                least = ops.where(inside, ordered, 1.0)
                least = ops.min(least, axis=-1, keepdims=True)
            weights = ops.where(ops.greater_equal(weights, least), weights, 0.0)
        if self.min_p is not None:
            weights = ops.where(ops.greater_equal(weights, self.min_p), weights, 0.0)
        return weights


def draw(weights, generator):
    """A token drawn by inverting the cumulative distribution.

    Args:
        weights: float32 (R, V), at least 0, not all 0.
        generator: int32 (R, 3).

    Returns: pair of int32 (R,) and the next generator.
    """
    uniform, generator = next_uniform(generator)
    cumulative = ops.cumsum(weights, axis=-1)
    total = cumulative[:, -1:]
    # The last token of some weight is where the sums end, whatever the rounding.
    passed = ops.logical_and(
        ops.less_equal(cumulative, uniform * total), ops.less(cumulative, total)
    )
    token = ops.sum(ops.cast(passed, "int32"), axis=-1)
    return ops.cast(token, "int32"), generator


def seed_generators(seed, count):
    """The first numbers of one generator a row.

    Args:
        seed: int or int32 scalar.
        count: int or int32 scalar, rows.

    Returns: int32 (count, 3), each from 1 to below its modulus.
    """
    moduli = ops.convert_to_tensor(MODULI, "int32")
    rows = ops.expand_dims(ops.arange(count, dtype="int32"), 1)
    start = ops.mod(ops.cast(seed, "int32"), moduli)
    x = ops.mod(ops.mod(rows, moduli) * ops.convert_to_tensor((37, 101, 59)), moduli)
    for _ in range(4):  # squares modulo a prime scatter neighbours
        x = ops.mod(x + start + 1, moduli)
        x = ops.mod(ops.mod(x * x, moduli) + rows, moduli)
    return 1 + ops.mod(x, moduli - 1)


def next_uniform(generator):
    """One step of the generators.

    Args:
        generator: int32 (R, 3).

    Returns: pair of float32 (R, 1), uniform in [0, 1), and the next generator.
    """
    moduli = ops.convert_to_tensor(MODULI, "int32")
    generator = ops.mod(generator * ops.convert_to_tensor(FACTORS, "int32"), moduli)
    parts = ops.cast(generator, "float32") / ops.cast(moduli, "float32")
    return ops.mod(ops.sum(parts, axis=-1, keepdims=True), 1.0), generator
