"""Settings that every test shares: the backend, quiet logs, seeds, real data.

`KERAS_BACKEND=jax pytest -m "not tensorflow"` runs what does not need TensorFlow.
"""

import gc
import os
import pathlib

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
if "PYTEST_XDIST_WORKER" in os.environ:  # each has a core, not all of them
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import keras  # noqa: E402
import pytest  # noqa: E402
from keras.src.trainers.trainer import Trainer  # noqa: E402

from keras_tfm.generation.generate import Compiled  # noqa: E402

pytest.register_assert_rewrite("tests.battery", "tests.laws")

ROOT = pathlib.Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items):
    """Skip tests marked `tensorflow` where Keras runs on something else."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return
    skip = pytest.mark.skip(reason=f"needs the TensorFlow backend, this is {backend}")
    for item in items:
        if item.get_closest_marker("tensorflow"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def seed():
    """The same random numbers in each test, whatever ran before it."""
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True, scope="module")
def old_objects():
    """Collect what a file left behind, and look no more at what stays."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def without_xla(request, monkeypatch):
    """Loops and steps are ready in half the time, but with `jit_compile=True`.

    Tests marked `xla` have Keras's and our default, which is XLA.
    """
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if on_tensorflow and not request.node.get_closest_marker("xla"):
        never = property(lambda model: False, lambda model, value: None)
        monkeypatch.setattr(Compiled, "jit_compile", never)
        monkeypatch.setattr(Trainer, "_resolve_auto_jit_compile", lambda model: False)


@pytest.fixture(scope="session")
def tfds_dir():
    """The folder of real data sets, in the layout that `tfds.load` reads.

    `KERAS_TFM_TFDS_DIR` names it, else `../shared/tfds` beside the checkout.
    """
    default = ROOT.parent / "shared" / "tfds"
    folder = pathlib.Path(os.environ.get("KERAS_TFM_TFDS_DIR", default))
    if not folder.is_dir():
        pytest.skip(
            f"no folder of TFDS data sets at {os.path.relpath(folder, ROOT)} "
            "(set KERAS_TFM_TFDS_DIR to one)"
        )
    return folder
