"""Named sizes as plain numbers, and how many parameters they have.

Letters: V vocabulary, T positions, D hidden_dim, F = 4 D, L layers.
"""

_BERT = {"vocabulary_size": 30522, "max_sequence_length": 512}
_GPT2 = {"vocabulary_size": 50257, "max_sequence_length": 1024}
_GPT3 = {"vocabulary_size": 50257, "max_sequence_length": 2048}


def _numbers(num_layers, num_heads, hidden_dim, **more):
    return {
        "num_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": 4 * hidden_dim,
        **more,
    }


BERT_SIZES = {
    "tiny": _numbers(2, 2, 128, **_BERT),
    "mini": _numbers(4, 4, 256, **_BERT),
    "small": _numbers(4, 8, 512, **_BERT),
    "medium": _numbers(8, 8, 512, **_BERT),
    "base": _numbers(12, 12, 768, **_BERT),
    "large": _numbers(24, 16, 1024, **_BERT),
}
GPT_SIZES = {
    "gpt2": _numbers(12, 12, 768, **_GPT2),
    "gpt2-medium": _numbers(24, 16, 1024, **_GPT2),
    "gpt2-large": _numbers(36, 20, 1280, **_GPT2),
    "gpt2-xl": _numbers(48, 25, 1600, **_GPT2),
    "gpt3-175b": _numbers(96, 96, 12288, **_GPT3),
}
VIT_SIZES = {
    "tiny": _numbers(12, 3, 192),
    "small": _numbers(12, 6, 384),
    "base": _numbers(12, 12, 768),
    "large": _numbers(24, 16, 1024),
    "huge": _numbers(32, 16, 1280),
}
SEQ2SEQ_SIZES = {
    "base": {**_numbers(6, 8, 512), "intermediate_dim": 2048},
    "big": {**_numbers(6, 16, 1024), "intermediate_dim": 4096},
}


def numbers_of(sizes, size):
    """The constructor arguments of a named size.

    Args:
        sizes: one of the tables of this file.
        size: string.

    Raises:
        ValueError: if the table has no such size.
    """
    if size not in sizes:
        raise ValueError(f"`size` must be one of {sorted(sizes)}, got {size!r}.")
    return dict(sizes[size])


def parameter_count(size):
    """Parameters of a named BERT or GPT, by arithmetic alone.

    Args:
        size: "gpt2", ..., "gpt3-175b", or "bert-tiny", ..., "bert-large".

    Returns: int, equal to `count_params()` of the model.

    Raises:
        ValueError: if there is no such size.

    Example:
        >>> keras_tfm.models.parameter_count("gpt3-175b")
        174604259328
    """
    is_bert = size.startswith("bert-")
    if is_bert:
        numbers = numbers_of(BERT_SIZES, size.removeprefix("bert-"))
    else:
        numbers = numbers_of(GPT_SIZES, size)
    hidden_dim, intermediate_dim = numbers["hidden_dim"], numbers["intermediate_dim"]
    norm = 2 * hidden_dim
    attention = 4 * (hidden_dim + 1) * hidden_dim
    feed_forward = 2 * hidden_dim * intermediate_dim + intermediate_dim + hidden_dim
    block = attention + feed_forward + 2 * norm
    rows = numbers["vocabulary_size"] + numbers["max_sequence_length"]
    total = rows * hidden_dim + numbers["num_layers"] * block + norm
    if is_bert:
        segments, pooler = 2 * hidden_dim, (hidden_dim + 1) * hidden_dim
        total += segments + pooler
    return total
