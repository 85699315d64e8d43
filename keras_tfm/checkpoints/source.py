"""Where a checkpoint lies: a folder, a file or a name on the model hub."""

import dataclasses
import json
import pathlib

from keras_tfm.checkpoints.arrays import Arrays, joined
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.family import Config
from keras_tfm.checkpoints.gguf_arrays import read_gguf
from keras_tfm.checkpoints.hub import fetch_from_hub
from keras_tfm.checkpoints.onnx_config import read_onnx
from keras_tfm.checkpoints.pytorch_arrays import read_pytorch
from keras_tfm.checkpoints.safetensors_arrays import read_safetensors

# Files of a folder, the best first.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
READERS = {
    ".safetensors": read_safetensors,
    ".bin": read_pytorch,
    ".pt": read_pytorch,
    ".pth": read_pytorch,
}
FETCHED = ["*.json", "*.txt", "*.model", "*.safetensors"]  # of a name on the hub
FETCHED_ELSE = ["pytorch_model*.bin"]  # where there is no safer file


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkpoint that was found: its config, and its arrays by name."""

    label: str
    config: Config
    arrays: Arrays


def open_source(path_or_name):
    """Find a checkpoint and read its config and the names of its arrays.

    Args:
        path_or_name: str or `pathlib.Path`, a folder, a file, or a name such as
            "google-bert/bert-base-uncased" that `huggingface_hub` can fetch.

    Returns: `Source`.

    Raises:
        CheckpointError: if there is nothing, no config, or a file is cut.
    """
    path = pathlib.Path(path_or_name).expanduser()
    if not path.exists():
        path = _from_hub(str(path_or_name))
    if path.is_dir() and not (path / "config.json").is_file():
        files = sorted(path.glob("*.gguf"))  # such a file has its config inside
        path = files[0] if len(files) == 1 else path
    if path.suffix == ".gguf":
        return Source(str(path), *read_gguf(path))
    if path.is_dir():
        return Source(str(path), _config(path), _arrays_of_folder(path))
    if path.suffix == ".onnx":
        arrays, config_of_graph = read_onnx(path)
        beside = (path.parent / "config.json").is_file()
        config = _config(path.parent) if beside else config_of_graph()
        return Source(str(path), config, arrays)
    return Source(str(path), _config(path.parent), _arrays_of_file(path))


def fields_beside(config, name):
    """The fields of another JSON file beside a config, none if there is no such file.

    Args:
        config: `Config`.
        name: str, of the file.

    Returns: dict.

    Raises:
        CheckpointError: if it is not JSON.
    """
    path = pathlib.Path(config.source).parent / name
    return _read_json(path) if path.is_file() else {}


def _config(folder):
    """The fields of a folder's `config.json`."""
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} has no config.json.")
    return Config(_read_json(path), str(path))


def _read_json(path):
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}.") from error


def _arrays_of_folder(folder):
    for name in WEIGHTS:
        if (folder / name).is_file():
            return _arrays_of_file(folder / name)
    for name in INDICES:
        if (folder / name).is_file():
            return _arrays_of_index(folder / name)
    raise CheckpointError(f"{folder} has none of {', '.join(WEIGHTS + INDICES)}.")


def _arrays_of_index(path):
    """The arrays of a checkpoint cut into several files."""
    names = json.loads(path.read_text("utf-8"))["weight_map"]
    files = sorted(set(names.values()))
    absent = [file for file in files if not (path.parent / file).is_file()]
    if absent:
        raise CheckpointError(f"{path} names {absent[0]}, which is not there.")
    arrays = joined([_arrays_of_file(path.parent / file) for file in files])
    lacking = [name for name in names if name not in arrays]
    if lacking:
        raise CheckpointError(f"{path} names {lacking[0]}, which no file holds.")
    return arrays


def _arrays_of_file(path):
    if path.suffix not in READERS:
        raise CheckpointError(
            f"{path} is not a checkpoint: known are {', '.join(READERS)}, .gguf and "
            ".onnx."
        )
    return READERS[path.suffix](path)


def _from_hub(name):
    """The folder of a checkpoint fetched from the model hub."""
    folder = fetch_from_hub(name, FETCHED)
    if not any(folder.glob("*.safetensors")):
        folder = fetch_from_hub(name, FETCHED_ELSE)
    return folder
