"""Golden PyTorch files in both formats.

    python tests/reference/pytorch_files.py

Needs torch; writes tests/golden/pytorch/{new,old}.pt, a zip archive and what PyTorch
wrote before 1.6, which tests/test_pytorch_arrays.py reads without it. Both hold the
same tensors of every kind, some of them views of one storage.
"""

import collections
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parents[1] / "golden" / "pytorch"


def tensors():
    """Tensors by name, as in the state of a module."""
    base = torch.arange(24, dtype=torch.float32) / 8
    table = base.reshape(4, 6)
    state = collections.OrderedDict(
        float32=table,
        transposed=table.T,
        rows=table[1:3],
        columns=table[:, 1::2],
        expanded=base[5:6].expand(3, 2),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(base[:5].clone()),
        float16=table.half(),
        bfloat16=table.bfloat16(),
        float64=base.double(),
        int64=torch.arange(-3, 4),
        int32=torch.arange(5, dtype=torch.int32),
        uint8=torch.arange(3, dtype=torch.uint8),
        bool=torch.tensor([True, False]),
    )
    state._metadata = collections.OrderedDict({"": {"version": 1}})
    return state


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, is_zip in (("new", True), ("old", False)):
        torch.save(
            tensors(), FOLDER / f"{name}.pt", _use_new_zipfile_serialization=is_zip
        )
