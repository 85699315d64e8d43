"""Named inputs and outputs: what an exported file calls a model's tensors.

Letters: B batch, T length.
"""

import re

import keras

_UNNAMED = re.compile(r"(input_layer|keras_tensor)(_\d+)?$")


def require_tensorflow():
    """Refuse to export from another backend, where there is no graph to write.

    Raises:
        RuntimeError: the Keras backend is not TensorFlow.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            "Export needs the TensorFlow backend: save the model to a .keras file "
            f"and export it with KERAS_BACKEND=tensorflow, got '{backend}'."
        )


def input_names(model):
    """Name each input of a functional model, in the order of its flat structure.

    A dict input is named by its key, others by the name given to `keras.Input`;
    an input without a name is called "inputs" ("inputs_0", ... if several).

    Args:
        model: a functional or built Sequential model.

    Returns: list of str.

    Raises:
        ValueError: the model has no symbolic inputs, or two of one name.
    """
    names = []
    leaves = keras.tree.flatten_with_path(_input_structure(model))
    for index, (path, tensor) in enumerate(leaves):
        if any(isinstance(step, str) for step in path):
            names.append("_".join(str(step) for step in path))
        elif _UNNAMED.match(tensor.name):
            names.append("inputs" if len(leaves) == 1 else f"inputs_{index}")
        else:
            names.append(tensor.name)
    if len(set(names)) < len(names):
        raise ValueError(f"`model` must have inputs of different names, got {names}.")
    return names


def input_specs(model, batch_size=None, length=None):
    """Describe a model's inputs as named tensors.

    Args:
        model: a functional or built Sequential model.
        batch_size: int B, or None to leave it free.
        length: int T put where an input's axis 1 is free, or a dict from input
            names to such ints; None leaves all free.

    Returns: dict from names to `tf.TensorSpec`; dtypes as the model's.

    Raises:
        ValueError: a size is not positive, contradicts the model's own, or has
            no free axis to go to.
    """
    import tensorflow as tf

    _check_size("batch_size", batch_size)
    names = input_names(model)
    lengths = _lengths(names, length)
    specs, taken = {}, set()
    for name, tensor in zip(names, keras.tree.flatten(_input_structure(model))):
        shape = list(tensor.shape)
        if batch_size is not None:
            if shape[0] not in (None, batch_size):
                raise ValueError(
                    f"`batch_size` must be {shape[0]}, which the model fixes for "
                    f"'{name}', got {batch_size}."
                )
            shape[0] = batch_size
        if name in lengths and len(shape) > 1 and shape[1] in (None, lengths[name]):
            shape[1] = lengths[name]
            taken.add(name)
        specs[name] = tf.TensorSpec(shape, tensor.dtype, name=name)
    missed = set(lengths) - taken
    if missed and (isinstance(length, dict) or not taken):
        shapes = {name: tuple(specs[name].shape) for name in sorted(missed)}
        raise ValueError(
            f"`length` must go to a free axis 1, got {length} for {shapes}."
        )
    return specs


def pack_inputs(model, named):
    """Arrange tensors by name as the model's call takes them.

    Args:
        model: a functional or built Sequential model.
        named: dict from `input_names(model)` to tensors.

    Returns: the model's own input structure (a dict, a list, one tensor).
    """
    flat = [named[name] for name in input_names(model)]
    return keras.tree.pack_sequence_as(_input_structure(model), flat)


def unpack_inputs(model, inputs):
    """Name the tensors of a model's input: the inverse of `pack_inputs`.

    Args:
        model: a functional or built Sequential model.
        inputs: what the model is called with; all inputs must be there.

    Returns: dict from names to NumPy arrays in the dtypes of the model's inputs.

    Raises:
        ValueError: an input is missing or not one of the model's.
    """
    names = input_names(model)
    if isinstance(inputs, dict):
        if set(inputs) != set(names):
            raise ValueError(
                f"`inputs` must have the keys {sorted(names)}, got {sorted(inputs)}."
            )
        flat = [inputs[name] for name in names]
    else:
        flat = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        if len(flat) != len(names):
            raise ValueError(
                f"`inputs` must hold {len(names)} arrays ({', '.join(names)}), got "
                f"{len(flat)}."
            )
    tensors = keras.tree.flatten(_input_structure(model))
    return {
        name: keras.ops.convert_to_numpy(value).astype(tensor.dtype)
        for name, value, tensor in zip(names, flat, tensors)
    }


def name_outputs(model, outputs):
    """Name a model's outputs: dict keys, or the names of its output layers.

    An output that is made by an operation, not by a layer, has no name that lasts
    and is called "outputs" ("outputs_0", ... if several).

    Args:
        model: the model that gave `outputs`.
        outputs: a tensor or a structure of tensors.

    Returns: dict from str to tensors.
    """
    leaves = keras.tree.flatten_with_path(outputs)
    layers = {layer.name for layer in model.layers}
    known = getattr(model, "output_names", None) or [model.layers[-1].name]
    names = []
    for index, (path, _) in enumerate(leaves):
        if any(isinstance(step, str) for step in path):
            name = "_".join(str(step) for step in path)
        elif len(known) == len(leaves) and known[index] in layers:
            name = known[index]
        else:
            name = "outputs"
        names.append(name)
    repeated = {name for name in names if names.count(name) > 1}
    return {
        f"{name}_{index}" if name in repeated else name: tensor
        for index, (name, (_, tensor)) in enumerate(zip(names, leaves))
    }


def _input_structure(model):
    if not getattr(model, "inputs", None):
        raise ValueError(
            "`model` must be functional (or a built Sequential), got "
            f"{type(model).__name__} '{model.name}', which has no `keras.Input`."
        )
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def _check_size(name, size):
    if size is not None and (not isinstance(size, int) or size < 1):
        raise ValueError(f"`{name}` must be a positive int or None, got {size!r}.")


def _lengths(names, length):
    lengths = length if isinstance(length, dict) else {name: length for name in names}
    for name, size in lengths.items():
        if name not in names:
            raise ValueError(f"`length` must be keyed by {names}, got '{name}'.")
        _check_size("length", size)
    return {name: size for name, size in lengths.items() if size is not None}
