"""Batches of one row, without their axis.

XLA's CPU backend drops an axis of one from a product, after which what a loop writes
and multiplies in the same step is copied: three times a layer and token, for a cache.
Where the axis is known to be one, products, caches and the loop's state have none.
LiteRT is better off with the axis.

Letters: B batch, any further axes.
"""

import contextlib
import contextvars

from keras import ops

_plain = contextvars.ContextVar("keras_tfm_plain_rows", default=False)


@contextlib.contextmanager
def plain_rows():
    """Where one row is treated as many are, as in a LiteRT file."""
    before = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(before)


def is_one_row(*tensors):
    """Whether B is known to be 1 in all of some tensors (B, ...), and that counts."""
    single = all(x.shape[0] == 1 for x in tensors)  # dialect: known to be one row
    return single and not _plain.get()


def by_rows(function, *tensors):
    """A function of the last axes of tensors (B, ...), which may lack B.

    Args:
        function: of as many tensors, all (B, ...) or all without B, gives one like it.
        *tensors: tensors (B, ...).

    Returns: tensor (B, ...).
    """
    if not is_one_row(*tensors):
        return function(*tensors)
    outputs = function(*(ops.squeeze(x, 0) for x in tensors))
    return ops.expand_dims(outputs, 0)
