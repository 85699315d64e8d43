"""Processors: what may come next, and what should not.

A processor is a callable (logits, history) -> logits with float32 (R, V) logits and a
`History`; a forbidden token gets -inf. These are frozen dataclasses, so that one
compiled loop serves equal ones; any function works, and is compiled for itself.

Letters: R rows, M tokens that a row has room for, V vocabulary, C choices.
"""

import dataclasses

import numpy as np
from keras import ops

NEVER = float("-inf")


@dataclasses.dataclass(frozen=True)
class RepetitionPenalty:
    """Make tokens that the row already has less probable.

    Their logits are divided by the penalty if positive, else multiplied by it, once,
    however often they occur; padding does not count.

    Args:
        penalty: float above 0; 1 changes nothing.

    Raises:
        ValueError: a penalty that is not positive.

    Example:
        >>> processor = keras_tfm.generation.RepetitionPenalty(1.2)

    References: Keskar et al. 2019, sec. 4.1, arXiv:1909.05858.
    """

    penalty: float

    def __post_init__(self):
        if not self.penalty > 0:
            raise ValueError(f"`penalty` must be positive, got {self.penalty}.")

    def __call__(self, logits, history):
        seen = _any_of(history.token_ids, history.padding_mask, logits)
        less = ops.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return ops.where(seen, less, logits)


@dataclasses.dataclass(frozen=True)
class NoRepeatNGram:
    """Forbid a token that would repeat a run of tokens of the row, prompt included.

    Args:
        size: int, length of the run.

    Raises:
        ValueError: a size below 1.

    Example:
        >>> processor = keras_tfm.generation.NoRepeatNGram(3)

    References: Paulus et al. 2017, sec. 2.5, arXiv:1705.04304.
    """

    size: int

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"`size` must be at least 1, got {self.size}.")

    def __call__(self, logits, history):
        tokens, real = history.token_ids, history.padding_mask
        before = self.size - 1  # tokens of the run that stand already
        width = tokens.shape[1]
        if width < self.size:
            return logits
        count = width - before
        end = history.length + history.step
        same = real[:, before:]  # (R, count), runs that end with a real token
        for i in range(before):
            last = ops.maximum(end - before + i, 0)
            token = ops.expand_dims(ops.take(tokens, last, axis=1), 1)
            one = ops.expand_dims(ops.take(real, last, axis=1), 1)
            place = slice(i, i + count)
            same = ops.logical_and(same, ops.equal(tokens[:, place], token))
            same = ops.logical_and(same, ops.logical_and(real[:, place], one))
        return ops.where(_any_of(tokens[:, before:], same, logits), NEVER, logits)


@dataclasses.dataclass(frozen=True)
class MinLength:
    """Forbid stop tokens until a row has enough new tokens.

    Args:
        length: int, new tokens before the stop token.

    Example:
        >>> processor = keras_tfm.generation.MinLength(5)
    """

    length: int

    def __call__(self, logits, history):
        ids = ops.arange(logits.shape[-1], dtype="int32")
        early = ops.less(history.step, self.length)
        return ops.where(ops.logical_and(early, history.is_stop(ids)), NEVER, logits)


@dataclasses.dataclass(frozen=True)
class ForcedToken:
    """Allow one token only at one step.

    Its logit becomes 0, so that it costs a beam nothing: with nothing beside it the
    token is certain.

    Args:
        token_id: int.
        step: int, 0 for the first new token, -1 for the last possible one.

    Example:
        >>> language = keras_tfm.generation.ForcedToken(token_id=7)
        >>> end = keras_tfm.generation.ForcedToken(token_id=2, step=-1)
    """

    token_id: int
    step: int = 0

    def __call__(self, logits, history):
        step = self.step if self.step >= 0 else history.limit + self.step
        ids = ops.arange(logits.shape[-1], dtype="int32")
        other = ops.not_equal(ids, self.token_id)
        forced = ops.where(other, NEVER, 0.0)
        return ops.where(ops.equal(history.step, step), forced, logits)


@dataclasses.dataclass(frozen=True)
class SuppressTokens:
    """Forbid some tokens everywhere.

    Args:
        token_ids: tuple of ints.

    Example:
        >>> processor = keras_tfm.generation.SuppressTokens((0, 3))
    """

    token_ids: tuple

    def __post_init__(self):
        object.__setattr__(self, "token_ids", tuple(int(i) for i in self.token_ids))

    def __call__(self, logits, history):
        forbidden = np.isin(np.arange(logits.shape[-1]), self.token_ids)
        return ops.where(ops.convert_to_tensor(forbidden), NEVER, logits)


@dataclasses.dataclass(frozen=True)
class OneOf:
    """Allow only answers from a list; the strategy chooses among them.

    Args:
        choices: list of token rows (lists of ints); a row that must end there has the
            stop token as its last. After a whole choice everything is allowed.

    Raises:
        ValueError: no choice, or an empty one.

    Example:
        >>> processor = keras_tfm.generation.OneOf([[5, 7, 2], [5, 8, 9, 2]])
    """

    choices: tuple

    def __post_init__(self):
        choices = tuple(tuple(int(i) for i in row) for row in self.choices)
        if not choices or not all(choices):
            raise ValueError(
                f"`choices` must be token rows that are not empty, got {self.choices}."
            )
        object.__setattr__(self, "choices", choices)

    def __call__(self, logits, history):
        length = max(len(row) for row in self.choices)
        table = np.full((len(self.choices), length + 1), -1, "int32")
        for i, row in enumerate(self.choices):
            table[i, : len(row)] = row
        table = ops.convert_to_tensor(table)  # (C, length + 1)
        step = ops.minimum(history.step, length)
        alive = ops.ones_like(history.token_ids[:, :1], dtype="bool")  # (R, 1)
        alive = ops.logical_and(alive, ops.expand_dims(table[:, 0] >= 0, 0))  # (R, C)
        last = history.token_ids.shape[1] - 1
        for i in range(length):
            place = ops.minimum(history.length + i, last)
            made = ops.expand_dims(ops.take(history.token_ids, place, axis=1), 1)
            fits = ops.equal(made, ops.expand_dims(table[:, i], 0))
            alive = ops.logical_and(alive, ops.logical_or(fits, i >= step))
        following = ops.take(table, step, axis=1)  # (C,)
        ids = ops.arange(logits.shape[-1], dtype="int32")
        next_one = ops.equal(ops.expand_dims(following, 1), ids)  # (C, V)
        allowed = ops.any(
            ops.logical_and(ops.expand_dims(alive, 2), ops.expand_dims(next_one, 0)),
            axis=1,
        )  # (R, V)
        over = ops.logical_and(alive, ops.expand_dims(following < 0, 0))  # (R, C)
        none = ops.logical_not(ops.any(alive, axis=1, keepdims=True))
        free = ops.logical_or(ops.any(over, axis=1, keepdims=True), none)
        return ops.where(ops.logical_or(allowed, free), logits, NEVER)


def _any_of(token_ids, which, logits):
    """Bool (R, V): does a marked place of the row hold this token?"""
    rows = ops.cast(ops.arange(ops.shape(token_ids)[0], dtype="int32"), "int32")
    rows = ops.broadcast_to(ops.expand_dims(rows, 1), ops.shape(token_ids))
    places = ops.stack([rows, token_ids], axis=-1)  # (R, M, 2)
    counts = ops.scatter(
        ops.reshape(places, (-1, 2)),
        ops.reshape(ops.cast(which, "float32"), (-1,)),
        ops.shape(logits),
    )
    return ops.greater(counts, 0)
