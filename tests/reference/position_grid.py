"""Golden position grids: timm's resampled tables and its sine-cosine grid.

    python tests/reference/position_grid.py

Needs torch and timm; writes tests/golden/position_grid.npz.
"""

import pathlib

import numpy as np
import torch
from timm.layers import build_sincos2d_pos_embed, resample_abs_pos_embed

# (old grid, new grid, number of class tokens)
GRIDS = [
    ((14, 14), (7, 20), 1),
    ((3, 5), (6, 10), 0),
    ((4, 6), (3, 2), 2),
    ((2, 2), (5, 3), 1),
]


def golden():
    """Arrays by name."""
    random = np.random.default_rng(0)
    arrays = {}
    for number, (old, new, class_tokens) in enumerate(GRIDS):
        table = random.normal(size=(class_tokens + old[0] * old[1], 3))
        table = table.astype("float32")
        arrays[f"{number}/grids"] = np.array([*old, *new, class_tokens])
        arrays[f"{number}/table"] = table
        for interpolation in ("bicubic", "bilinear"):
            for antialias in (True, False):
                resized = resample_abs_pos_embed(
                    torch.tensor(table[None]),
                    new_size=list(new),
                    old_size=list(old),
                    num_prefix_tokens=class_tokens,
                    interpolation=interpolation,
                    antialias=antialias,
                )
                kind = "" if antialias else "/sharp"
                arrays[f"{number}/{interpolation}{kind}"] = resized.numpy()[0]
    arrays["sincos"] = build_sincos2d_pos_embed([3, 5], dim=16).numpy()
    return arrays


if __name__ == "__main__":
    path = pathlib.Path(__file__).resolve().parents[1] / "golden" / "position_grid.npz"
    np.savez_compressed(path, **golden())
