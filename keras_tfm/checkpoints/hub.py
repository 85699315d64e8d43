"""Files of a name on the model hub."""

import pathlib

from keras_tfm.checkpoints.errors import CheckpointError


def fetch_from_hub(name, patterns):
    """Fetch files of a repository, or find them where they were fetched before.

    Args:
        name: str, such as "google-bert/bert-base-uncased".
        patterns: list of str, such as "*.json".

    Returns: `pathlib.Path` of the folder.

    Raises:
        CheckpointError: if `huggingface_hub` is not installed or gives nothing.
    """
    try:
        import huggingface_hub

        fetch = huggingface_hub.snapshot_download
        return pathlib.Path(fetch(name, allow_patterns=patterns))
    except Exception as error:  # of many kinds, all meaning: not fetched
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{name!r} is neither a file nor a folder here, and the model hub did "
            f"not give it: {reason}"
        ) from error
