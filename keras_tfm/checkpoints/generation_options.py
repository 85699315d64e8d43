"""How a checkpoint wants its texts to be made: first, last and forbidden tokens."""

from keras_tfm.checkpoints.source import fields_beside, open_source
from keras_tfm.generation import (
    ForcedToken,
    MinLength,
    NoRepeatNGram,
    RepetitionPenalty,
    SuppressTokens,
)


def generation_options(path_or_name):
    """Arguments for generation that a checkpoint's `generation_config.json` asks for.

    Read are first, last, forced and forbidden tokens, least lengths, and what keeps a
    text from repeating itself; without that file the fields of `config.json` count.
    The strategy, such as a number of beams, stays the caller's; so do forbidden words
    of several tokens.

    Args:
        path_or_name: see `load_pretrained`.

    Returns: dict with `start_token_id`, int or None, `stop_token_ids`, tuple of ints,
        and `processors`, tuple: arguments of `export.generation_to_saved_model`, and
        but for the first of `generation.generate`.

    Raises:
        CheckpointError: (a `ValueError`) see `load_pretrained`; a
            `generation_config.json` that is not JSON.
    """
    config = open_source(path_or_name).config
    fields = fields_beside(config, "generation_config.json") or config
    encodes = bool(config.get("is_encoder_decoder"))
    starts = (fields.get(f"{name}_token_id") for name in ("decoder_start", "bos"))
    start = next((i for i in starts if i is not None), None)
    return {
        "start_token_id": start if encodes else None,
        "stop_token_ids": _several(fields.get("eos_token_id")),
        "processors": tuple(_processors(fields, encodes)),
    }


def _processors(fields, encodes):
    """The processors; those that force a token are the last."""
    if (fields.get("repetition_penalty") or 1.0) != 1.0:
        yield RepetitionPenalty(float(fields["repetition_penalty"]))
    if fields.get("no_repeat_ngram_size"):
        yield NoRepeatNGram(int(fields["no_repeat_ngram_size"]))
    # A least length counts the start token; before a prompt it says nothing.
    least = (fields.get("min_length") or 0) - 1 if encodes else 0
    least = max(least, fields.get("min_new_tokens") or 0)
    if least > 0:
        yield MinLength(least)
    words = fields.get("bad_words_ids") or ()
    forbidden = [word[0] for word in words if len(word) == 1]
    forbidden += _several(fields.get("suppress_tokens"))
    if forbidden:
        yield SuppressTokens(tuple(forbidden))
    if encodes and fields.get("forced_bos_token_id") is not None:
        yield ForcedToken(fields["forced_bos_token_id"])
    if fields.get("forced_eos_token_id") is not None:
        yield ForcedToken(_several(fields["forced_eos_token_id"])[0], step=-1)


def _several(value):
    """A tuple of ints, of one, several or None."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (int(value),)
