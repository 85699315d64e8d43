"""Whether Hugging Face Transformers loads what `save_pretrained` wrote.

    python tests/reference/check_saved.py FOLDER ...

Needs torch and transformers. Loads every folder as the class that its config names,
and fails if an array is missing, unexpected or of another shape, or if what the
library would save again is not the same, bit by bit.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import safetensors.numpy
import transformers


def complaints(folder):
    """What is wrong with a folder, a list of lines."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    cls = getattr(transformers, config["architectures"][0])
    model, info = cls.from_pretrained(folder, output_loading_info=True)
    found = [f"{kind}: {sorted(names)}" for kind, names in info.items() if names]
    ours = safetensors.numpy.load_file(folder / "model.safetensors")
    with tempfile.TemporaryDirectory() as other:
        model.save_pretrained(other)
        theirs = safetensors.numpy.load_file(f"{other}/model.safetensors")
    if set(ours) != set(theirs):
        found.append(f"other names: {sorted(set(ours) ^ set(theirs))}")
    for name in set(ours) & set(theirs):
        if not np.array_equal(ours[name], theirs[name]):
            found.append(f"{name} is not the same")
    return found


def main(folders):
    """Print a line a folder; returns whether all is well."""
    wrong = 0
    for folder in map(pathlib.Path, folders):
        found = complaints(folder)
        wrong += bool(found)
        print(folder, "; ".join(found) if found else "ok")
    return wrong == 0


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
