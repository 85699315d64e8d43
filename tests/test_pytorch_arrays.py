"""PyTorch's files, read without PyTorch: both formats, and nothing is run."""

import json
import os
import pickle
import shutil
import sys
import types
import zipfile

import numpy as np
import pytest

from keras_tfm import checkpoints, models
from keras_tfm.checkpoints import CheckpointError
from keras_tfm.checkpoints.pytorch_arrays import read_pytorch
from keras_tfm.checkpoints.safetensors_arrays import read_safetensors
from tests.pytorch_files import write_pytorch
from tests.sources import ROOT

FOLDER = ROOT / "tests" / "golden" / "pytorch"
BASE = np.arange(24, dtype="float32") / 8
TABLE = BASE.reshape(4, 6)
EXPECTED = {
    "float32": TABLE,
    "transposed": TABLE.T,
    "rows": TABLE[1:3],
    "columns": TABLE[:, 1::2],
    "expanded": np.full((3, 2), BASE[5]),
    "scalar": np.float32(2.5),
    "empty": np.zeros((0, 3), "float32"),
    "parameter": BASE[:5],
    "float16": TABLE.astype("float16"),
    "bfloat16": TABLE,  # all of them have few digits
    "float64": BASE.astype("float64"),
    "int64": np.arange(-3, 4),
    "int32": np.arange(5, dtype="int32"),
    "uint8": np.arange(3, dtype="uint8"),
    "bool": np.array([True, False]),
}


class Attack:
    """A pickle of it runs a command, where pickles may."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("kind", ["new", "old"])
def test_all_kinds(kind):
    arrays = read_pytorch(FOLDER / f"{kind}.pt")
    assert list(arrays) == list(EXPECTED)
    for name, expected in EXPECTED.items():
        assert arrays.shape_of(name) == expected.shape
        assert arrays[name].dtype == expected.dtype
        np.testing.assert_array_equal(arrays[name], expected)
        arrays[name][...] = 0  # an array of its own
        np.testing.assert_array_equal(arrays[name], expected)


def test_our_writer(tmp_path):
    arrays = {"a": TABLE, "b.c": np.arange(3)}
    write_pytorch(tmp_path / "a.pt", arrays, epoch=3)
    back = read_pytorch(tmp_path / "a.pt")
    assert list(back) == ["a", "b.c"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


@pytest.mark.parametrize("old", [False, True])
def test_code_is_named_and_not_run(old, tmp_path):
    path, mark = tmp_path / "model.bin", tmp_path / "mark"
    if old:
        pickles = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, Attack(mark)]
        path.write_bytes(b"".join(pickle.dumps(x, protocol=2) for x in pickles))
    else:
        write_pytorch(path, {"a": TABLE}, more=Attack(mark))
    message = rf"model\.bin has code in it: .* {os.mkdir.__module__}\.mkdir"
    with pytest.raises(CheckpointError, match=message):
        read_pytorch(path)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["new", "old"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95, 0.999])
def test_cut(kind, share, tmp_path):
    whole = (FOLDER / f"{kind}.pt").read_bytes()
    path = tmp_path / "model.bin"
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match=r"model\.bin"):
        read_pytorch(path)


def test_foreign_files(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="not a PyTorch file"):
        read_pytorch(path)
    path.write_bytes(pickle.dumps({"a": 1}, protocol=2))
    with pytest.raises(CheckpointError, match="a pickle, but not one of PyTorch"):
        read_pytorch(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(CheckpointError, match="a zip file, but not one of PyTorch"):
        read_pytorch(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", "a")
    with pytest.raises(CheckpointError, match=r"a/data\.pkl is compressed"):
        read_pytorch(path)


def test_numbers_that_are_not_there(tmp_path):
    whole, path = tmp_path / "whole.bin", tmp_path / "model.bin"
    write_pytorch(whole, {"a": TABLE, "b": BASE})
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content[:-4] if name.endswith("data/1") else content)
    with pytest.raises(CheckpointError, match="lacks the numbers of its storage 1"):
        read_pytorch(path)


@pytest.fixture
def bert(tmp_path):
    model = models.Bert(23, 2, 2, 6, 10, max_sequence_length=11)
    checkpoints.save_pretrained(model, tmp_path / "bert")
    return model, tmp_path / "bert"


def test_folders(bert):
    model, folder = bert
    arrays = dict(read_safetensors(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    write_pytorch(folder / "pytorch_model.bin", arrays)
    check_equal(checkpoints.load_pretrained(folder), model)
    check_equal(checkpoints.load_pretrained(folder / "pytorch_model.bin"), model)
    (folder / "pytorch_model.bin").unlink()
    files = {n: f"part-{i % 2}.bin" for i, n in enumerate(arrays)}
    for file in set(files.values()):
        part = {n: arrays[n] for n in arrays if files[n] == file}
        write_pytorch(folder / file, part)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    check_equal(checkpoints.load_pretrained(folder), model)
    shutil.copy(folder / "part-0.bin", folder / "part-1.bin")
    with pytest.raises(CheckpointError, match="which no file holds"):
        checkpoints.load_pretrained(folder)


def check_equal(model, expected):
    for one, other in zip(model.weights, expected.weights):
        assert one.path == other.path
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("safe", [True, False])
def test_names_on_the_hub(safe, bert, monkeypatch):
    model, folder = bert
    if not safe:
        arrays = dict(read_safetensors(folder / "model.safetensors"))
        (folder / "model.safetensors").unlink()
    asked = []

    def snapshot_download(name, allow_patterns):
        asked.append((name, any("bin" in pattern for pattern in allow_patterns)))
        if asked[-1][1]:
            write_pytorch(folder / "pytorch_model.bin", arrays)
        return str(folder)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    check_equal(checkpoints.load_pretrained("some/name"), model)
    name = ("some/name", False)
    assert asked == ([name] if safe else [name, ("some/name", True)])
