"""Beam search: several rows a prompt, the best whole answers kept.

Letters: B batch, G groups, K beams of a group, R = B G K rows, M tokens that a row has
room for, V vocabulary, C candidates.
"""

import dataclasses
from typing import ClassVar

from keras import ops

from keras_tfm.generation.decoder import Choice, Decoder
from keras_tfm.generation.largest import largest
from keras_tfm.generation.rows import put_column

NEVER = float("-inf")


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """The most probable answers that a search of limited width finds.

    Each step extends the `num_beams` best unfinished answers by every token and keeps
    the best. An answer that ends with a stop token leaves the beams for a pool of
    `num_beams` finished ones. The score is the sum of log-probabilities divided by
    length ** `length_penalty`; the length counts new tokens, a stop token included.
    At the last step unfinished answers enter the pool too.

    A search ends when nothing unfinished can get into the pool any more, or as soon as
    the pool is full with `early_stopping`. Results are sorted by score; where there
    are fewer than asked for, the rest has score -inf and no tokens.

    Args:
        num_beams: int.
        length_penalty: float; above 0 favours longer answers, below 0 shorter ones.
        early_stopping: bool.
        num_return_sequences: int, answers a prompt; None: the best, without an axis
            of its own.
        num_groups: int, divides `num_beams`; groups search one after the other and
            are penalised for the tokens that those before chose at this step.
        diversity_penalty: float, subtracted for each such choice.

    Raises:
        ValueError: a value out of its range.

    Example:
        >>> strategy = keras_tfm.generation.BeamSearch(num_beams=5)

    References:
        length penalty: Wu et al. 2016, arXiv:1609.08144, sec. 7, in the simpler form
        length ** penalty; groups: Vijayakumar et al. 2016, arXiv:1610.02424.
    """

    decoder: ClassVar[type] = Decoder
    num_beams: int = 4
    length_penalty: float = 1.0
    early_stopping: bool = False
    num_return_sequences: int | None = None
    num_groups: int = 1
    diversity_penalty: float = 0.0

    def __post_init__(self):
        if self.num_beams < 1:
            raise ValueError(f"`num_beams` must be positive, got {self.num_beams}.")
        if not 1 <= (self.num_return_sequences or 1) <= self.num_beams:
            raise ValueError(
                f"`num_return_sequences` must be from 1 to `num_beams` "
                f"({self.num_beams}), got {self.num_return_sequences}."
            )
        if self.num_groups < 1 or self.num_beams % self.num_groups:
            raise ValueError(
                f"`num_groups` must divide `num_beams` ({self.num_beams}), got "
                f"{self.num_groups}."
            )
        if self.diversity_penalty < 0:
            raise ValueError(
                f"`diversity_penalty` must not be negative: {self.diversity_penalty}."
            )

    @property
    def rows(self):
        """Rows a prompt."""
        return self.num_beams

    def begin(self, history, seed):
        """One live beam a group, empty pools.

        Args:
            history: `History`.
            seed: not used.

        Returns: dict of `live` float32 (B, G, K), scores of the beams; `pool_scores`
            float32 (B, G, K); `pool_tokens` int32 (B, G, K, M).
        """
        zeros = self._grouped(ops.zeros_like(history.finished, dtype="float32"))
        empty = ops.full_like(zeros, NEVER)
        return {
            "live": ops.concatenate([zeros[:, :, :1], empty[:, :, 1:]], axis=2),
            "pool_scores": empty,
            "pool_tokens": ops.zeros_like(self._grouped(history.token_ids)),
        }

    def prepare(self, logits):
        """Processors see log-probabilities, which are added up as they leave them.

        Args:
            logits: float32 (R, V).

        Returns: float32 (R, V).
        """
        return ops.log_softmax(logits, axis=-1)

    def choose(self, logits, own, history, state):
        """The next token and the parent of each beam.

        Args:
            logits: float32 (R, V), log-probabilities as the processors left them.
            own: not used.
            history: `History`.
            state: dict from `begin` or the last `choose`.

        Returns: `Choice`.
        """
        width = self.num_beams // self.num_groups
        log_probs = self._grouped(logits)  # (B, G, K, V)
        tokens = self._grouped(history.token_ids)
        ended = self._grouped(history.finished)[:, :, :1]  # (B, G, 1)
        chosen, groups = ops.zeros_like(log_probs[:, 0, 0]), []  # (B, V)
        for g in range(self.num_groups):
            penalty = self.diversity_penalty * ops.expand_dims(chosen, 1)
            group = self._choose_in_group(
                log_probs[:, g] - penalty,
                tokens[:, g],
                ended[:, g],
                {name: value[:, g] for name, value in state.items()},
                history,
            )
            chosen = chosen + group.pop("chosen")
            first = ops.expand_dims(ops.arange(ops.shape(chosen)[0], dtype="int32"), 1)
            first = (first * self.num_groups + g) * width  # the group's first row
            groups.append({**group, "parent": group["parent"] + first})
        merged = {k: ops.stack([x[k] for x in groups], axis=1) for k in groups[0]}
        return Choice(
            token=ops.reshape(merged["token"], (-1,)),
            # Groups of a prompt end together: each depends on those before.
            finished=ops.reshape(
                ops.broadcast_to(
                    ops.all(merged["ended"], axis=1, keepdims=True),
                    ops.shape(merged["token"]),
                ),
                (-1,),
            ),
            state={k: merged[k] for k in state},
            parents=ops.reshape(merged["parent"], (-1,)),
        )

    def _choose_in_group(self, log_probs, tokens, ended, state, history):
        """A step of one group; letters as above without G."""
        width, vocabulary = log_probs.shape[1], log_probs.shape[2]
        # Enough for K that go on, whatever else ends.
        stops = len(history.stop_token_ids)
        count = min(width * (1 + stops), width * vocabulary)
        scores = ops.expand_dims(state["live"], 2) + log_probs  # (B, K, V)
        scores = ops.reshape(scores, (-1, width * vocabulary))
        scores, places = largest(scores, count)  # (B, C)
        parent, token = places // vocabulary, ops.mod(places, vocabulary)
        stop = history.is_stop(token)

        live, best = ops.top_k(ops.where(stop, NEVER, scores), width)  # (B, K)
        best = ops.cast(best, "int32")
        chosen = {
            "live": live,
            "token": ops.take_along_axis(token, best, axis=1),
            "parent": ops.take_along_axis(parent, best, axis=1),
        }

        # Candidates that end: only those that would be beams, as in greedy search.
        ends = ops.logical_and(stop[:, :width], ops.logical_not(ended))
        length = ops.cast(history.step + 1, "float32")
        finals = ops.where(ends, self._score(scores[:, :width], length), NEVER)
        rows = self._extend(tokens, parent[:, :width], token[:, :width], history)
        pool_scores, pool_tokens = self._merge(
            (state["pool_scores"], state["pool_tokens"]), (finals, rows)
        )

        last = ops.equal(history.step + 1, history.limit)
        going_on = ops.logical_and(last, ops.logical_not(ended))  # (B, 1)
        finals = ops.where(going_on, self._score(live, length), NEVER)
        rows = self._extend(tokens, chosen["parent"], chosen["token"], history)
        pool_scores, pool_tokens = self._merge(
            (pool_scores, pool_tokens), (finals, rows)
        )

        worst = ops.min(pool_scores, axis=1, keepdims=True)  # (B, 1)
        full = ops.greater(worst, NEVER)
        if not self.early_stopping:
            full = ops.logical_and(full, worst >= self._bound(live[:, :1], history))
        none_left = ops.logical_not(ops.greater(live[:, :1], NEVER))
        full = ops.logical_or(full, none_left)
        stopped = ops.where(ends, token[:, :width], -1)  # -1 is nowhere in one_hot
        picked = ops.concatenate([chosen["token"], stopped], axis=1)
        picked = ops.where(ended, -1, picked)
        return {
            **chosen,
            "pool_scores": pool_scores,
            "pool_tokens": pool_tokens,
            "ended": ops.logical_or(ended, full),
            "chosen": ops.sum(ops.one_hot(picked, vocabulary), axis=1),  # (B, V)
        }

    def finish(self, history, state):
        """The pools of all groups, sorted.

        Args:
            history: `History`.
            state: dict from the last `choose`.

        Returns: pair of int32 (B, n, M) and float32 (B, n).
        """
        scores = ops.reshape(state["pool_scores"], (-1, self.num_beams))
        length = ops.shape(state["pool_tokens"])[-1]
        tokens = ops.reshape(state["pool_tokens"], (-1, self.num_beams, length))
        scores, best = ops.top_k(scores, self.num_return_sequences or 1)
        best = ops.expand_dims(ops.cast(best, "int32"), 2)
        return ops.take_along_axis(tokens, best, axis=1), scores

    def _grouped(self, x):
        """(R, ...) -> (B, G, K, ...)."""
        width = self.num_beams // self.num_groups
        return ops.reshape(x, (-1, self.num_groups, width, *ops.shape(x)[1:]))

    def _score(self, log_prob, length):
        return log_prob / length**self.length_penalty

    def _bound(self, log_prob, history):
        """The best score that an unfinished answer can still get."""
        farthest = history.limit if self.length_penalty > 0 else history.step + 2
        return self._score(log_prob, ops.cast(farthest, "float32"))

    def _extend(self, tokens, parent, token, history):
        """Rows of candidates: (B, K, M) and (B, C) -> (B, C, M)."""
        rows = ops.take_along_axis(tokens, ops.expand_dims(parent, 2), axis=1)
        flat = ops.reshape(rows, (-1, ops.shape(rows)[2]))
        place = history.length + history.step
        flat = put_column(flat, ops.reshape(token, (-1,)), place)
        return ops.reshape(flat, ops.shape(rows))

    def _merge(self, pool, new):
        """The K best of two lists of (scores, rows)."""
        scores = ops.concatenate([pool[0], new[0]], axis=1)
        rows = ops.concatenate([pool[1], new[1]], axis=1)
        width = self.num_beams // self.num_groups
        scores, best = ops.top_k(scores, width)
        best = ops.expand_dims(ops.cast(best, "int32"), 2)
        rows = ops.take_along_axis(rows, best, axis=1)
        return scores, ops.where(ops.expand_dims(scores, 2) > NEVER, rows, 0)
