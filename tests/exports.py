"""Exported files against the layers and models that they were made from."""

import subprocess
import sys

import keras
import numpy as np

from tests.battery import OTHER_SIZES, SIZES
from tests.laws import assert_near

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


def check_exports(case, folder, reader):
    """SavedModel, read by TensorFlow alone, and LiteRT say what the layer says.

    The model is exported by Keras itself; LiteRT has built-in operations only.

    Args:
        case: `Case`.
        folder: path for files.
        reader: `Reader`.
    """
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    model = case.model()
    path = str(folder / "saved_model")
    model.export(path, format="tf_saved_model", verbose=False)
    converter = tf.lite.TFLiteConverter.from_saved_model(path)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    runner = Interpreter(model_content=converter.convert()).get_signature_runner()
    for sizes in (SIZES, OTHER_SIZES):
        arrays = case.inputs(*sizes)
        expected = keras.tree.flatten(case.run(model, arrays))
        named = arrays if isinstance(arrays, dict) else {model.input.name: arrays}
        for outputs in (reader.run(path, named), runner(**named)):
            assert len(outputs) == len(expected)
            by_name = [outputs[name] for name in sorted(outputs)]
            for actual, wanted in zip(by_name, expected):
                assert_near(actual, wanted, atol=1e-4)
