"""The decoding loop in keras.ops: the same in eager code, compiled and exported.

Letters: B batch, R rows (B times the strategy's rows), T prompt length, S source
length, M tokens that a row has room for, V vocabulary.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.generation.rows import column, is_one_of, put_column, repeat_rows


@dataclasses.dataclass(frozen=True)
class History:
    """What strategies and processors know of the rows so far.

    Args:
        token_ids: int32 (R, M), prompts and new tokens, 0 elsewhere.
        padding_mask: bool (R, M), True for the real tokens among them.
        length: int32 scalar T; new tokens begin there.
        step: int32 scalar, how many tokens have been made.
        limit: int32 scalar, how many will be made at most.
        finished: bool (R,), rows that have ended.
        stop_token_ids: tuple of ints.
    """

    token_ids: Any
    padding_mask: Any
    length: Any
    step: Any
    limit: Any
    finished: Any
    stop_token_ids: tuple

    def is_stop(self, token_ids):
        """Which of some tokens end their row, a bool tensor of their shape."""
        return is_one_of(token_ids, self.stop_token_ids)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A strategy's answer.

    Args:
        token: int32 (R,), the next token of each row.
        finished: bool (R,), rows that have ended with it.
        state: what the strategy wants to see again.
        parents: int32 (R,), the row that each row goes on from; None: itself.
    """

    token: Any
    finished: Any
    state: Any
    parents: Any = None


class Decoder:
    """The loop over new tokens, for one model and one way to choose.

    Args:
        model: keeps the cache protocol.
        max_length: int M; the cache holds one token less, since the last token of a
            row is never read.
        strategy: such as `Greedy()`.
        processors: callables (logits, history) -> logits, in their order.
        stop_token_ids: ints.

    Attributes:
        packed: bool, whether the loop carries a cache of one row without the axis of
            rows, which saves XLA from copying it; LiteRT is better off with the axis.
    """

    packed = True

    def __init__(self, model, max_length, strategy, processors=(), stop_token_ids=()):
        self.model = model
        self.max_length = max_length
        self.strategy = strategy
        self.processors = tuple(processors)
        self.stop_token_ids = tuple(stop_token_ids)

    def start(self, inputs):
        """Read the prompts, but for their last token, which the loop reads.

        Args:
            inputs: dict of `token_ids` int32 and `padding_mask` bool (B, T), padded
                on the left; `limit` and `seed`, int32 scalars; for an
                encoder-decoder `source_token_ids`, int32 (B, S).

        Returns: pair of dicts: what stays as it is, and what the loop changes.
        """
        prompt = inputs["token_ids"]
        length = ops.shape(prompt)[1]
        read = prefill(self.model, inputs, prompt[:, :-1], self.max_length - 1)
        fixed = {"limit": inputs["limit"]}
        fixed["length"] = ops.convert_to_tensor(length, "int32")
        rows = self.strategy.rows
        for name in ("padding_mask", "count", "context_mask"):
            if read[name] is not None:
                fixed[name] = repeat_rows(read[name], rows)
        tokens = ops.pad(prompt, ((0, 0), (0, self.max_length - length)))
        tokens = repeat_rows(ops.reshape(tokens, (-1, self.max_length)), rows)
        moving = {
            "step": ops.convert_to_tensor(0, "int32"),
            "token_ids": tokens,
            "finished": ops.zeros_like(tokens[:, 0], dtype="bool"),
            "blocked": ops.zeros_like(tokens[:, 0], dtype="bool"),
        }
        cache = keras.tree.map_structure(lambda x: repeat_rows(x, rows), read["cache"])
        moving["cache"] = self._change_rows(ops.squeeze, cache, tokens)
        history = self._history(fixed, moving)
        moving["state"] = self.strategy.begin(history, inputs["seed"])
        return fixed, moving

    def advance(self, fixed, moving, until):
        """Make tokens until a step is reached or all rows have ended.

        Args:
            fixed: dict from `start`.
            moving: dict from `start` or the last `advance`.
            until: int32 scalar, the step.

        Returns: dict, the new `moving`.
        """

        def goes_on(moving):
            running = ops.logical_not(ops.all(moving["finished"]))
            return ops.logical_and(ops.less(moving["step"], until), running)

        return ops.while_loop(goes_on, lambda m: self._step(fixed, m), moving)

    def finish(self, fixed, moving):
        """The results.

        Args:
            fixed: dict from `start`.
            moving: dict from `advance`.

        Returns: dict of `token_ids` int32 (B, n, M), n results a prompt, the best
            first; `scores` float32 (B, n); `blocked` bool (B,), prompts to which
            the processors at some step left no token.
        """
        history = self._history(fixed, moving)
        token_ids, scores = self.strategy.finish(history, moving["state"])
        blocked = ops.reshape(moving["blocked"], (-1, self.strategy.rows))
        blocked = ops.any(blocked, axis=1)
        return {"token_ids": token_ids, "scores": scores, "blocked": blocked}

    def _step(self, fixed, moving):
        """Read the last token, choose the next one."""
        step, tokens = moving["step"], moving["token_ids"]
        cache = self._change_rows(ops.expand_dims, moving["cache"], tokens)
        place = fixed["length"] + step  # of the next token
        logits, new_cache = self.model.call_with_cache(
            column(tokens, place - 1),
            cache,
            place - 1,
            padding_mask=fixed["padding_mask"],
            context_padding_mask=fixed.get("context_mask"),
            positions=fixed["count"] - 1 + step,
        )
        history = self._history(fixed, moving)
        own = self.strategy.prepare(ops.cast(logits[:, -1], "float32"))
        logits, blocked = self._process(own, history)
        choice = self.strategy.choose(logits, own, history, moving["state"])
        token = ops.where(moving["finished"], 0, choice.token)
        if choice.parents is not None:
            tokens = ops.take(tokens, choice.parents, axis=0)
            new_cache = keras.tree.map_structure(
                # What no step changes is the same in all rows of a prompt.
                lambda new, old: (
                    new if new is old else ops.take(new, choice.parents, axis=0)
                ),
                new_cache,
                cache,
            )
        blocked = ops.logical_and(blocked, ops.logical_not(moving["finished"]))
        return {
            "step": step + 1,
            "token_ids": put_column(tokens, token, place),
            "finished": choice.finished,
            "blocked": ops.logical_or(moving["blocked"], blocked),
            "cache": self._change_rows(ops.squeeze, new_cache, tokens),
            "state": choice.state,
        }

    def _change_rows(self, change, cache, tokens):
        """A cache without its axis of one row (`ops.squeeze`), or with it again."""
        single = tokens.shape[0] == 1  # dialect: known to be one row
        if not (self.packed and single):
            return cache
        return keras.tree.map_structure(lambda x: change(x, 0), cache)

    def _process(self, logits, history):
        """The processors' logits; where they leave nothing, the model's own."""
        processed = logits
        for processor in self.processors:
            processed = processor(processed, history)
        if not self.processors:
            return logits, ops.zeros_like(history.finished)
        best = ops.max(processed, axis=-1)
        blocked = ops.logical_not(ops.greater(best, float("-inf")))  # also NaN
        return ops.where(ops.expand_dims(blocked, 1), logits, processed), blocked

    def _history(self, fixed, moving):
        places = ops.arange(self.max_length, dtype="int32")
        made = ops.less(places, fixed["length"] + moving["step"])
        real = ops.pad(fixed["padding_mask"], ((0, 0), (0, 1)), constant_values=True)
        return History(
            token_ids=moving["token_ids"],
            padding_mask=ops.logical_and(real, ops.expand_dims(made, 0)),
            length=fixed["length"],
            step=moving["step"],
            limit=fixed["limit"],
            finished=moving["finished"],
            stop_token_ids=self.stop_token_ids,
        )


