"""Text generation with a cache, for any model that keeps the cache protocol.

The protocol: `init_cache(batch_size, max_length, context)` and
`call_with_cache(token_ids, cache, cache_index, padding_mask, context_padding_mask,
positions)`; an encoder-decoder also has `encode(source_token_ids)`.

Letters: B batch, S source length, T prompt length, M = T + new tokens, V vocabulary.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.generation.strategies import Greedy


def generate(
    model,
    token_ids,
    max_new_tokens,
    strategy=None,
    *,
    stop_token_ids=(),
    padding_mask=None,
):
    """Continue prompts, token by token.

    The prompt is read in one pass and the loop runs inside one compiled function,
    which is kept on the model and used again for the same settings.

    Args:
        model: such as `GPT` or `Seq2SeqTransformer`.
        token_ids: int (B, T) prompts; for an encoder-decoder a dict with
            `source_token_ids`, int (B, S), and `target_token_ids`, int (B, T), which
            hold at least a start token.
        max_new_tokens: int, tokens to add.
        strategy: `Greedy()` (unless given) or `Sample(...)`.
        stop_token_ids: ints; a row that has made one gets only 0 after it.
        padding_mask: bool (B, T), True for real tokens, which may be padded on
            either side; all real unless given.

    Returns: int32 NumPy array (B, T + max_new_tokens). Rows with padding come back
        padded on the left, so that prompt and continuation stand together.

    Raises:
        ValueError: an empty prompt, a row without a real token, `max_new_tokens`
            below 1, more tokens than the model has positions.

    Example:
        >>> model = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> keras_tfm.generation.generate(model, [[5, 7]], max_new_tokens=3).shape
        (1, 5)
    """
    strategy = Greedy() if strategy is None else strategy
    inputs = _inputs(token_ids, padding_mask)
    batch, length = inputs["token_ids"].shape
    _check(model, length, max_new_tokens)
    inputs["state"] = strategy.start(batch)
    stops = tuple(int(i) for i in stop_token_ids)
    generator = _generator(model, max_new_tokens, strategy, stops)
    return np.asarray(generator.predict_on_batch(inputs))


def _inputs(token_ids, padding_mask):
    """Prompts as arrays, padded on the left."""
    inputs = {}
    if isinstance(token_ids, dict):
        names = {"source_token_ids", "target_token_ids"}
        if set(token_ids) != names:
            raise ValueError(
                f"`token_ids` must be ids or a dict with {sorted(names)}, got the keys "
                f"{sorted(token_ids)}."
            )
        source = ops.convert_to_numpy(token_ids["source_token_ids"])
        inputs["source_token_ids"] = source.astype("int32")
        token_ids = token_ids["target_token_ids"]
    ids = np.asarray(ops.convert_to_numpy(token_ids), "int32")
    if ids.ndim != 2 or ids.shape[1] < 1:
        raise ValueError(
            f"Prompts must be ids of shape (B, T) with T > 0, got {ids.shape}."
        )
    mask = np.ones(ids.shape, bool)
    if padding_mask is not None:
        mask = np.asarray(ops.convert_to_numpy(padding_mask), bool)
        if mask.shape != ids.shape or not mask.any(axis=1).all():
            raise ValueError(
                "`padding_mask` must have the shape of the prompts and a real token in "
                f"every row, got {mask.shape} for {ids.shape}."
            )
        order = np.argsort(mask, axis=1, kind="stable")  # padding first
        ids = np.take_along_axis(np.where(mask, ids, 0), order, axis=1)
        mask = np.take_along_axis(mask, order, axis=1)
    return {**inputs, "token_ids": ids, "padding_mask": mask}


def _check(model, length, max_new_tokens):
    if max_new_tokens < 1:
        raise ValueError(f"`max_new_tokens` must be at least 1, got {max_new_tokens}.")
    limit = getattr(model, "max_sequence_length", None)
    if getattr(model, "position", "learned") != "learned":
        limit = None
    if limit is not None and length + max_new_tokens > limit:
        raise ValueError(
            f"A prompt of {length} and {max_new_tokens} new tokens are more than the "
            f"{limit} of `max_sequence_length`."
        )


def _generator(model, *settings):
    """The compiled loop for these settings, kept on the model.

    It is written past Keras's attribute tracking: it is no part of the model.
    """
    kept = vars(model).setdefault("_keras_tfm_generators", {})
    if settings not in kept:
        kept[settings] = Generator(model, *settings)
    return kept[settings]


class Generator(keras.Model):
    """The decoding loop as a model, so that Keras compiles it on every backend.

    Args:
        model: keeps the cache protocol.
        max_new_tokens: int.
        strategy: a strategy.
        stop_token_ids: tuple of ints.

    Call arguments:
        inputs: dict with `token_ids` and `padding_mask` (B, T), padded on the left,
            `state` of the strategy, and perhaps `source_token_ids` (B, S).

    Returns: int32 (B, M).
    """

    def __init__(self, model, max_new_tokens, strategy, stop_token_ids):
        super().__init__()
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.strategy = strategy
        self.stop_token_ids = stop_token_ids
        self.built = True

    def call(self, inputs):
        prompt, prompt_mask = inputs["token_ids"], inputs["padding_mask"]
        batch, length = ops.shape(prompt)
        new = self.max_new_tokens
        padding_mask = ops.pad(prompt_mask, ((0, 0), (0, new)), constant_values=True)
        counts = ops.sum(ops.cast(prompt_mask, "int32"), axis=1, keepdims=True)
        real_before = ops.cumsum(ops.cast(prompt_mask, "int32"), axis=1) - 1
        context = context_mask = None
        if "source_token_ids" in inputs:
            context, context_mask = self.model.encode(inputs["source_token_ids"])

        def forward(token_ids, cache, index, positions):
            logits, cache = self.model.call_with_cache(
                token_ids,
                cache,
                index,
                padding_mask=padding_mask,
                context_padding_mask=context_mask,
                positions=positions,
            )
            return logits[:, -1], cache

        cache = self.model.init_cache(batch, length + new, context)
        start = ops.convert_to_tensor(0, "int32")
        logits, cache = forward(prompt, cache, start, ops.maximum(real_before, 0))
        token, state = self.strategy.pick(logits, inputs["state"])
        tokens = ops.pad(prompt, ((0, 0), (0, new)))
        tokens = ops.slice_update(tokens, (0, length), ops.expand_dims(token, 1))

        def unfinished(step, token, tokens, finished, state, *leaves):
            running = ops.logical_not(ops.all(finished))
            return ops.logical_and(ops.less(step, new), running)

        def decode(step, token, tokens, finished, state, *leaves):
            cache_now = keras.tree.pack_sequence_as(cache, leaves)
            logits, cache_now = forward(
                ops.expand_dims(token, 1),
                cache_now,
                length + step - 1,
                counts + step - 1,
            )
            token, state = self.strategy.pick(logits, state)
            token = ops.where(finished, 0, token)
            tokens = ops.slice_update(
                tokens, (0, length + step), ops.expand_dims(token, 1)
            )
            finished = ops.logical_or(finished, self._stops(token))
            leaves = keras.tree.flatten(cache_now)
            return step + 1, token, tokens, finished, state, *leaves

        first = ops.convert_to_tensor(1, "int32")
        finished = self._stops(token)
        leaves = keras.tree.flatten(cache)
        return ops.while_loop(
            unfinished, decode, (first, token, tokens, finished, state, *leaves)
        )[2]

    def _stops(self, token):
        """Which of the tokens (B,) end their row."""
        stops = ops.zeros_like(token, dtype="bool")
        for stop in self.stop_token_ids:
            stops = ops.logical_or(stops, ops.equal(token, stop))
        return stops
