"""Export to LiteRT (TensorFlow Lite) with built-in operations only.

Letters: B batch, T length.
"""

import functools
import pathlib
import tempfile
import warnings

import keras
import numpy as np

from keras_tfm.export import precision, signatures, staging
from keras_tfm.layers.one_row import plain_rows

_QUANTIZE = (None, "float16", "dynamic", "int8")
_FLOAT_OPS = (
    *("BATCH_MATMUL", "SOFTMAX", "LOG_SOFTMAX", "SELECT", "SELECT_V2", "WHERE"),
    *("ADD", "SUB", "MUL", "DIV", "NEG", "SUM", "CUMSUM", "MEAN", "RSQRT", "SQRT"),
    *("SQUARE", "SQUARED_DIFFERENCE", "MAXIMUM", "MINIMUM", "EXP", "LOG", "POW"),
    *("GELU", "TANH", "LOGISTIC", "ELU", "HARD_SWISH", "SIN", "COS", "ABS"),
)


def to_litert(
    model, path, quantize=None, calibration=None, batch_size=None, length=None
):
    """Write a model as a .tflite file that every LiteRT runtime can read.

    The file has one signature, "serving_default", with the names that
    `to_saved_model` gives. Sizes that the model leaves free stay free, so one
    file serves every batch and length. With `batch_size` and `length` all shapes
    are fixed: the runtime's XNNPACK kernels then take the graph in large pieces (an
    image model whole) rather than between the computations of shapes.

    A model in mixed precision is converted through its float32 twin.

    Args:
        model: a functional `keras.Model` or a built Sequential.
        path: str or path of the file; a file there is replaced.
        quantize: None for float32 weights; "float16" stores them in 16 bits;
            "dynamic" stores the large ones as int8 and computes their products in
            int8; "int8" computes the products with weights in int8 throughout, in
            ranges measured on `calibration`, and leaves attention scores, softmax
            and norms in float. Inputs and outputs keep their types.
        calibration: iterable of model inputs, or of (inputs, targets), about 100
            typical batches of one shape; for "int8" only.
        batch_size: int B that the file accepts; None: any.
        length: int T, or a dict from input names to ints; None: any.

    Returns: `pathlib.Path` of the file.

    Raises:
        ValueError: a model quantized by Keras, an unknown `quantize`, a missing
            `calibration` or one of several shapes, a size that contradicts the
            model, an operation that LiteRT does not have.
        OSError: the file could not be written.

    Example:
        >>> inputs = keras.Input((None, 4), name="features")
        >>> logits = keras.layers.Dense(3, name="logits")(inputs)
        >>> model = keras.Model(inputs, logits)
        >>> path = keras_tfm.export.to_litert(model, "scores.tflite", "float16")
        >>> x = np.ones((2, 5, 4))
        >>> keras_tfm.export.run_file(path, {"features": x})["logits"].shape
        (2, 5, 3)
    """
    signatures.require_tensorflow()
    check_quantize(model, quantize, _QUANTIZE)
    if (calibration is not None) != (quantize == "int8"):
        raise ValueError(
            "`calibration` must be given with quantize='int8' and only then, got "
            f"quantize={quantize!r}."
        )
    model = precision.float32_model(model)
    specs = signatures.input_specs(model, batch_size, length)
    samples = None
    if quantize == "int8":
        samples = _samples(model, calibration, specs)
    content = _convert(model, specs, quantize, samples)
    with staging.staged_file(path) as file:
        file.write_bytes(content)
    return pathlib.Path(path)


def check_quantize(model, quantize, allowed):
    """Refuse an unknown kind of quantization, and a model that Keras has quantized.

    Args:
        model: a built `keras.Model`.
        quantize: what was asked for.
        allowed: tuple of what there is.

    Raises:
        ValueError: either.
    """
    if quantize not in allowed:
        raise ValueError(f"`quantize` must be one of {allowed}, got {quantize!r}.")
    if precision.is_quantized(model):
        raise ValueError(
            f"`model` must not be quantized by Keras, got {model.name}: LiteRT has no "
            "such operations. Export the model as trained and give `quantize=` here."
        )


