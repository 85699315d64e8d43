"""Writing PyTorch's zip files without PyTorch, for tests."""

import collections
import pickle
import sys
import types
import zipfile
from unittest import mock

STORAGES = {"float32": "FloatStorage", "int64": "LongStorage"}


def _rebuild_tensor_v2():
    """Stands for PyTorch's function, whose name is all that is written."""


class _Tensor:
    def __init__(self, storage, shape, strides):
        self.state = (storage, 0, shape, strides, False, collections.OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.state


class _Storage:
    def __init__(self, key, array):
        self.key, self.array = key, array


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        if not isinstance(obj, _Storage):
            return None
        cls = getattr(sys.modules["torch"], STORAGES[obj.array.dtype.name])
        return "storage", cls, obj.key, "cpu", obj.array.size


def write_pytorch(path, arrays, **more):
    """Write arrays as PyTorch does.

    Args:
        path: `pathlib.Path`.
        arrays: dict from name to float32 or int64 array.
        **more: other things to pickle beside them.
    """
    state, storages = collections.OrderedDict(more), []
    for name, array in arrays.items():
        strides = tuple(stride // array.itemsize for stride in array.strides)
        storages.append(_Storage(str(len(storages)), array))
        state[name] = _Tensor(storages[-1], array.shape, strides)
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("archive/data.pkl", "w") as file, _torch():
            _Pickler(file, protocol=2).dump(state)
        for storage in storages:
            archive.writestr(f"archive/data/{storage.key}", storage.array.tobytes())


def _torch():
    """Modules with the few names that are pickled."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    _rebuild_tensor_v2.__module__ = "torch._utils"
    torch._utils = utils
    return mock.patch.dict(sys.modules, {"torch": torch, "torch._utils": utils})
