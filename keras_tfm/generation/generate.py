"""Text generation with a cache, for any model that keeps the cache protocol.

The protocol: `init_cache(batch_size, max_length, context)` and
`call_with_cache(token_ids, cache, cache_index, padding_mask, context_padding_mask,
positions)`; an encoder-decoder also has `encode(source_token_ids)`.

Letters: B batch, S source length, T prompt length, n results a prompt.
"""

import dataclasses
import warnings

import keras
import numpy as np

from keras_tfm.generation.prompts import fit_to_buckets, read_prompts
from keras_tfm.generation.strategies import Greedy


@dataclasses.dataclass(frozen=True)
class Generated:
    """Results and their scores.

    Args:
        token_ids: int32 NumPy array (B, n, T + max_new_tokens), the best first.
        scores: float32 NumPy array (B, n), sums of the log-probabilities that the model
            gives the new tokens, before processors and temperature. Those of
            `BeamSearch` are after the processors and its length penalty.
    """

    token_ids: np.ndarray
    scores: np.ndarray


def generate(
    model,
    token_ids,
    max_new_tokens,
    strategy=None,
    processors=(),
    stop_token_ids=(),
    padding_mask=None,
    jit_compile=True,
):
    """Continue prompts, token by token.

    The prompt is read in one pass and the loop runs inside one compiled function,
    which is kept on the model and used again for the same settings and like lengths.

    Args:
        model: such as `GPT` or `Seq2SeqTransformer`.
        token_ids: int (B, T) prompts; for an encoder-decoder a dict with
            `source_token_ids`, int (B, S), and `target_token_ids`, int (B, T), which
            hold at least a start token.
        max_new_tokens: int, tokens to add.
        strategy: `Greedy()` (unless given), `Sample(...)`, `BeamSearch(...)` or
            `Speculative(...)`.
        processors: callables (logits, history) -> logits, such as `MinLength`, applied
            in their order. Where they leave no token at all, the model's own best
            is taken and a warning says so.
        stop_token_ids: ints; a row that has made one gets only 0 after it.
        padding_mask: bool (B, T), True for real tokens, which may be padded on
            either side; all real unless given.
        jit_compile: bool, compile the loop with XLA. Without, the first call is over
            sooner and the others take longer.

    Returns: int32 NumPy array (B, T + max_new_tokens), with `num_return_sequences`
        (B, n, T + max_new_tokens). Rows with padding come back padded on the left, so
        that prompt and continuation stand together.

    Raises:
        ValueError: an empty prompt, a row without a real token, ids out of range,
            `max_new_tokens` below 1, more tokens than the model has positions.

    Example:
        >>> model = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> keras_tfm.generation.generate(model, [[5, 7]], max_new_tokens=3).shape
        (1, 5)
    """
    results = generate_with_scores(
        model,
        token_ids,
        max_new_tokens,
        strategy,
        processors,
        stop_token_ids,
        padding_mask,
        jit_compile,
    ).token_ids
    several = getattr(strategy, "num_return_sequences", None) is not None
    return results if several else results[:, 0]


