"""Rows of tokens: repeat them, read and write a column, find tokens.

Letters: B batch, R rows, M tokens that a row has room for.
"""

from keras import ops


def is_one_of(token_ids, wanted):
    """Which tokens are among some.

    Args:
        token_ids: int tensor.
        wanted: tuple of ints.

    Returns: bool tensor of the same shape.
    """
    found = ops.zeros_like(token_ids, dtype="bool")
    for token_id in wanted:
        found = ops.logical_or(found, ops.equal(token_ids, token_id))
    return found


def repeat_rows(x, times):
    """Each row of a tensor several times: a a b b.

    Args:
        x: tensor (B, ...).
        times: int.

    Returns: tensor (B times, ...).
    """
    if times == 1:
        return x
    rest = ops.shape(x)[1:]
    copies = [1, times] + [1] * len(rest)
    return ops.reshape(ops.tile(ops.expand_dims(x, 1), copies), (-1, *rest))


def column(x, place):
    """One column of a matrix.

    Args:
        x: (R, M).
        place: int32 scalar.

    Returns: (R, 1).
    """
    return ops.expand_dims(ops.take(x, place, axis=1), 1)


def put_column(x, values, place):
    """A matrix with one column replaced.

    Args:
        x: (R, M).
        values: (R,).
        place: int32 scalar.

    Returns: (R, M).
    """
    return ops.slice_update(x, (0, place), ops.expand_dims(values, 1))
