"""Reading and writing safetensors files."""

from keras_tfm.checkpoints.arrays import Arrays
from keras_tfm.checkpoints.errors import CheckpointError


def read_safetensors(path):
    """The arrays of one safetensors file.

    Args:
        path: `pathlib.Path`.

    Returns: `Arrays`; bfloat16 arrays have the dtype of `ml_dtypes`.

    Raises:
        CheckpointError: if the file is cut or is something else.
    """
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            shapes = {
                name: tuple(file.get_slice(name).get_shape()) for name in file.keys()
            }
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file: {error}."
        ) from error

    def read(name):
        with safetensors.safe_open(path, framework="numpy") as file:
            return file.get_tensor(name)

    return Arrays(shapes, read)


def write_safetensors(path, arrays):
    """Write named arrays as one safetensors file.

    Args:
        path: `pathlib.Path`.
        arrays: dict from name to NumPy array.
    """
    import safetensors.numpy

    metadata = {"format": "pt"}  # the reference library refuses files without it
    safetensors.numpy.save_file(arrays, path, metadata=metadata)
