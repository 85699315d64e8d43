"""Exported encoders: size of the file, and how long one text takes.

    python -m benchmarks.litert             BERT-base, batch 1, length 128
    python -m benchmarks.litert --tiny 1    a toy model: seconds, not minutes

LiteRT runs with XNNPACK where nothing else is said; fixed shapes let it take the
graph in larger pieces. Peers: ONNX Runtime on Transformers' BertModel, as exported by
`torch.onnx` and as quantized by its own dynamic quantization; KerasHub's model as the
same converter makes a file of it.
"""

import pathlib
import tempfile

import numpy as np

from benchmarks import encoder
from benchmarks.pairing import write
from benchmarks.steps import parser, speed_table

CONTENDERS = [
    ("ONNX Runtime", "onnx", {}),
    ("ONNX Runtime, int8", "onnx", {"quantize": True}),
    ("keras_tfm, fixed shapes", "ours", {"fixed": True}),
    ("keras_tfm", "ours", {}),
    (
        "keras_tfm, fixed shapes, without XNNPACK",
        "ours",
        {"fixed": True, "plain": True},
    ),
    ("keras_tfm, fixed shapes, int8", "ours", {"fixed": True, "quantize": "dynamic"}),
    ("keras_tfm, int8", "ours", {"quantize": "dynamic"}),
    ("KerasHub, LiteRT", "keras_hub", {}),
    ("Transformers (PyTorch)", "transformers", {}),
]


def ours(shape, batch, length, threads, fixed=False, plain=False, quantize=None):
    """keras_tfm through `to_litert`."""
    from keras_tfm import export

    model = encoder.bert(shape, length)
    sizes = {"batch_size": batch, "length": length} if fixed else {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.tflite"
        export.to_litert(model, path, quantize, **sizes)
        content = path.read_bytes()
    ids = encoder.token_ids(shape, batch, length)
    inputs = {name: np.asarray(value) for name, value in model.complete(ids).items()}
    return _litert(content, inputs, threads, plain)


def keras_hub(shape, batch, length, threads):
    """KerasHub through the same converter, fixed shapes."""
    import keras

    model, inputs = encoder.keras_hub_model(shape, batch, length)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.tflite"
        fixed = {k: keras.Input(batch_shape=v.shape, dtype="int32", name=k)
                 for k, v in inputs.items()}  # fmt: skip
        keras.Model(fixed, model(fixed)).export(
            str(path), format="litert", verbose=False
        )
        content = path.read_bytes()
    return _litert(content, inputs, threads)


def _litert(content, inputs, threads, plain=False):
    """Run a .tflite file; its size is told beside the time."""
    from ai_edge_litert import interpreter as litert

    kinds = litert.OpResolverType
    kind = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else kinds.AUTO
    interpreter = litert.Interpreter(
        model_content=content,
        num_threads=threads,
        experimental_op_resolver_type=kind,
    )
    run = interpreter.get_signature_runner("serving_default")
    details = run.get_input_details()
    inputs = {
        name: inputs[name].astype(detail["dtype"]) for name, detail in details.items()
    }
    return Sized(lambda: run(**inputs), len(content))


class Sized:
    """A run that knows the bytes of its file.

    Args:
        run: function that does the work once.
        size: int, bytes.
    """

    def __init__(self, run, size):
        self.run, self.notes = run, {"file, MB": round(size / 1e6, 1)}

    def __call__(self):
        return self.run()


def onnx(shape, batch, length, threads, quantize=False):
    """ONNX Runtime on Transformers' `BertModel`."""
    import onnxruntime
    import torch
    from onnxruntime.quantization import quantize_dynamic

    class LastHidden(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    model, ids, mask = encoder.transformers_model(shape, batch, length, threads)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        torch.onnx.export(
            LastHidden(model.eval()), (ids, mask), path,
            input_names=["ids", "mask"], output_names=["hidden"], dynamo=False,
        )  # fmt: skip
        if quantize:
            quantize_dynamic(path, path.with_name("int8.onnx"))
            path = path.with_name("int8.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        size = path.stat().st_size
    inputs = {"ids": ids.numpy(), "mask": mask.numpy()}
    return Sized(lambda: session.run(["hidden"], inputs), size)


def transformers(shape, batch, length, threads):
    """Transformers on PyTorch, not exported."""
    settings = {"shape": shape, "batch": batch, "length": length}
    return encoder.transformers(**settings, training=False, threads=threads)


def main():
    """Run from the command line."""
    arguments = parser(__doc__, "latency")
    arguments.add_argument("--batch", type=int, default=1, help="texts")
    arguments.add_argument("--length", type=int, default=128, help="tokens of a text")
    given = arguments.parse_args()
    shape = encoder.TINY if given.tiny else encoder.BERT
    settings = {"shape": shape, "batch": given.batch, "length": given.length}
    rows = speed_table("litert", CONTENDERS, settings, given.threads, given.repeats)
    title = f"latency, batch {given.batch}, length {given.length}"
    write("litert", {title: rows}, given.output_dir)


if __name__ == "__main__":
    main()
