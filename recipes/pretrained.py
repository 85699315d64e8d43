"""What the recipes that start from a checkpoint share (`--init`)."""

from keras_tfm import checkpoints, data, models


def build_backbone(config, vocabulary_size):
    """A fresh `Bert`, or the encoder that `--init` names.

    Args:
        config: a `Config` with `init`, `max_length` and the sizes of a `Bert`.
        vocabulary_size: int, of a fresh one.

    Returns: a backbone of `keras_tfm.models`, whose pooler is trained only if
        `config.pooling` reads it: Keras would warn, and weight decay shrink it.

    Raises:
        ValueError: no checkpoint, or one that is too short for `--max-length`.
    """
    same = {"dtype": config.policy, "remat": bool(config.remat)}
    if config.init:
        backbone = checkpoints.load_pretrained(config.init, task="backbone", **same)
    else:
        backbone = models.Bert(
            vocabulary_size, config.num_layers, config.num_heads, config.hidden_dim,
            config.intermediate_dim, max_sequence_length=config.max_length,
            dropout=config.dropout, **same,
        )  # fmt: skip
    limit = backbone.max_sequence_length
    if config.max_length > limit:
        raise ValueError(
            f"--max-length may be {limit} at most for {config.init}, got "
            f"{config.max_length}."
        )
    names = [layer.name for layer in backbone.layers]
    if config.pooling != "backbone" and "pooler" in names:
        backbone.get_layer("pooler").trainable = False
    return backbone


def make_tokenizer(config, texts, folder):
    """Read the tokenizer that `--init` names, or learn one, and write it.

    Args:
        config: a `Config` with `init` and `vocabulary_size`.
        texts: list of str to learn from.
        folder: `pathlib.Path` of the results; the file is `tokenizer.json`.

    Returns: tokenizer.
    """
    if config.init:
        tokenizer = checkpoints.load_tokenizer(config.init)
        checkpoints.save_tokenizer(tokenizer, folder)
        return tokenizer
    tokenizer = data.train_wordpiece(texts, config.vocabulary_size)
    data.save_tokenizer(tokenizer, folder / "tokenizer.json")
    return tokenizer


def describe_tokenizer(config):
    """Say in the model card how the tokenizer's file is read.

    Args:
        config: a `Config` with `init`.

    Returns: str.
    """
    part = "checkpoints" if config.init else "data"
    return f"`tokenizer.json` (`keras_tfm.{part}.load_tokenizer`)"
