"""Tokens and text as they come.

Letters: B batch, T prompt length.
"""

import numpy as np

from keras_tfm.generation.decoder import Decoder
from keras_tfm.generation.generate import Compiled, compiled, prepare, warn_if_blocked
from keras_tfm.generation.strategies import OneRow


def stream(
    model,
    token_ids,
    max_new_tokens,
    strategy=None,
    processors=(),
    stop_token_ids=(),
    padding_mask=None,
    detokenize=None,
    jit_compile=True,
):
    """Continue prompts, giving each token as soon as it is made.

    Args:
        model: see `generate`, as all up to `padding_mask`.
        token_ids: int (B, T) or a dict.
        max_new_tokens: int.
        strategy: `Greedy()` (unless given) or `Sample(...)`.
        processors: callables.
        stop_token_ids: ints.
        padding_mask: bool (B, T) or None.
        detokenize: function from a list of token rows (arrays of ints) to a list of
            str, such as `lambda rows: data.decode(tokenizer, rows)`; None: give ids.
        jit_compile: bool, see `generate`.

    Returns: iterator over steps: int32 NumPy arrays (B,), the same tokens as
        `generate` gives; with `detokenize` lists of B str, the text that is new in
        each row (a character of several tokens comes when it is whole).

    Raises:
        ValueError: as `generate`; another strategy.

    Example:
        >>> model = keras_tfm.models.GPT(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, max_sequence_length=16,
        ... )
        >>> steps = keras_tfm.generation.stream(model, [[5, 7]], max_new_tokens=3)
        >>> [step.shape for step in steps]
        [(1,), (1,), (1,)]
    """
    prepared = prepare(
        model, token_ids, max_new_tokens, strategy, processors, stop_token_ids,
        padding_mask,
    )  # fmt: skip
    if not isinstance(prepared.settings[1], OneRow):
        raise ValueError(
            "`strategy` must make one token after the other and take none back, as "
            f"Greedy and Sample do, got {prepared.settings[1]}."
        )
    steps = _tokens(model, prepared, max_new_tokens, jit_compile)
    if detokenize is None:
        return steps
    return _texts(steps, detokenize, frozenset(stop_token_ids))


def _tokens(model, prepared, max_new_tokens, jit_compile):
    start, advance = (
        compiled(kind, model, jit_compile, prepared.inputs, *prepared.settings)
        for kind in (Start, Advance)
    )
    length = prepared.inputs["token_ids"].shape[1]
    fixed, moving = start.predict_on_batch(prepared.inputs)
    for step in range(max_new_tokens):
        until = np.array(step + 1, "int32")
        moving = advance.predict_on_batch(
            {"fixed": fixed, "moving": moving, "until": until}
        )
        yield np.array(moving["token_ids"][:, length + step])
        if np.all(moving["finished"]):
            break
    warn_if_blocked(moving["blocked"])


def _texts(steps, detokenize, stops):
    """What each step adds to the text of each row."""
    made = shown = finished = None
    for tokens in steps:
        if made is None:
            made, shown = [[] for _ in tokens], ["" for _ in tokens]
            finished = [False for _ in tokens]
        news = []
        for i, token in enumerate(tokens.tolist()):
            finished[i] = finished[i] or token in stops
            if not finished[i]:
                made[i].append(token)
            text = detokenize([np.array(made[i], "int32")])[0] if made[i] else ""
            whole = text.rstrip("\ufffd")  # the bytes of a character not yet whole
            news.append(whole[len(shown[i]) :])
            shown[i] = whole if len(whole) > len(shown[i]) else shown[i]
        yield news


class Start(Compiled):
    """`Decoder.start`, compiled.

    Call arguments:
        inputs: see `Decoder.start`.

    Returns: see `Decoder.start`.
    """

    def call(self, inputs):
        return Decoder(self.model, *self.settings).start(inputs)


class Advance(Compiled):
    """`Decoder.advance`, compiled.

    Call arguments:
        inputs: dict of `fixed`, `moving` and `until`.

    Returns: see `Decoder.advance`.
    """

    def call(self, inputs):
        decoder = Decoder(self.model, *self.settings)
        return decoder.advance(inputs["fixed"], inputs["moving"], inputs["until"])
