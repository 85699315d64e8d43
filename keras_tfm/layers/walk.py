"""A loop over the first axis that carries tensors along and collects others.

Its gradient is for its owner to write.
"""

from keras import ops


def walk(step, carried, sequences, made=(), reverse=False):
    """Call `step` on each place of the sequences in turn.

    Args:
        step: function of (list of carried tensors, list of one place (...) of each
            sequence) that gives the carried tensors and what to collect.
        carried: list of tensors; they keep their shapes.
        sequences: list of tensors (J, ...).
        made: list of zeros (...) like what a step collects.
        reverse: bool, from the last place to the first.

    Returns: pair of lists, the carried tensors and the collected ones (J, ...).
    """
    count, kept = ops.shape(sequences[0])[0], len(carried)
    if not made:
        return _carry(step, carried, sequences, count, reverse), []

    def body(state, place):
        after, new = step(state[:kept], [_at(x, place) for x in sequences])
        # On TensorFlow, Keras 3.15 collects only what looks like what is carried.
        return [*after, *new], [*after, *new]

    # `ops.slice_update` into a large tensor copies all of it on TensorFlow.
    places = ops.arange(count, dtype="int32")
    last, collected = ops.scan(body, [*carried, *made], places, reverse=reverse)
    return last[:kept], collected[kept:]


def _carry(step, carried, sequences, count, reverse):
    """`walk` that collects nothing."""

    def body(i, *carried):
        place = count - 1 - i if reverse else i
        return i + 1, *step(list(carried), [_at(x, place) for x in sequences])[0]

    first = ops.convert_to_tensor(0, "int32")
    state = ops.while_loop(lambda i, *_: ops.less(i, count), body, (first, *carried))
    return list(state[1:])


def _at(x, place):
    """(J, ...) -> (...)."""
    shape = ops.shape(x)[1:]
    start = place, *[0] * len(shape)
    return ops.reshape(ops.slice(x, start, (1, *shape)), shape)
