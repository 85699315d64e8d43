"""Speculative decoding: a cheap guess of several tokens, checked in one pass.

Letters: B batch, M tokens that a row has room for, G guessed tokens.
"""

import dataclasses
from typing import Any, ClassVar

from keras import ops

from keras_tfm.generation.speculative_decoder import SpeculativeDecoder
from keras_tfm.generation.strategies import Greedy


@dataclasses.dataclass(frozen=True)
class Speculative:
    """Guess several tokens, check them in one pass of the model.

    The tokens follow the model's own distribution, whatever guesses: greedy ones are
    the same tokens, sampled ones are drawn from the same probabilities. Each row of a
    batch keeps as many guesses as are right for it.

    Guesses come from a smaller model of the same vocabulary or, without one, from the
    row itself: what followed the last time that its last tokens occurred.

    Args:
        draft: model that keeps the cache protocol, or None to look up the row itself.
        num_guesses: int, tokens a guess.
        strategy: `Greedy()` or `Sample(...)`.
        ngram_size: int, tokens that are looked up.

    Raises:
        ValueError: `num_guesses` or `ngram_size` below 1.

    Example:
        >>> strategy = keras_tfm.generation.Speculative(num_guesses=3)

    References:
        Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
    """

    decoder: ClassVar[type] = SpeculativeDecoder
    draft: Any = None
    num_guesses: int = 4
    strategy: Any = Greedy()
    ngram_size: int = 2

    def __post_init__(self):
        for name in ("num_guesses", "ngram_size"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {getattr(self, name)}."
                )

    @property
    def spare(self):
        """Positions beyond the tokens asked for."""
        return self.num_guesses + 2

    @property
    def seed(self):
        """That of the strategy, for random draws."""
        return getattr(self.strategy, "seed", 0)

    def look_up(self, token_ids, padding_mask, end):
        """What followed the last time that a row's last tokens occurred.

        Args:
            token_ids: int32 (B, M).
            padding_mask: bool (B, M), also True for what comes after `end`.
            end: int32 scalar, the column after the last tokens.

        Returns: int32 (B, G); anything where the tokens have not occurred.
        """
        size, width = self.ngram_size, token_ids.shape[1]
        count = width - size
        starts = ops.expand_dims(ops.arange(count, dtype="int32"), 0)
        same = ops.logical_and(padding_mask[:, :count], starts + size < end)
        for i in range(size):
            last = ops.take(token_ids, ops.maximum(end - size + i, 0), axis=1)
            here = token_ids[:, i : i + count]
            same = ops.logical_and(same, here == ops.expand_dims(last, 1))
        found = ops.max(ops.where(same, starts, 0), axis=1, keepdims=True)  # (B, 1)
        follow = (
            found
            + size
            + ops.expand_dims(ops.arange(self.num_guesses, dtype="int32"), 0)
        )
        return ops.take_along_axis(token_ids, ops.minimum(follow, width - 1), axis=1)
