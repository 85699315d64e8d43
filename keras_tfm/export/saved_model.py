"""Export to a TensorFlow SavedModel that reads without this library.

Letters: B batch, T length.
"""

import errno
import pathlib
import warnings

import keras
import numpy as np

from keras_tfm.export import resources, signatures, staging

MARKER = "saved_model.pb"
_PROBES = ("", " ", "The quick brown fox, 42!", "Zürich 東京 qzxj")


def to_saved_model(
    model, path, preprocess=None, postprocess=None, batch_size=None, length=None
):
    """Write a model as a SavedModel folder with named signatures.

    The signature "serving_default" takes the model's inputs by name and gives its
    outputs by name: dict keys, or the names of `keras.Input`s and output layers.
    All inputs are listed, also those that the model itself can complete. Dtypes
    stay (int32 ids are int32); sizes that the model leaves free stay free.

    `preprocess` adds the signature "predict_text": strings "text" (B,) in.
    `postprocess` shapes what comes out of it; without `preprocess` it adds the
    signature "predict", which takes the model's inputs. Both become part of the
    graph with the tables of their tokenizers.

    The folder holds a README.md with the signatures, their shapes and whether
    its reader must `import tensorflow_text`. It is written beside `path` and
    moved there when complete.

    Args:
        model: a functional `keras.Model` or a built Sequential.
        path: str or path of the folder; a SavedModel there is replaced.
        preprocess: callable, string tensor (B,) -> what the model is called with,
            as dense tensors; a tokenizer with padding.
        postprocess: callable, the model's outputs -> dict of tensors, for instance
            `{"label": strings, "probability": floats}`.
        batch_size: int B that "serving_default" accepts; None: any.
        length: int T, or a dict from input names to ints; None: any.

    Returns: `pathlib.Path` of the folder.

    Raises:
        ValueError: a model without symbolic inputs, a size that contradicts it, a
            preprocess or postprocess that gives something else, a `path` that
            holds other files.
        OSError: the folder could not be written (a full disk, no permission).

    Example:
        >>> inputs = keras.Input((None, 4), name="features")
        >>> logits = keras.layers.Dense(3, name="logits")(inputs)
        >>> model = keras.Model(inputs, logits)
        >>> folder = keras_tfm.export.to_saved_model(model, "scores")
        >>> x = np.ones((2, 5, 4))
        >>> keras_tfm.export.run_file(folder, {"features": x})["logits"].shape
        (2, 5, 3)
    """
    signatures.require_tensorflow()
    archive = keras.export.ExportArchive()
    archive.track(model)
    for name, (function, specs) in _endpoints(
        model, preprocess, postprocess, batch_size, length
    ).items():
        archive.add_endpoint(name, function, [specs])
    track_resources(archive, preprocess, postprocess)
    write_archive(archive, path)
    return pathlib.Path(path)


def write_archive(archive, path):
    """Write an `ExportArchive` and its README.md, completely or not at all.

    Args:
        archive: `keras.export.ExportArchive` with its endpoints.
        path: str or path of the folder.
    """
    import tensorflow as tf

    with staging.staged_folder(path, MARKER) as folder:
        try:
            archive.write_out(str(folder), verbose=False)
        except tf.errors.OpError as error:
            full = isinstance(error, tf.errors.ResourceExhaustedError)
            reason = str(error.message).splitlines()[0].rsplit("; ", 1)[-1]
            raise OSError(errno.ENOSPC if full else errno.EIO, reason) from error
        except AssertionError as error:  # "Tried to export ... untracked resource"
            raise ValueError(
                "`preprocess` and `postprocess` must hold their tables where they can "
                "be found (a layer, a closure, an attribute); one was not found: "
                f"{str(error).splitlines()[0]}"
            ) from error
        graph = _read_graph(folder / MARKER)
        name = pathlib.Path(path).name
        (folder / "README.md").write_text(_readme(name, graph), encoding="utf-8")


