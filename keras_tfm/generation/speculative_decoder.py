"""The loop of speculative decoding: guess, check, keep what is right, go on.

Letters: B batch, T prompt length, M tokens that a row has room for, G guessed tokens,
V vocabulary.
"""

import keras
from keras import ops

from keras_tfm.generation.decoder import prefill
from keras_tfm.generation.prompts import vocabulary_of
from keras_tfm.generation.rows import is_one_of
from keras_tfm.generation.strategies import draw, next_uniform, seed_generators


class SpeculativeDecoder:
    """The loop of `Speculative`: guess, check, keep what is right, go on.

    All rows end in the same column, so that one pass reads them all; where they kept
    different numbers of tokens, rows and caches are shifted.

    Args:
        model: keeps the cache protocol.
        max_length: int M.
        strategy: `Speculative`.
        processors: none.
        stop_token_ids: ints.

    Raises:
        ValueError: processors are given.
    """

    def __init__(self, model, max_length, strategy, processors=(), stop_token_ids=()):
        if processors:
            raise ValueError(
                f"`processors` do not work with Speculative, got {processors}."
            )
        self.model = model
        self.strategy = strategy
        self.result_length = max_length - 1
        # A column of padding before all, and room for guesses past the end.
        self.max_length = self.result_length + strategy.spare
        self.stop_token_ids = tuple(stop_token_ids)

    def start(self, inputs):
        """Read the prompts, but for their last token, see `Decoder.start`."""
        column = ((0, 0), (1, 0))
        inputs = {
            **inputs,
            "token_ids": ops.pad(inputs["token_ids"], column),
            "padding_mask": ops.pad(inputs["padding_mask"], column),
        }
        prompt = inputs["token_ids"]
        batch, length = ops.shape(prompt)
        fixed = {
            "limit": inputs["limit"],
            "length": ops.convert_to_tensor(length, "int32"),
        }
        caches = {}
        for name, model in self._models().items():
            read = prefill(model, inputs, prompt[:, :-1], self.max_length)
            caches[name] = read["cache"]
            fixed["count"] = read["count"]
            if read["context_mask"] is not None:
                fixed[f"{name}_mask"] = read["context_mask"]
        zeros = ops.zeros_like(prompt[:, 0])
        moving = {
            "made": zeros,
            "finished": ops.zeros_like(zeros, dtype="bool"),
            "token_ids": ops.pad(prompt, ((0, 0), (0, self.max_length - length))),
            "caches": caches,
            "generator": seed_generators(inputs["seed"], batch),
            "scores": ops.zeros_like(zeros, dtype="float32"),
        }
        return fixed, moving

    def advance(self, fixed, moving, until):
        """Make tokens until all rows have that many or have ended."""

        def goes_on(moving):
            ended = ops.logical_or(moving["finished"], moving["made"] >= until)
            return ops.logical_not(ops.all(ended))

        return ops.while_loop(goes_on, lambda m: self._round(fixed, m), moving)

    def finish(self, fixed, moving):
        """The results, see `Decoder.finish`."""
        made = ops.expand_dims(moving["made"], 1)
        end = fixed["length"] + ops.max(made)
        tokens = shift(moving["token_ids"], fixed["length"] + made - end)
        places = ops.expand_dims(ops.arange(self.max_length, dtype="int32"), 0)
        tokens = ops.where(places < fixed["length"] + made, tokens, 0)
        tokens = tokens[:, 1 : self.result_length + 2]
        return {
            "token_ids": ops.expand_dims(tokens, 1),
            "scores": ops.expand_dims(moving["scores"], 1),
            "blocked": ops.zeros_like(moving["finished"]),
        }

    def _models(self):
        models = {"model": self.model}
        if self.strategy.draft is not None:
            models["draft"] = self.strategy.draft
        return models

    def _round(self, fixed, moving):
        """One guess and its check."""
        guesses, strategy = self.strategy.num_guesses, self.strategy.strategy
        made = ops.expand_dims(moving["made"], 1)  # (B, 1)
        end = fixed["length"] + ops.max(made)  # the column after the last tokens
        real = fixed["count"] + made  # (B, 1) tokens of each row
        places = ops.expand_dims(ops.arange(self.max_length, dtype="int32"), 0)
        where = {
            "end": end,
            "position": real - 1,
            "padding_mask": places >= end - real,
            "fixed": fixed,
        }
        generator = moving["generator"]
        tokens, guessed, chances, draft_cache, generator = self._guess(
            moving, where, generator
        )
        last = ops.take(tokens, end - 1 + ops.arange(guesses + 1), axis=1)
        logits, cache = self._read(
            "model", last, moving["caches"]["model"], end - 1, where["position"], where
        )
        weights = strategy.weights(logits)  # (B, G + 1, V)
        wanted = weights / ops.sum(weights, axis=-1, keepdims=True)

        # Keep guesses with probability wanted / guessed, up to the first that fails.
        ratio = _of(wanted[:, :-1], guessed) / ops.maximum(_of(chances, guessed), 1e-30)
        keeping = ops.ones_like(moving["finished"])
        kept = ops.zeros_like(moving["made"])
        for i in range(guesses):
            uniform, generator = next_uniform(generator)
            keeping = ops.logical_and(keeping, uniform[:, 0] < ratio[:, i])
            kept = kept + ops.cast(keeping, "int32")
        # One more token: from what the guess had too little of, or after all guesses.
        none = ops.zeros_like(chances[:, :1])
        chances = ops.concatenate([chances, none], axis=1)
        here = ops.expand_dims(kept, (1, 2))  # (B, 1, 1)
        wanted_here = ops.take_along_axis(wanted, here, axis=1)[:, 0]
        left = wanted_here - ops.take_along_axis(chances, here, axis=1)[:, 0]
        left = ops.maximum(left, 0.0)
        some = ops.sum(left, axis=-1, keepdims=True) > 0  # rounding may leave nothing
        token, generator = draw(ops.where(some, left, wanted_here), generator)

        steps = ops.expand_dims(ops.arange(guesses + 1, dtype="int32"), 0)
        new = ops.concatenate([guessed, ops.zeros_like(guessed[:, :1])], axis=1)
        at = ops.expand_dims(kept, 1)
        new = ops.where(steps == at, ops.expand_dims(token, 1), new)  # (B, G + 1)
        stop = ops.logical_and(is_one_of(new, self.stop_token_ids), steps <= at)
        stopped = ops.cumsum(ops.cast(stop, "int32"), axis=1)
        before = stopped - ops.cast(stop, "int32")  # stop tokens before each
        active = ops.logical_not(ops.expand_dims(moving["finished"], 1))
        taken = ops.logical_and(steps <= at, before == 0)
        taken = ops.logical_and(taken, active)
        taken = ops.logical_and(taken, made + steps < fixed["limit"])
        number = ops.sum(ops.cast(taken, "int32"), axis=1)  # (B,)
        ended = ops.any(ops.logical_and(stop, taken), axis=1)
        log_probs = ops.log_softmax(logits, axis=-1)
        gained = ops.sum(ops.where(taken, _of(log_probs, new), 0.0), axis=1)

        tokens = ops.slice_update(tokens, (0, end), new)
        made = moving["made"] + number
        by = ops.expand_dims(ops.max(made) - ops.max(moving["made"]) - number, 1)
        caches = {"model": cache}
        if draft_cache is not None:
            caches["draft"] = draft_cache
        return {
            "made": made,
            "finished": ops.logical_or(moving["finished"], ended),
            "token_ids": shift(tokens, by),
            "caches": {
                name: self._shift_cache(value, moving["caches"][name], by)
                for name, value in caches.items()
            },
            "generator": generator,
            "scores": moving["scores"] + gained,
        }

    def _guess(self, moving, where, generator):
        """Guessed tokens (B, G), in their row too, with their distributions."""
        guesses, tokens = self.strategy.num_guesses, moving["token_ids"]
        end, vocabulary = where["end"], vocabulary_of(self.model)
        if self.strategy.draft is None:
            guessed = self.strategy.look_up(tokens, where["padding_mask"], end)
            tokens = ops.slice_update(tokens, (0, end), guessed)
            chances = ops.one_hot(guessed, vocabulary, dtype="float32")
            return tokens, guessed, chances, None, generator
        cache, guessed, chances = moving["caches"]["draft"], [], []
        # The draft has read all but the last token, or but the last two.
        fed = ops.take(tokens, end - 2 + ops.arange(2), axis=1)
        index, position = end - 2, where["position"] - 1
        for i in range(guesses):
            logits, cache = self._read("draft", fed, cache, index, position, where)
            weights = self.strategy.strategy.weights(logits[:, -1])
            token, generator = draw(weights, generator)
            chances.append(weights / ops.sum(weights, axis=-1, keepdims=True))
            guessed.append(token)
            fed = ops.expand_dims(token, 1)
            index, position = end + i, where["position"] + 1 + i
        guessed = ops.stack(guessed, axis=1)
        tokens = ops.slice_update(tokens, (0, end), guessed)
        return tokens, guessed, ops.stack(chances, axis=1), cache, generator

    def _read(self, name, token_ids, cache, index, position, where):
        """Float32 logits of tokens that stand from column `index` on."""
        offsets = ops.expand_dims(ops.arange(token_ids.shape[1], dtype="int32"), 0)
        logits, cache = self._models()[name].call_with_cache(
            token_ids,
            cache,
            index,
            padding_mask=where["padding_mask"],
            context_padding_mask=where["fixed"].get(f"{name}_mask"),
            positions=ops.maximum(position + offsets, 0),
        )
        return ops.cast(logits, "float32"), cache

    def _shift_cache(self, cache, before, by):
        """Keys and values where their tokens now stand."""

        def move(new, old):
            if new is old:
                return new  # of the source: the same at every step
            axis = len(new.shape) // 2  # of positions: (B, M), (B, M, D), (B, K, M, H)
            if new.shape[axis] != self.max_length:
                raise ValueError(
                    "Speculative decoding takes back tokens, so the cache must hold "
                    "every position; it cannot be that of a window or a recurrence, "
                    f"got {tuple(new.shape)}."
                )
            return ops.cond(ops.any(by != 0), lambda: shift(new, by, axis), lambda: new)

        return keras.tree.map_structure(move, cache, before)


def shift(x, by, axis=1):
    """Rows moved to the right along an axis, each by its own number.

    Args:
        x: (B, ..., M, ...).
        by: int32 (B, 1), to the left if negative.
        axis: int, that of M.

    Returns: like `x`; what comes in at an edge is a copy of the edge.
    """
    length = x.shape[axis]
    places = ops.expand_dims(ops.arange(length, dtype="int32"), 0) - by  # (B, M)
    places = ops.clip(places, 0, length - 1)
    others = [i for i in range(1, len(x.shape)) if i != axis]
    return ops.take_along_axis(x, ops.expand_dims(places, others), axis=axis)


def _of(table, token_ids):
    """Entries of (B, L, V) for tokens (B, L): float (B, L)."""
    found = ops.take_along_axis(table, ops.expand_dims(token_ids, 2), axis=2)
    return found[:, :, 0]
