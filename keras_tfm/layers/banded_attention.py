"""Attention to a few keys out of many, as plain attention of many short sequences.

A sequence is cut into blocks. Each block of queries becomes a sequence of its own in a
larger batch, and attends to the keys gathered for it: its own block, those beside it,
chosen tokens. So all is a few large products, and time and memory grow with T.

Letters: B batch, T length, S length of the keys, C number of blocks, t length of a
block, W keys gathered for a block, G tokens that all queries see, N query heads, K
key-value heads, H size of a head.
"""

from keras import ops

from keras_tfm.layers.dot_product_attention import attend
from keras_tfm.layers.length_blocks import count_blocks
from keras_tfm.layers.masks import as_rank_2, combine_masks

BLOCK = 128  # a length of blocks that is quick
MOST = 4  # a query's reach is cut into so many blocks at the most


class Band:
    """How a sequence is cut for queries that see the positions around their own.

    Args:
        reach: int, a query sees keys at most so many positions away.
        causal: bool, and none after its own.
    """

    def __init__(self, reach, causal):
        parts = min(max(round(reach / BLOCK), 1), MOST)
        self.reach, self.causal = reach, causal
        self.size = max(-(-reach // parts), BLOCK // 4)  # t
        self.before = -(-reach // self.size)  # blocks seen before a query's own
        self.after = 0 if causal else self.before
        self.width = (self.before + 1 + self.after) * self.size  # W

    def mask(self):
        """Which of the gathered keys are near, bool (t, W), the same for all blocks."""
        query = ops.arange(self.size, dtype="int32") + self.before * self.size
        key = ops.arange(self.width, dtype="int32")
        distance = ops.expand_dims(query, 1) - ops.expand_dims(key, 0)
        near = ops.less_equal(distance, self.reach)
        low = 0 if self.causal else -self.reach
        return ops.logical_and(near, ops.greater_equal(distance, low))

    def gather(self, x, count, past=0):
        """Keys, values or their mask for each block: (B, K, S, H) -> (B, C, K, W H).

        Args:
            x: begins `past` positions before the first query.
            count: int or int tensor C.
            past: int, at most the reach.
        """
        total = self.before + count + self.after
        first = self.before * self.size - past
        x = to_blocks(x, self.size, total, first)
        beside = range(self.before + 1 + self.after)
        return ops.concatenate([x[:, i : i + count] for i in beside], axis=3)


def to_blocks(x, size, count, first=0):
    """(B, N, T, H) -> (B, C, N, t H), with zeros where there is nothing.

    Args:
        x: the sequence.
        size: int t.
        count: int or int tensor C, enough for all.
        first: int, zeros before the sequence.
    """
    batch, heads, length, width = ops.shape(x)
    room = first, count * size - first - length
    x = ops.pad(x, ((0, 0), (0, 0), room, (0, 0)))
    x = ops.reshape(x, (batch, heads, count, size * width))
    return ops.transpose(x, (0, 2, 1, 3))


def for_all(x, count):
    """Tokens that every block sees: (B, K, G, H) -> (B, C, K, G H)."""
    batch, heads, length, width = ops.shape(x)
    x = ops.reshape(x, (batch, 1, heads, length * width))
    return ops.broadcast_to(x, (batch, count, heads, length * width))


def real_keys(padding_mask, key):
    """Which keys are tokens, bool (B, 1, S, 1).

    Args:
        padding_mask: bool (B or 1, S), or None for all.
        key: (B, K, S, H).
    """
    every = ops.ones_like(key[:, :1, :, :1], dtype="bool")
    if padding_mask is None:
        return every
    return ops.logical_and(every, ops.expand_dims(as_rank_2(padding_mask), (1, 3)))


def attend_blocks(query, key, value, real, width, near=None, **options):
    """Each block's queries attend to the keys gathered for it.

    Args:
        query: float (B, C, N, t H).
        key: float (B, C, K, W H).
        value: float (B, C, K, W H).
        real: bool (B, C, 1 or N, W), keys that count.
        width: int H.
        near: bool (t, W), or None.
        **options: of `attend`, for B C sequences of t queries and W keys.

    Returns: float (B, C t, N, H).
    """
    batch, count, heads, size = ops.shape(query)
    query, key, value = (_as_batch(x, width) for x in (query, key, value))
    keep = combine_masks(ops.expand_dims(_as_batch(real, 1)[..., 0], 2), near)
    outputs = attend(query, key, value, attention_mask=keep, **options)
    return ops.reshape(outputs, (batch, count * (size // width), heads, width))


def _as_batch(blocks, width):
    """(B, C, N, W H) -> (B C, N, W, H)."""
    batch, count, heads, size = ops.shape(blocks)
    return ops.reshape(blocks, (batch * count, heads, size // width, width))


def attend_band(
    query, key, value, band, padding_mask=None, past=0, leading=0, **options
):
    """Attention to the keys around each query, and to the first ones.

    Args:
        query: float (B, N, T, H).
        key: float (B, K, S, H).
        value: float (B, K, S, H).
        band: `Band`.
        padding_mask: bool (B, S), or None.
        past: int, keys before the first query; no more than the band reaches.
        leading: int G, the first keys, which every query sees.
        **options: of `attend_blocks`.

    Returns: float (B, T, N, H).
    """
    length, width = ops.shape(query)[2], query.shape[3]
    count = count_blocks(length, band.size)
    real, near = real_keys(padding_mask, key), band.mask()
    seen = real
    if leading:
        places = ops.arange(ops.shape(key)[2], dtype="int32")
        places = ops.expand_dims(ops.greater_equal(places, leading), 1)  # (S, 1)
        seen = ops.logical_and(real, places)
    gathered = [band.gather(x, count, past) for x in (key, value, seen)]
    if leading:
        first = [for_all(x[:, :, :leading], count) for x in (key, value, real)]
        gathered = [ops.concatenate(pair, axis=3) for pair in zip(first, gathered)]
        room = ops.shape(real[:, :, :leading])[2], 0
        near = ops.pad(near, ((0, 0), room), constant_values=True)
    blocks = to_blocks(query, band.size, count)
    return attend_blocks(blocks, *gathered, width, near=near, **options)[:, :length]