def _endpoints(model, preprocess, postprocess, batch_size, length):
    """Name -> (function of one dict of tensors, specs of that dict)."""
    import tensorflow as tf

    specs = signatures.input_specs(model, batch_size, length)

    def name(outputs):
        return signatures.name_outputs(model, outputs)

    def finish(outputs):
        return _checked_outputs(postprocess(outputs)) if postprocess else name(outputs)

    def call(inputs):
        return model(signatures.pack_inputs(model, inputs), training=False)

    endpoints = {"serving_default": (lambda inputs: name(call(inputs)), specs)}
    if preprocess is not None:
        _warm_up(preprocess)
        text = {"text": tf.TensorSpec((batch_size,), tf.string, name="text")}

        def predict_text(inputs):
            features = _checked_features(preprocess(inputs["text"]))
            return finish(model(features, training=False))

        endpoints["predict_text"] = predict_text, text
    elif postprocess is not None:
        endpoints["predict"] = (lambda inputs: finish(call(inputs))), specs
    return endpoints


def _warm_up(preprocess):
    """Call once eagerly, so that lazy tables exist, and compare with a graph."""
    import tensorflow as tf

    text = tf.constant(_PROBES)
    eager = keras.tree.flatten(_checked_features(preprocess(text)))
    spec = tf.TensorSpec((None,), tf.string)
    traced = tf.function(preprocess, input_signature=[spec], autograph=False)
    graph = keras.tree.flatten(traced(text))
    for one, other in zip(eager, graph):
        if not np.array_equal(np.array(one), np.array(other)):
            warnings.warn(
                "`preprocess` gives other values inside a graph than eagerly, so the "
                "exported text signature will differ; does the vocabulary cover every "
                f"character of {_PROBES[-1]!r}?",
                stacklevel=2,
            )
            return


def _checked_features(features):
    import tensorflow as tf

    for value in keras.tree.flatten(features):
        if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
            raise ValueError(
                "`preprocess` must give dense tensors (pad them, for instance with "
                f"`.to_tensor(0)`), got {type(value).__name__}."
            )
    return features


def _checked_outputs(outputs):
    if not isinstance(outputs, dict):
        raise ValueError(
            f"`postprocess` must give a dict of tensors, got {type(outputs).__name__}."
        )
    return outputs


def track_resources(archive, *functions):
    """Let an archive own the tables that functions reach.

    Args:
        archive: `keras.export.ExportArchive`.
        *functions: callables or objects; None is passed over.
    """
    import tensorflow as tf

    holder = tf.Module()
    holder.parts = resources.find_resources([f for f in functions if f is not None])
    archive.track(holder)


def _read_graph(path):
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString(path.read_bytes())
    return message.meta_graphs[0]


def _foreign_ops(graph):
    """Ops that plain TensorFlow does not have."""
    import tensorflow as tf

    nodes = list(graph.graph_def.node)
    for function in graph.graph_def.library.function:
        nodes += function.node_def
    python = {node.op for node in nodes if "PyFunc" in node.op}
    if python:
        raise ValueError(
            "`preprocess` and `postprocess` must be made of TensorFlow operations, got "
            f"Python code inside the graph ({', '.join(sorted(python))})."
        )
    return sorted({n.op for n in nodes if not hasattr(tf.raw_ops, n.op)})


def _readme(name, graph):
    ops = _foreign_ops(graph)
    if ops:
        needs = (
            "The reader must `import tensorflow_text` before loading: the graph uses "
            f"its operations {', '.join(ops)}."
        )
    else:
        needs = "The reader needs nothing but TensorFlow."
    lines = [
        f"# {name}: a TensorFlow SavedModel",
        "",
        needs,
        "",
        "    model = tf.saved_model.load(folder)",
        "    outputs = model.signatures[signature](**inputs)  # dicts of tensors",
        "",
        "or, as a Keras layer, `keras.layers.TFSMLayer(folder, signature)`.",
        "",
        "| signature | direction | name | dtype | shape |",
        "| --- | --- | --- | --- | --- |",
    ]
    for signature, definition in sorted(graph.signature_def.items()):
        if signature.startswith("__"):
            continue
        for direction in ("inputs", "outputs"):
            for key, tensor in sorted(getattr(definition, direction).items()):
                lines.append(
                    f"| {signature} | {direction[:-1]} | {key} | {_dtype(tensor)} | "
                    f"{_shape(tensor)} |"
                )
    return "\n".join(lines) + "\n\nNone: any size.\n"


def _dtype(tensor):
    import tensorflow as tf

    return tf.dtypes.as_dtype(tensor.dtype).name


def _shape(tensor):
    if tensor.tensor_shape.unknown_rank:
        return "any"
    sizes = [None if dim.size < 0 else dim.size for dim in tensor.tensor_shape.dim]
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"
