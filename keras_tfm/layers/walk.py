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

    def visit(state, place):
        return step(list(state), [_at(x, place) for x in sequences])

    if made and all(None not in x.shape for x in made):
        # On TensorFlow, Keras 3.15 collects only what looks like what is carried.
        def both(state, place):
            after, new = visit(state[:kept], place)
            return [*after, *new], [*after, *new]

        places = ops.arange(count, dtype="int32")
        last, collected = ops.scan(both, [*carried, *made], places, reverse=reverse)
        return last[:kept], collected[kept:]

    # LiteRT has no lists of an unknown batch. Without XLA each step copies the room.
    def put(i, state, room):
        place = count - 1 - i if reverse else i
        after, new = visit(state, place)
        room = [_put(x, place, y) for x, y in zip(room, new)]
        return i + 1, tuple(after), tuple(room)

    room = tuple(ops.repeat(ops.expand_dims(x, 0), count, axis=0) for x in made)
    first = ops.convert_to_tensor(0, "int32"), tuple(carried), room
    _, *last = ops.while_loop(lambda i, *_: ops.less(i, count), put, first)
    return [list(tensors) for tensors in last]


def _at(x, place):
    """(J, ...) -> (...)."""
    shape = ops.shape(x)[1:]
    start = place, *[0] * len(shape)
    return ops.reshape(ops.slice(x, start, (1, *shape)), shape)


def _put(x, place, value):
    """The same (J, ...) with `value` (...) at a place."""
    start = place, *[0] * len(value.shape)
    return ops.slice_update(x, start, ops.expand_dims(value, 0))
