"""Reading PyTorch's `.bin` and `.pt` files, without PyTorch.

Two formats: a zip archive (PyTorch 1.6 and later), and before it pickles followed by
the storages. Both end in the same two tables: tensors by name, and where each storage
begins in the file, so arrays are read when they are asked for.
"""

import collections.abc
import struct
import zipfile

import numpy as np

from keras_tfm.checkpoints.arrays import Arrays
from keras_tfm.checkpoints.errors import CheckpointError
from keras_tfm.checkpoints.pytorch_pickle import Tensor, unpickle

MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the old format
LOCAL_HEADER = struct.Struct("<26x2H")  # of a zip entry: lengths of name and extra
INSIDE = ("state_dict", "model_state_dict")  # where training loops put the weights


def read_pytorch(path):
    """The arrays of one PyTorch file.

    Args:
        path: `pathlib.Path`.

    Returns: `Arrays`; bfloat16 ones are given as float32.

    Raises:
        CheckpointError: if the file is cut, is something else or has code in it.
    """
    with open(path, "rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        state, places = (_open_zip if is_zip else _open_old)(file, path)
    tensors = _tensors(state, path)
    for name, tensor in tensors.items():
        if not tensor.fits() or tensor.storage.key not in places:
            raise CheckpointError(f"{path}: {name} lies outside of what the file has.")

    def read(name):
        tensor = tensors[name]
        return _read(path, tensor, places[tensor.storage.key])

    return Arrays({name: tensor.shape for name, tensor in tensors.items()}, read)


def _tensors(state, path):
    """The tensors of a dict by name; those of a model inside a training state."""
    for key in INSIDE:
        if isinstance(state, collections.abc.Mapping):
            state = state.get(key, state)
    if not isinstance(state, collections.abc.Mapping):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, not arrays.")
    return {str(k): v for k, v in state.items() if isinstance(v, Tensor)}


def _read(path, tensor, place):
    """One tensor as an array of its own."""
    stored = tensor.storage.stored
    start = place + tensor.offset * stored.itemsize
    flat = np.fromfile(path, stored, count=tensor.span, offset=start)
    if len(flat) < tensor.span:
        raise CheckpointError(f"{path} was cut while it was read.")
    if tensor.storage.dtype == "bfloat16":  # the upper half of a float32
        flat = (flat.astype("<u4") << 16).view("<f4")
    steps = [step * flat.itemsize for step in tensor.strides]
    return np.lib.stride_tricks.as_strided(flat, tensor.shape, steps).copy()


def _open_zip(file, path):
    """The pickled object of a zip archive, and the places of its storages."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{path} is not a whole zip file: {error}.") from error
    pickles = [name for name in entries if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise CheckpointError(f"{path} is a zip file, but not one of PyTorch.")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}byteorder" in entries:
        file.seek(_place(file, entries[f"{root}byteorder"], path))
        _check_order(file.read(6) == b"little", path)
    file.seek(_place(file, entries[pickles[0]], path))
    state, storages = unpickle(file, path)
    places = {}
    for key, storage in storages.items():
        entry = entries.get(f"{root}data/{key}")
        if entry is None or entry.file_size < storage.num_bytes:
            raise CheckpointError(f"{path} lacks the numbers of its storage {key}.")
        places[key] = _place(file, entry, path)
    return state, places


def _place(file, entry, path):
    """Where the bytes of a zip entry begin, which are stored as they are."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise CheckpointError(f"{path}: {entry.filename} is compressed.")
    file.seek(entry.header_offset)
    lengths = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    return file.tell() + sum(lengths)


def _open_old(file, path):
    """The same of a file from before the zip format.

    Pickles of the magic number, the version, the system, the object and the keys of
    the storages; then each storage after its size.
    """
    if file.read(2) != b"\x80\x02":  # of every pickle that PyTorch wrote
        raise CheckpointError(f"{path} is not a PyTorch file.")
    file.seek(0)
    if unpickle(file, path)[0] != MAGIC:
        raise CheckpointError(f"{path} is a pickle, but not one of PyTorch.")
    _, system = unpickle(file, path)[0], unpickle(file, path)[0]
    _check_order(system["little_endian"], path)
    state, storages = unpickle(file, path)
    keys, _ = unpickle(file, path)
    end = path.stat().st_size
    places = {}
    for key in keys:
        storage, start = storages[str(key)], file.tell() + 8
        if start + storage.num_bytes > end:
            raise CheckpointError(f"{path} is cut: it lacks the storage {key}.")
        places[str(key)] = start
        file.seek(start + storage.num_bytes)
    return state, places


def _check_order(is_little, path):
    if not is_little:
        raise CheckpointError(f"{path} was written by a big-endian machine.")
