"""Contrastive search: probable tokens that are unlike what stands already.

Letters: B batch, T prompt length, M tokens that a row has room for, k candidates,
D width of the hidden states, V vocabulary.
"""

import dataclasses
from typing import ClassVar

import keras
from keras import ops

from keras_tfm.generation.decoder import Decoder, prefill
from keras_tfm.generation.largest import largest
from keras_tfm.generation.rows import put_column, repeat_rows


class ContrastiveDecoder(Decoder):
    """The loop of `Contrastive`: reads every candidate before it chooses.

    The model also has `hidden_with_cache`, like `call_with_cache` but for hidden
    states, and `logits_of(hidden)`.
    """

    def start(self, inputs):
        """Read the prompts, see `Decoder.start`."""
        if not hasattr(self.model, "hidden_with_cache"):
            raise ValueError(
                "Contrastive search needs a model with `hidden_with_cache` and "
                f"`logits_of`, got {type(self.model).__name__}."
            )
        prompt = inputs["token_ids"]
        length = ops.shape(prompt)[1]
        read = prefill(_Hidden(self.model), inputs, prompt, self.max_length)
        fixed = {
            "limit": inputs["limit"],
            "length": ops.convert_to_tensor(length, "int32"),
            "padding_mask": read["padding_mask"][:, :-1],
            "cache_mask": read["padding_mask"],
            "count": read["count"],
        }
        if read["context_mask"] is not None:
            fixed["context_mask"] = read["context_mask"]
        seen = ops.where(
            ops.expand_dims(inputs["padding_mask"], 2), unit(read["logits"]), 0.0
        )
        room = ((0, 0), (0, self.max_length - length))
        tokens = ops.pad(prompt, room)
        zeros = ops.zeros_like(tokens[:, 0])
        moving = {
            "step": ops.convert_to_tensor(0, "int32"),
            "token_ids": ops.reshape(tokens, (-1, self.max_length)),
            "finished": ops.cast(zeros, "bool"),
            "blocked": ops.cast(zeros, "bool"),
            "cache": read["cache"],
            "logits": self.model.logits_of(read["logits"][:, -1:])[:, 0],
            "seen": ops.pad(seen, (*room, (0, 0))),  # (B, M, D)
            "state": {"scores": ops.cast(zeros, "float32")},
        }
        return fixed, moving

    def _step(self, fixed, moving):
        """Read the candidates, choose one."""
        step, finished = moving["step"], moving["finished"]
        place, count = fixed["length"] + step, self.strategy.num_candidates
        history = self._history(fixed, moving)
        own = ops.cast(moving["logits"], "float32")
        logits, blocked = self._process(own, history)
        count = min(count, logits.shape[-1])
        chances, tokens = largest(ops.softmax(logits, axis=-1), count)  # (B, k)

        def copies(x):
            return repeat_rows(x, count)

        mask = fixed.get("context_mask")
        hidden, cache = self.model.hidden_with_cache(
            ops.reshape(tokens, (-1, 1)),
            keras.tree.map_structure(copies, moving["cache"]),
            place,
            padding_mask=copies(fixed["cache_mask"]),
            context_padding_mask=None if mask is None else copies(mask),
            positions=copies(fixed["count"]) + step,
        )
        width = hidden.shape[-1]
        units = ops.reshape(unit(hidden), (-1, count, width))
        likeness = ops.matmul(units, ops.transpose(moving["seen"], (0, 2, 1)))
        there = ops.expand_dims(history.padding_mask, 1)  # (B, 1, M)
        likeness = ops.max(ops.where(there, likeness, -1.0), axis=-1)  # (B, k)
        penalty = self.strategy.penalty
        merit = (1 - penalty) * chances - penalty * likeness
        merit = ops.where(chances > 0, merit, float("-inf"))  # forbidden
        best = ops.cast(ops.top_k(merit, 1)[1], "int32")  # (B, 1)

        first = ops.expand_dims(ops.arange(ops.shape(best)[0], dtype="int32"), 1)
        rows = (first * count + best)[:, 0]
        token = ops.take_along_axis(tokens, best, axis=1)[:, 0]
        log_probs = ops.log_softmax(own, axis=-1)
        gain = ops.take_along_axis(log_probs, ops.expand_dims(token, 1), axis=1)[:, 0]
        scores = moving["state"]["scores"] + ops.where(finished, 0.0, gain)
        token = ops.where(finished, 0, token)
        blocked = ops.logical_and(blocked, ops.logical_not(finished))
        chosen = ops.take(ops.reshape(units, (-1, 1, width)), rows, axis=0)
        return {
            "step": step + 1,
            "token_ids": put_column(moving["token_ids"], token, place),
            "finished": ops.logical_or(finished, history.is_stop(token)),
            "blocked": ops.logical_or(moving["blocked"], blocked),
            "cache": keras.tree.map_structure(
                lambda x: ops.take(x, rows, axis=0), cache
            ),
            "logits": self.model.logits_of(ops.take(hidden, rows, axis=0))[:, 0],
            "seen": ops.slice_update(moving["seen"], (0, place, 0), chosen),
            "state": {"scores": scores},
        }


@dataclasses.dataclass(frozen=True)
class Contrastive:
    """Of the most probable tokens the one that repeats least.

    Each candidate is read by the model, and its hidden state compared with those of
    all tokens before. The choice is the largest (1 - penalty) * probability -
    penalty * the largest cosine.

    Args:
        num_candidates: int, k.
        penalty: float in [0, 1]; 0 is greedy.

    Raises:
        ValueError: a value out of its range.

    Example:
        >>> strategy = keras_tfm.generation.Contrastive(num_candidates=4, penalty=0.6)

    References: Su et al. 2022, arXiv:2202.06417.
    """

    decoder: ClassVar[type] = ContrastiveDecoder
    rows: ClassVar[int] = 1
    spare: ClassVar[int] = 1  # the last token is read, too
    num_candidates: int = 4
    penalty: float = 0.6

    def __post_init__(self):
        if self.num_candidates < 1:
            raise ValueError(
                f"`num_candidates` must be positive, got {self.num_candidates}."
            )
        if not 0 <= self.penalty <= 1:
            raise ValueError(f"`penalty` must be from 0 to 1, got {self.penalty}.")

    def finish(self, history, state):
        """The rows themselves.

        Args:
            history: `History`.
            state: dict with `scores` float32 (B,).

        Returns: pair of int32 (B, 1, M) and float32 (B, 1).
        """
        return ops.expand_dims(history.token_ids, 1), ops.expand_dims(
            state["scores"], 1
        )


class _Hidden:
    """A model whose `call_with_cache` gives hidden states."""

    def __init__(self, model):
        self.encode = getattr(model, "encode", None)
        self.init_cache = model.init_cache
        self.call_with_cache = model.hidden_with_cache


def unit(x):
    """Vectors of length one.

    Args:
        x: float (..., D).

    Returns: float32 (..., D).
    """
    x = ops.cast(x, "float32")
    square = ops.sum(x * x, axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(square, 1e-12))
