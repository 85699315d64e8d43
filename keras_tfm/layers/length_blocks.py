"""How a length is cut into blocks: one at least, so that none is a length too."""

from keras import ops


def count_blocks(length, size):
    """How many blocks of one size hold a length.

    Args:
        length: int or int32 scalar tensor.
        size: int, tokens of a block.

    Returns: int or int32 scalar tensor, at least 1.
    """
    count = -(-length // size)
    return max(count, 1) if isinstance(count, int) else ops.maximum(count, 1)


def cut_length(length, longest):
    """Cut a length into blocks that are no longer than needed.

    Args:
        length: int or int32 scalar tensor.
        longest: int, tokens of a block; of fewer where the length is known and less.

    Returns: tokens of a block, number of blocks, tokens that the last one lacks.
    """
    size = max(min(longest, length), 1) if isinstance(length, int) else longest
    count = count_blocks(length, size)
    return size, count, count * size - length