def _convert(model, specs, quantize, samples):
    """The bytes of the .tflite file."""

    def serve(inputs):
        outputs = model(signatures.pack_inputs(model, inputs), training=False)
        return signatures.name_outputs(model, outputs)

    return convert_function(model, serve, specs, quantize, samples)


def convert_function(model, serve, specs, quantize=None, samples=None):
    """Convert one function as the signature "serving_default".

    Args:
        model: what the function uses.
        serve: function of a dict of tensors.
        specs: dict of `tf.TensorSpec`.
        quantize: see `to_litert`.
        samples: function that gives the dicts to calibrate with, or None.

    Returns: bytes, the .tflite file.
    """
    archive = keras.export.ExportArchive()
    archive.track(model)
    with tempfile.TemporaryDirectory() as folder:
        with plain_rows():  # writing traces once more
            archive.add_endpoint("serving_default", serve, [specs])
            archive.write_out(folder, verbose=False)
        return convert_folder(folder, quantize, samples)


def convert_folder(folder, quantize=None, samples=None):
    """Convert the signature "serving_default" of a SavedModel folder.

    Args:
        folder: str or path of a SavedModel.
        quantize: as in `to_litert`.
        samples: list of dicts from input names to arrays, for "int8".

    Returns: bytes of the .tflite file.

    Raises:
        ValueError: the graph has an operation that LiteRT does not have.
    """
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(folder), signature_keys=["serving_default"]
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    convert = converter.convert
    if quantize == "int8":
        convert = functools.partial(_convert_to_int8, converter, samples)
    try:
        with warnings.catch_warnings():  # the converter's own calibration warns
            warnings.filterwarnings("ignore", r"\s*Warning: tf.lite.Interpreter")
            return convert()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reasons = [line for line in lines if "error:" in line] or lines
        raise ValueError(
            "`model` must be made of operations that LiteRT has: "
            f"{reasons[0] if reasons else repr(error)}"
        ) from error


def _convert_to_int8(converter, samples):
    """Products with weights in int8, the rest in float.

    Left to itself the converter gives scores that are masked with -1e30 one range
    with all others, after which every score is zero. So what has no weights keeps
    floats; it is a small part of the work.
    """
    import tensorflow as tf

    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS_INT8,
        tf.lite.OpsSet.TFLITE_BUILTINS,
    ]
    converter.representative_dataset = lambda: iter(samples)
    quantizer = tf.lite.experimental.QuantizationDebugger(
        converter=converter,
        debug_dataset=converter.representative_dataset,
        debug_options=tf.lite.experimental.QuantizationDebugOptions(
            denylisted_ops=list(_FLOAT_OPS)  # a tuple is ignored
        ),
    )
    return quantizer.get_nondebug_quantized_model()


def _samples(model, calibration, specs):
    """Calibration inputs by name, cut to the file's batch size, all of one shape."""
    batch_size = next(iter(specs.values())).shape[0]
    samples = []
    for element in calibration:
        inputs = element[0] if isinstance(element, tuple) else element
        named = signatures.unpack_inputs(model, inputs)
        rows = len(next(iter(named.values())))
        step = batch_size or rows
        for start in range(0, rows - step + 1, step):
            cut = {key: value[start : start + step] for key, value in named.items()}
            samples.append(cut)
    shapes = {tuple((k, v.shape) for k, v in sample.items()) for sample in samples}
    if len(shapes) != 1:
        raise ValueError(
            "`calibration` must hold batches of one shape (pad them), got "
            f"{[dict(shape) for shape in sorted(shapes)] or 'none'}."
        )
    for key, value in samples[0].items():
        if not specs[key].shape.is_compatible_with(np.shape(value)):
            raise ValueError(
                f"`calibration` must fit '{key}' {tuple(specs[key].shape)}, got "
                f"{np.shape(value)}."
            )
    return samples