def prefill(model, inputs, token_ids, max_length):
    """Read prompts, or their beginnings, in one pass.

    Args:
        model: keeps the cache protocol.
        inputs: dict as for `Decoder.start`.
        token_ids: int32 (B, t), the first tokens of the prompts; none of them if t is
            known to be 0.
        max_length: int M.

    Returns: dict of `logits` float32 (B, t, V) or None, `cache`, `padding_mask` bool
        (B, M), `count` int32 (B, 1), the prompts' real tokens, and `context_mask` bool
        (B, S) or None.
    """
    mask, places = inputs["padding_mask"], ops.shape(token_ids)[1]
    batch, length = ops.shape(mask)
    room = ((0, 0), (0, max_length - length))
    padding_mask = ops.pad(mask, room, constant_values=True)
    padding_mask = ops.reshape(padding_mask, (-1, max_length))  # known in graphs too
    real = ops.cast(mask, "int32")
    context = context_mask = logits = None
    if "source_token_ids" in inputs:
        context, context_mask = model.encode(inputs["source_token_ids"])
    cache = model.init_cache(batch, max_length, context)
    if token_ids.shape[1] != 0:
        logits, cache = model.call_with_cache(
            token_ids,
            cache,
            ops.convert_to_tensor(0, "int32"),
            padding_mask=padding_mask,
            context_padding_mask=context_mask,
            positions=ops.maximum(ops.cumsum(real, axis=1) - 1, 0)[:, :places],
        )
    return {
        "logits": logits,
        "cache": cache,
        "padding_mask": padding_mask,
        "count": ops.sum(real, axis=1, keepdims=True),
        "context_mask": context_mask,
    }
