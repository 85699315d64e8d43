"""Rows in another order, gathered both ways.

The gradient of a gather is a scatter, which runs on one core; that of a permutation is
the gather back.
"""

from keras import ops


def invert_order(order):
    """The permutation that undoes another.

    Args:
        order: int32 (n,), each of 0 ... n - 1 once.

    Returns: int32 (n,).
    """
    count = ops.shape(order)[0]
    places = ops.arange(count, dtype="int32")
    return ops.scatter(ops.expand_dims(order, 1), places, (count,))


def permute_rows(x, order, undo):
    """Rows of a matrix in another order.

    Args:
        x: float (n, width).
        order: int32 (n,), which row stands where.
        undo: int32 (n,), `invert_order(order)`.

    Returns: float (n, width), `x[order]`.
    """

    @ops.custom_gradient
    def run(x):
        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            return ops.take(upstream, undo, axis=0)

        return ops.take(x, order, axis=0), gradient

    return run(x)
