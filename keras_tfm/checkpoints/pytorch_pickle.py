"""The pickles inside PyTorch's files, read as data: names and places of tensors.

A pickle may call any function by name. Here it can name only what tensors need, and
gets inert stand-ins for it; any other name ends the reading before anything is run.
"""

import collections
import dataclasses
import math
import pickle

import numpy as np

from keras_tfm.checkpoints.errors import CheckpointError

DTYPES = {  # PyTorch's class of a storage: NumPy's name, little-endian
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}


@dataclasses.dataclass(frozen=True)
class Storage:
    """A run of numbers in the file.

    Args:
        key: str, its name there.
        dtype: one of `DTYPES`.
        size: int, how many numbers.
    """

    key: str
    dtype: str
    size: int

    @property
    def stored(self):
        """NumPy's dtype of the bytes in the file."""
        return np.dtype("<u2" if self.dtype == "bfloat16" else self.dtype)

    @property
    def num_bytes(self):
        """int."""
        return self.size * self.stored.itemsize


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A strided view of a storage; all in numbers, not bytes.

    Args:
        storage: `Storage`.
        offset: int.
        shape: tuple of int.
        strides: tuple of int.
    """

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple

    @property
    def span(self):
        """How many numbers lie from the first to the last."""
        if 0 in self.shape:
            return 0
        steps = ((size - 1) * step for size, step in zip(self.shape, self.strides))
        return 1 + sum(steps)

    def fits(self):
        """Whether it lies within its storage."""
        numbers = (self.offset, *self.shape, *self.strides)
        return (
            len(self.shape) == len(self.strides)
            and all(isinstance(number, int) and number >= 0 for number in numbers)
            and self.offset + self.span <= self.storage.size
            and math.prod(self.shape) <= self.storage.size
        )


def unpickle(file, path):
    """The next pickle of a file, with `Tensor`s in place of tensors.

    Args:
        file: binary file.
        path: for messages.

    Returns: pair of the object and a dict from key to `Storage`.

    Raises:
        CheckpointError: if the pickle asks for code, or is none.
    """
    unpickler = _Unpickler(file, path)
    try:
        return unpickler.load(), unpickler.storages
    except CheckpointError:
        raise
    except Exception as error:  # a pickle that is none fails in many ways
        raise CheckpointError(
            f"{path} is not a whole PyTorch file: {type(error).__name__}: {error}."
        ) from error


class _Unpickler(pickle.Unpickler):
    """Knows the names that tensors need, and no other."""

    def __init__(self, file, path):
        super().__init__(file, encoding="utf-8")
        self.path = path
        self.storages = {}

    def find_class(self, module, name):
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if (module, name) not in _ALLOWED:
            raise CheckpointError(
                f"{self.path} has code in it: its pickle asks for {module}.{name}, "
                "which no tensor needs. Nothing of it was run."
            )
        return _ALLOWED[module, name]

    def persistent_load(self, identity):
        """A storage: ("storage", class, key, device, size), in old files a view too."""
        kind, dtype, key, _, size, *view = identity
        if kind != "storage" or any(view):
            raise CheckpointError(f"{self.path} holds a {kind!r}, not only tensors.")
        return self.storages.setdefault(str(key), Storage(str(key), dtype, size))


def _tensor(storage, offset, shape, strides, *_):
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor, *_):
    return tensor


_ALLOWED = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
}
