"""The largest of very many numbers, without walking over all of them on one core.

XLA's CPU backend sorts a row on one core. Largest numbers of blocks are found on all
of them, and whatever is among the k largest is in a block that is.

Letters: R rows, V numbers of a row, C size of a block, n blocks.
"""

from keras import ops

SIZE = 128  # C


def largest(x, k):
    """`keras.ops.top_k`, quick for rows as long as a vocabulary.

    Args:
        x: float (..., V), V known.
        k: int, at most V.

    Returns: pair of the k largest numbers, the largest first and of equal ones the
        first, float (..., k), and their places, int32 (..., k).
    """
    length = x.shape[-1]
    count = -(-length // SIZE)
    if count < 4 * k:
        best, places = ops.top_k(x, k)
        return best, ops.cast(places, "int32")
    lead = ops.shape(x)[:-1]
    rows = ops.reshape(x, (-1, length))
    room = ((0, 0), (0, count * SIZE - length))
    rows = ops.pad(rows, room, constant_values=float("-inf"))
    rows = ops.reshape(rows, (-1, count, SIZE))  # (R, n, C)
    tops = ops.max(rows, axis=-1, initial=float("-inf"))  # (R, n); R may be 0
    blocks = ops.top_k(tops, k)[1]
    blocks = ops.sort(ops.cast(blocks, "int32"), axis=-1)  # equal ones keep their order
    first = ops.expand_dims(ops.arange(ops.shape(rows)[0], dtype="int32"), 1) * count
    found = ops.take(ops.reshape(rows, (-1, SIZE)), first + blocks, axis=0)  # (R, k, C)
    best, places = ops.top_k(ops.reshape(found, (-1, k * SIZE)), k)
    places = ops.cast(places, "int32")
    block = ops.take_along_axis(blocks, places // SIZE, axis=1)
    places = block * SIZE + ops.mod(places, SIZE)
    return ops.reshape(best, (*lead, k)), ops.reshape(places, (*lead, k))
