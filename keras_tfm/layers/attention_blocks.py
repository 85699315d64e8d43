"""How an attention is cut into blocks: where they lie, what they see, what is masked.

Letters: B batch, T query length, S key-value length, N heads, H width of a head, t and
s lengths of a block of queries and of keys.
"""

from keras import ops

from keras_tfm.layers.length_blocks import cut_length
from keras_tfm.layers.masks import as_rank_2, as_rank_4, attention_keep

BLOCK = 512


class AttentionBlocks:
    """Blocks of queries, numbered by i, and of keys, numbered by j.

    Args:
        length: int or int32 scalar tensor T.
        key_length: int or int32 scalar tensor S.
        padding_mask: see `scaled_dot_product_attention`, as all that follow.
        attention_mask: bool or None.
        use_causal_mask: bool.
        window: int or None.
        query_offset: int or int32 scalar tensor.
    """

    def __init__(
        self,
        length,
        key_length,
        padding_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        window=None,
        query_offset=0,
    ):
        self.size, self.count, self.room = cut_length(length, BLOCK)
        self.key_size, self.key_count, self.key_room = cut_length(key_length, BLOCK)
        self.causal, self.window, self.offset = use_causal_mask, window, query_offset
        whole = isinstance(self.key_room, int) and not self.key_room
        if padding_mask is None and not whole:
            padding_mask = ops.ones((1, key_length), "bool")
        if padding_mask is not None:
            room = ((0, 0), (0, self.key_room))
            padding_mask = ops.pad(as_rank_2(padding_mask), room)
        self.padding_mask = padding_mask
        self.attention_mask = as_rank_4(attention_mask)
        if attention_mask is not None:
            self.attention_mask = self.pad_pairs(self.attention_mask)

    def pad_queries(self, x):
        """(B, N, T, H) as long as the blocks of queries together."""
        return ops.pad(x, ((0, 0), (0, 0), (0, self.room), (0, 0)))

    def pad_keys(self, x):
        """(B, N, S, H) as long as the blocks of keys together."""
        return ops.pad(x, ((0, 0), (0, 0), (0, self.key_room), (0, 0)))

    def pad_pairs(self, x):
        """A mask or bias (B, N, T, S), any axis perhaps 1, as long as the blocks."""
        rows = 0 if x.shape[2] == 1 else self.room
        columns = 0 if x.shape[3] == 1 else self.key_room
        return ops.pad(x, ((0, 0), (0, 0), (0, rows), (0, columns)))

    def pairs(self, x, i, j):
        """Block (i, j) of a mask or bias."""
        return ops.slice(x, *self._place(x, i, j))

    def add_pairs(self, x, change, i, j):
        """A bias's gradient with that of block (i, j) added."""
        start, shape = self._place(x, i, j)
        axes = tuple(axis for axis in range(4) if x.shape[axis] == 1)
        change = ops.sum(change, axis=axes, keepdims=True) if axes else change
        return ops.slice_update(x, start, ops.slice(x, start, shape) + change)

    def keep(self, i, j):
        """Where block (i, j) counts, see `attention_keep`; None: everywhere."""
        padding_mask, attention_mask = self.padding_mask, self.attention_mask
        if padding_mask is not None:
            start, rows = j * self.key_size, ops.shape(padding_mask)[0]
            padding_mask = ops.slice(padding_mask, (0, start), (rows, self.key_size))
        if attention_mask is not None:
            attention_mask = self.pairs(attention_mask, i, j)
        return attention_keep(
            (self.size, self.key_size),
            padding_mask,
            attention_mask,
            self.causal,
            self.window,
            self.offset + i * self.size - j * self.key_size,
        )

    def keys_of(self, i):
        """The blocks of keys, first and end, that queries of block i may see."""
        start = self.offset + i * self.size
        last, first, end = start + self.size - 1, zero(), self.key_count
        if self.window is not None:
            first = ops.maximum(start - self.window + 1, 0) // self.key_size
        if self.causal or self.window is not None:
            last = last if self.causal else last + self.window - 1
            end = ops.minimum(last // self.key_size + 1, end)
        return ops.cast(first, "int32"), ops.cast(end, "int32")

    def queries_of(self, j):
        """The blocks of queries, first and end, that may see keys of block j."""
        start = j * self.key_size - self.offset
        first, end = zero(), self.count
        if self.causal or self.window is not None:
            near = start if self.causal else start - self.window + 1
            first = ops.maximum(near, 0) // self.size
        if self.window is not None:
            last = start + self.key_size - 1 + self.window - 1
            end = ops.minimum((ops.maximum(last, -1) + self.size) // self.size, end)
        return ops.cast(first, "int32"), ops.cast(end, "int32")

    def _place(self, x, i, j):
        """Where block (i, j) of a mask or bias begins, and its shape."""
        outer = ops.shape(x)[:2]
        row, length = (0, 1) if x.shape[2] == 1 else (i * self.size, self.size)
        column, width = 0, 1
        if x.shape[3] != 1:
            column, width = j * self.key_size, self.key_size
        return (0, 0, row, column), (*outer, length, width)


def zero():
    """The number of the first block."""
    return ops.convert_to_tensor(0, "int32")


def block_of(x, number, size):
    """Block `number` of (B, N, length, H)."""
    batch, heads, _, width = ops.shape(x)
    return ops.slice(x, (0, 0, number * size, 0), (batch, heads, size, width))


def put_block(x, block, number, size):
    """(B, N, length, H) with one block replaced."""
    return ops.slice_update(x, (0, 0, number * size, 0), ops.cast(block, x.dtype))