def generate_with_scores(
    model,
    token_ids,
    max_new_tokens,
    strategy=None,
    processors=(),
    stop_token_ids=(),
    padding_mask=None,
    jit_compile=True,
):
    """Continue prompts and say how probable the continuations are.

    Args:
        model: see `generate`, as all that follow.
        token_ids: int (B, T) or a dict.
        max_new_tokens: int.
        strategy: a strategy or None.
        processors: callables.
        stop_token_ids: ints.
        padding_mask: bool (B, T) or None.
        jit_compile: bool.

    Returns: `Generated`.

    Raises:
        ValueError: as `generate`.

    Example:
        >>> model = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> beams = keras_tfm.generation.BeamSearch(4, num_return_sequences=3)
        >>> results = keras_tfm.generation.generate_with_scores(
        ...     model, [[5, 7]], 3, beams
        ... )
        >>> results.token_ids.shape, results.scores.shape
        ((1, 3, 5), (1, 3))
    """
    prepared = prepare(
        model, token_ids, max_new_tokens, strategy, processors, stop_token_ids,
        padding_mask,
    )  # fmt: skip
    generator = compiled(
        Generator, model, jit_compile, prepared.inputs, *prepared.settings
    )
    outputs = generator.predict_on_batch(prepared.inputs)
    warn_if_blocked(outputs["blocked"])
    last = prepared.inputs["token_ids"].shape[1] + max_new_tokens
    tokens = outputs["token_ids"][:, :, prepared.padding : last]
    return Generated(np.asarray(tokens), np.asarray(outputs["scores"]))


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What the compiled loop is given.

    Args:
        inputs: dict of arrays for `Decoder.start`.
        settings: tuple of what `Decoder` takes after the model.
        padding: int, columns put before the prompts to reach a length bucket.
    """

    inputs: dict
    settings: tuple
    padding: int


def prepare(
    model,
    token_ids,
    max_new_tokens,
    strategy,
    processors,
    stop_token_ids,
    padding_mask,
):
    """Check the arguments of `generate` and bring them into the loop's form.

    Args:
        model: see `generate`, as all that follow.
        token_ids: int (B, T) or a dict.
        max_new_tokens: int.
        strategy: a strategy or None.
        processors: callables.
        stop_token_ids: ints.
        padding_mask: bool (B, T) or None.

    Returns: `Prepared`.

    Raises:
        ValueError: as `generate`.
    """
    strategy = Greedy() if strategy is None else strategy
    prompts = read_prompts(model, token_ids, padding_mask)
    inputs, max_length = fit_to_buckets(
        model,
        prompts,
        max_new_tokens,
        getattr(strategy, "spare", 0),
        getattr(strategy, "draft", None),
    )
    inputs["limit"] = np.array(max_new_tokens, "int32")
    inputs["seed"] = np.array(getattr(strategy, "seed", 0), "int32")
    stops = tuple(int(i) for i in stop_token_ids)
    return Prepared(
        inputs,
        (max_length, strategy, tuple(processors), stops),
        inputs["token_ids"].shape[1] - prompts["token_ids"].shape[1],
    )


def warn_if_blocked(blocked):
    """Say it if the processors left no token somewhere.

    Args:
        blocked: bool (B,).
    """
    if np.any(blocked):
        rows = np.flatnonzero(blocked).tolist()
        warnings.warn(
            f"The processors left no token at some step of the rows {rows}; the "
            "model's own best was taken there.",
            stacklevel=3,
        )


def compiled(kind, model, jit_compile, inputs, *settings):
    """The compiled model for these settings and shapes, kept on the model.

    It is written past Keras's attribute tracking: it is no part of the model. Where a
    processor cannot be a key (an unhashable callable), it is made anew.

    Args:
        kind: class, made of the model and the settings.
        model: keeps the cache protocol.
        jit_compile: bool, with XLA.
        inputs: dict of arrays.
        *settings: of `Decoder`.

    Returns: a `kind`.
    """
    kept = vars(model).setdefault("_keras_tfm_generators", {})
    shapes = tuple((name, np.shape(value)) for name, value in sorted(inputs.items()))
    key = (kind, jit_compile, shapes, *settings)
    try:
        hash(key)
    except TypeError:
        return kind(model, jit_compile, *settings)
    if key not in kept:
        kept[key] = kind(model, jit_compile, *settings)
    return kept[key]


def decoder_of(model, max_length, strategy, processors, stop_token_ids):
    """The loop that a strategy asks for.

    Args:
        model: keeps the cache protocol.
        max_length: int.
        strategy: a strategy.
        processors: callables.
        stop_token_ids: ints.

    Returns: a `Decoder`, or what has its methods.
    """
    kind = strategy.decoder
    return kind(model, max_length, strategy, processors, stop_token_ids)


class Compiled(keras.Model):
    """A model and the settings of what is done with it, for Keras to compile.

    Args:
        model: keeps the cache protocol.
        jit_compile: bool, with XLA.
        *settings: of `Decoder`, or what a sub-class takes.
    """

    def __init__(self, model, jit_compile, *settings):
        super().__init__()
        self.jit_compile = jit_compile
        self.model = model
        drafts = [getattr(setting, "draft", None) for setting in settings]
        self.drafts = [draft for draft in drafts if draft is not None]
        self.settings = settings
        self.built = True


class Generator(Compiled):
    """The decoding loop, compiled on every backend.

    Call arguments:
        inputs: see `Decoder.start`.

    Returns: see `Decoder.finish`.
    """

    def call(self, inputs):
        decoder = decoder_of(self.model, *self.settings)
        fixed, moving = decoder.start(inputs)
        return decoder.finish(fixed, decoder.advance(fixed, moving, inputs["limit"]))
