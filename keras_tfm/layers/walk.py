"""A loop over the first axis that carries tensors along and collects others.

Keras's `ops.scan` wants, on TensorFlow, that what is collected looks like what is
carried (Keras 3.15). The gradient of such a loop is for its owner to write.
"""

from keras import ops


def walk(step, carried, sequences, collected=(), reverse=False):
    """Call `step` on each place of the sequences in turn.

    Args:
        step: function of (list of carried tensors, list of one place (...) of each
            sequence) that gives the carried tensors and what to put at that place.
        carried: list of tensors; they keep their shapes.
        sequences: list of tensors (J, ...).
        collected: list of tensors (J, ...) into which it is put.
        reverse: bool, from the last place to the first.

    Returns: pair of the lists, carried and collected.
    """
    count = ops.shape(sequences[0])[0]

    def body(i, carried, collected):
        place = count - 1 - i if reverse else i
        carried, made = step(list(carried), [_at(x, place) for x in sequences])
        collected = [_put(x, y, place) for x, y in zip(collected, made)]
        return i + 1, tuple(carried), tuple(collected)

    first = ops.convert_to_tensor(0, "int32")
    state = first, tuple(carried), tuple(collected)
    state = ops.while_loop(lambda i, *_: ops.less(i, count), body, state)
    return list(state[1]), list(state[2])


def _at(x, place):
    """(J, ...) -> (...)."""
    shape = ops.shape(x)[1:]
    start = place, *[0] * len(shape)
    return ops.reshape(ops.slice(x, start, (1, *shape)), shape)


def _put(x, y, place):
    """(J, ...) with (...) at one place."""
    start = place, *[0] * len(y.shape)
    return ops.slice_update(x, start, ops.expand_dims(y, 0))
