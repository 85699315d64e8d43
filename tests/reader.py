"""A second process that reads SavedModels with TensorFlow alone."""

import subprocess
import sys

import numpy as np

READ = """
import sys
sys.modules["keras"] = sys.modules["keras_tfm"] = None  # not to be found
import numpy as np
import tensorflow as tf
for line in sys.stdin:
    folder, given, made = line.rstrip("\\n").split("\\t")
    try:
        signature = tf.saved_model.load(folder).signatures["serving_default"]
        loaded = {k: tf.constant(v) for k, v in np.load(given).items()}
        np.savez(made, **{k: v.numpy() for k, v in signature(**loaded).items()})
        print("READ", flush=True)
    except Exception as error:
        print("READ", repr(error).replace("\\n", " "), flush=True)
"""


class Reader:
    """Runs SavedModels in a process that has neither keras nor keras_tfm.

    One process serves a whole test session, since TensorFlow takes seconds to start.

    Args:
        folder: path for files, and where the process runs.
    """

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", READ],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, path, inputs):
        """Outputs of the signature "serving_default", a dict of arrays."""
        given, made = self.folder / "given.npz", self.folder / "made.npz"
        np.savez(given, **inputs)
        self.process.stdin.write(f"{path}\t{given}\t{made}\n")
        self.process.stdin.flush()
        answer = "no answer"
        for line in self.process.stdout:
            if line.startswith("READ"):
                answer = line[4:].strip()
                break
        assert not answer, f"{path}: {answer}"
        return dict(np.load(made))

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
