"""Which blocks of keys a block of queries sees in BigBird: near, global, random.

Letters: B batch, C number of blocks, N heads, J blocks of keys that a block of queries
sees, R random ones among them.
"""

import numpy as np
from keras import ops

from keras_tfm.layers.leading_tokens import first_real
from keras_tfm.layers.length_blocks import count_blocks

TABLE = 512  # rows of random numbers; block C sees as block C - 512, but for the ends
LARGE = 2**20


class BlockPattern:
    """Blocks of keys for each block of queries.

    Of the blocks with a real token in them the first and the last few are global; the
    others see these, themselves, the two beside them, and random ones.

    Args:
        first: int, global blocks at the beginning.
        last: int, global blocks at the end.
        random: int R.
        heads: int N; each has random blocks of its own.
        seed: int.
    """

    def __init__(self, first, last, random, heads, seed):
        self.first, self.last, self.random, self.heads = first, last, random, heads
        shape = TABLE, heads, random
        table = np.random.default_rng(seed).integers(0, LARGE, shape)
        self._table = table.astype("int32")

    def seen_by_all(self, count):
        """Whether every block is seen by all if there are so many."""
        return count <= self.first + self.last + self.random + 2

    def choose(self, used, count):
        """What each block of queries sees.

        Args:
            used: int32 (B,), blocks up to the last one with a real token.
            count: int or int tensor C.

        Returns: pair of int32 and bool (B, C, N, J): numbers of blocks, and which of
            them count. No block counts twice.
        """
        used = ops.reshape(used, (-1, 1, 1, 1))
        own = ops.reshape(ops.arange(count, dtype="int32"), (1, -1, 1, 1))
        inner_end = ops.maximum(used - self.last, self.first)
        parts = [self._beside(own, inner_end)]
        if self.random:
            parts.append(self._random(own, inner_end, count))
        if self.first:
            head = ops.arange(self.first, dtype="int32") + own * 0
            parts.append((head, ops.less(head, used)))
        if self.last:
            tail = used - 1 - ops.arange(self.last, dtype="int32") + own * 0
            parts.append((tail, ops.greater_equal(tail, self.first)))
        shape = ops.shape(used)[0], count, self.heads
        numbers, counted = (
            ops.concatenate([_spread(x, shape) for x in same], axis=3)
            for same in zip(*parts)
        )
        return ops.maximum(ops.minimum(numbers, count - 1), 0), counted

    def _beside(self, own, inner_end):
        """The block itself and the two beside it, unless they are global."""
        numbers = own + ops.arange(-1, 2, dtype="int32")
        inside = ops.greater_equal(numbers, self.first)
        return numbers, ops.logical_and(inside, ops.less(numbers, inner_end))

    def _random(self, own, inner_end, count):
        """One block from each of R equal parts of all that are neither near nor global.

        Those are `before` blocks from `first` on, then others from own + 2 on.
        """
        beyond = ops.maximum(own + 2, self.first)
        before = ops.minimum(ops.maximum(own - 1, self.first), inner_end) - self.first
        after = ops.maximum(inner_end - beyond, 0)
        total, part = before + after, ops.arange(self.random, dtype="int32")
        low = part * total // self.random
        size = (part + 1) * total // self.random - low
        rows = ops.mod(ops.arange(count, dtype="int32"), TABLE)
        drawn = ops.take(self._table, rows, axis=0)  # (C, N, R)
        drawn = ops.mod(ops.expand_dims(drawn, 0), ops.maximum(size, 1))
        place = low + drawn
        nearer = ops.less(place, before)
        numbers = ops.where(nearer, place + self.first, place - before + beyond)
        return numbers, ops.greater(size, 0)


def _spread(x, shape):
    """`x` with its first three axes as long as in `shape`."""
    return ops.broadcast_to(x, (*shape, x.shape[3]))


def gather_blocks(blocks, numbers):
    """The chosen blocks behind each other.

    Args:
        blocks: (B, C, N or 1, X), see `to_blocks`.
        numbers: int32 (B, Q, N, J), of blocks.

    Returns: (B, Q, N, J X).
    """
    batch, count, heads, size = ops.shape(blocks)
    _, queries, wanted, many = ops.shape(numbers)
    row = ops.reshape(ops.arange(batch, dtype="int32"), (-1, 1, 1, 1)) * count
    place = (row + numbers) * heads
    if heads != 1:
        head = ops.arange(heads, dtype="int32")
        place = place + ops.reshape(head, (1, 1, -1, 1))
    flat = ops.reshape(blocks, (batch * count * heads, size))
    found = ops.take(flat, ops.reshape(place, (-1,)), axis=0)
    return ops.reshape(found, (batch, queries, wanted, many * size))


def used_blocks(real):
    """How many blocks each row has up to the last one with a real token, int32 (B,).

    Args:
        real: bool (B, C, 1, t).
    """
    real = ops.any(real, axis=(2, 3))  # (B, C)
    behind = ops.arange(1, ops.shape(real)[1] + 1, dtype="int32")
    return ops.max(ops.where(real, behind, 0), axis=1, initial=0)


def pairs_of_positions(pattern, size, outer, length, padding_mask=None):
    """The whole pattern, for scores of size T times T.

    Args:
        pattern: `BlockPattern`.
        size: int t.
        outer: int, tokens before the blocks, which see all and are seen by all.
        length: int or int tensor T.
        padding_mask: bool (B, T), or None.

    Returns: bool (B or 1, N, T, T), True where a query sees a key.
    """
    places = ops.expand_dims(ops.arange(length, dtype="int32"), 0) - outer
    real = ops.ones_like(places, dtype="bool")
    if padding_mask is not None:
        places = places - ops.expand_dims(first_real(padding_mask), 1)
        real = padding_mask
    own = places // size  # (B, T), below zero before the blocks
    count = count_blocks(length, size)
    used = ops.max(ops.where(real, own + 1, 0), axis=1, initial=0)
    numbers, counted = pattern.choose(used, count)
    seen = ops.one_hot(numbers, count)  # (B, C, N, J, C)
    seen = ops.sum(seen * ops.expand_dims(ops.cast(counted, seen.dtype), -1), axis=3)
    block = ops.expand_dims(ops.one_hot(own, count), 1)  # (B, 1, T, C)
    seen = ops.matmul(block, ops.transpose(seen, (0, 2, 1, 3)))
    seen = ops.greater(ops.matmul(seen, ops.transpose(block, (0, 1, 3, 2))), 0.5)
    before = ops.less(own, 0)
    last = ops.greater_equal(own, ops.expand_dims(used - pattern.last, 1))
    sees = ops.logical_or(ops.less(own, pattern.first), last)
    sees = ops.logical_or(
        ops.expand_dims(sees, (1, 3)), ops.expand_dims(before, (1, 2))
    )
    return ops.logical_or(seen, sees)
