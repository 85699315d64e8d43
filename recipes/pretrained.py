"""What the recipes that start from a checkpoint share (`--init`)."""

import pathlib

from keras_tfm import checkpoints, data


def folder_of(config):
    """The folder that `--init` names; one from the model hub is fetched.

    Args:
        config: a `Config` with `init`.

    Returns: `pathlib.Path`.

    Raises:
        ValueError: there is none.
    """
    path = pathlib.Path(config.init).expanduser()
    if path.exists():
        return path
    checkpoints.pretrained_report(config.init)  # fetches it, or says why not
    import huggingface_hub

    return pathlib.Path(
        huggingface_hub.snapshot_download(config.init, local_files_only=True)
    )


def load_backbone(config):
    """Read the encoder that `--init` names.

    Args:
        config: a `Config` with `init`, `max_length` and `remat`.

    Returns: a backbone of `keras_tfm.models`.

    Raises:
        ValueError: no checkpoint, or one that is too short for `--max-length`.
    """
    backbone = checkpoints.load_pretrained(
        folder_of(config),
        task="backbone",
        dtype=config.policy,
        remat=bool(config.remat),
    )
    limit = backbone.max_sequence_length
    if config.max_length > limit:
        raise ValueError(
            f"--max-length may be {limit} at most for {config.init}, got "
            f"{config.max_length}."
        )
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
        tokenizer = checkpoints.load_tokenizer(folder_of(config))
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
