"""Exact attention block by block: neither pass ever holds T times S scores.

Letters: B batch, T query length, S key-value length, N query heads, K key-value heads,
G = N / K query heads that share a key-value head, H size of a head, t and s lengths of
a block of queries and of keys.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.heads import fold_groups
from keras_tfm.layers.masks import as_rank_4, attention_keep

BLOCK = 512
LOW = -1e30


def attend_blockwise(
    query,
    key,
    value,
    padding_mask=None,
    attention_mask=None,
    attention_bias=None,
    use_causal_mask=False,
    window=None,
    query_offset=0,
    logit_soft_cap=None,
    scale=1.0,
    dropout_rate=0.0,
    dropout_seed=None,
):
    """`attend` with memory that grows with T + S, not with T times S.

    The softmax is kept up to date as blocks of keys come; the gradient computes the
    scores again. Blocks that a causal mask or a window empties are left out. Dropout
    draws by the place of each weight, the same in both passes. First gradients only.

    Args:
        query: float (B, N, T, H).
        key: float (B, K, S, H).
        value: float (B, K, S, H).
        padding_mask: see `scaled_dot_product_attention`, as all up to `scale`.
        attention_mask: bool or None.
        attention_bias: float or None; it has a gradient.
        use_causal_mask: bool.
        window: int or None.
        query_offset: int or int32 scalar tensor.
        logit_soft_cap: float or None.
        scale: float.
        dropout_rate: float in [0, 1), of the attention weights.
        dropout_seed: int tensor of two numbers, with a rate above 0.

    Returns: float (B, N, T, H).

    References:
        Milakov and Gimelshein 2018 (softmax of a stream), arXiv:1805.02867; Rabe and
        Staats 2021 (memory), arXiv:2112.05682; Dao et al. 2022, arXiv:2205.14135.
    """
    blocks = _Blocks(
        query,
        key,
        padding_mask,
        attention_mask,
        use_causal_mask,
        window,
        query_offset,
        logit_soft_cap,
        dropout_rate,
        dropout_seed,
    )

    @ops.custom_gradient
    def run(query, key, value, *bias):
        padded = blocks.pad(query * ops.cast(scale, query.dtype), key, value, *bias)
        outputs, sums = blocks.forward(*padded)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            found = blocks.backward(padded, outputs, sums, upstream)
            found[0] = found[0] * scale
            wanted = (query, key, value, *bias)
            return tuple(ops.cast(g, x.dtype) for g, x in zip(found, wanted))

        return outputs[:, :, : ops.shape(query)[2]], gradient

    bias = []
    if attention_bias is not None:
        missing = 4 - len(attention_bias.shape)
        bias = [ops.expand_dims(attention_bias, tuple(range(missing)))]
    return run(query, key, value, *bias)


class _Blocks:
    """Lengths, masks and the two passes of one attention."""

    def __init__(
        self,
        query,
        key,
        padding_mask,
        attention_mask,
        use_causal_mask,
        window,
        query_offset,
        logit_soft_cap,
        dropout_rate,
        dropout_seed,
    ):
        length, key_length = ops.shape(query)[2], ops.shape(key)[2]
        self.size, self.count, self.room = _cut(length)
        self.key_size, self.key_count, self.key_room = _cut(key_length)
        self.wide = keras.backend.result_type(query.dtype, "float32")
        self.causal, self.window = use_causal_mask, window
        self.offset, self.cap = query_offset, logit_soft_cap
        self.rate, self.seed = dropout_rate, dropout_seed
        if self.key_room and padding_mask is None:
            padding_mask = ops.ones((1, key_length), "bool")
        if padding_mask is not None:
            room = ((0, 0), (0, self.key_room))
            padding_mask = ops.pad(ops.cast(padding_mask, "bool"), room)
        self.padding_mask = padding_mask
        self.attention_mask = as_rank_4(attention_mask)
        if attention_mask is not None:
            self.attention_mask = self._pad_pairs(self.attention_mask)

    def pad(self, query, key, value, *bias):
        """All tensors as long as their blocks together."""
        query = ops.pad(query, ((0, 0), (0, 0), (0, self.room), (0, 0)))
        room = ((0, 0), (0, 0), (0, self.key_room), (0, 0))
        return (
            query,
            ops.pad(key, room),
            ops.pad(value, room),
            *map(self._pad_pairs, bias),
        )

    def forward(self, query, key, value, *bias):
        """Outputs (B, N, T, H), and log of each row's sum of exp(scores)."""

        def rows(i, outputs, sums):
            block = _block(query, i, self.size)
            one = ops.cast(block[..., :1], self.wide)

            def step(j, best, total, mixed):
                scores, keep, _ = self._scores(block, key, i, j, *bias)
                higher = ops.maximum(best, ops.max(scores, axis=-1, keepdims=True))
                weights = _kept(keep, ops.exp(scores - higher))
                shrink = ops.exp(best - higher)
                total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
                new = self._mix(self._drop(weights, i, j), value, j)
                return j + 1, higher, total, mixed * shrink + new

            first, end = self._keys_of(i)
            _, best, total, mixed = ops.while_loop(
                lambda j, *_: ops.less(j, end),
                step,
                (
                    first,
                    ops.full_like(one, LOW),
                    ops.zeros_like(one),
                    one * ops.zeros((value.shape[3],), self.wide),
                ),
            )
            total = ops.where(total > 0, total, 1.0)  # a row without a key is zero
            mixed = ops.cast(mixed / total, outputs.dtype)
            sums = _put(sums, best + ops.log(total), i, self.size)
            return i + 1, _put(outputs, mixed, i, self.size), sums

        state = (
            _zero(),
            ops.zeros_like(query[..., :1]) * ops.zeros((value.shape[3],), value.dtype),
            ops.zeros_like(query[..., :1], dtype=self.wide),
        )
        _, outputs, sums = ops.while_loop(
            lambda i, *_: ops.less(i, self.count), rows, state
        )
        return outputs, sums

    def backward(self, padded, outputs, sums, upstream):
        """Gradients of (scaled) queries, keys, values and perhaps the bias."""
        query, key, value, *bias = padded
        length = ops.shape(upstream)[2]
        room = ((0, 0), (0, 0), (0, self.room), (0, 0))
        upstream = ops.pad(ops.cast(upstream, outputs.dtype), room)
        inner = ops.sum(
            ops.cast(upstream, self.wide) * ops.cast(outputs, self.wide),
            axis=-1,
            keepdims=True,
        )  # (B, N, T, 1): the softmax's own share

        def columns(j, query_grad, key_grad, value_grad, *bias_grad):
            key_block = _block(key, j, self.key_size)
            value_block = _block(value, j, self.key_size)
            heads = value.shape[1]

            def step(i, query_grad, key_part, value_part, *bias_grad):
                block = _block(query, i, self.size)
                above = _block(upstream, i, self.size)
                scores, keep, slope = self._scores(block, key, i, j, *bias)
                sum_block = _block(sums, i, self.size)
                weights = _kept(keep, ops.exp(scores - sum_block))  # (B, N, t, s)
                folded = fold_groups(above, heads)  # (B, K, G t, H)
                dropped = fold_groups(self._drop(weights, i, j), heads)
                dropped = ops.cast(dropped, value.dtype)
                value_part = value_part + ops.cast(
                    ops.matmul(ops.transpose(dropped, (0, 1, 3, 2)), folded), self.wide
                )
                change = ops.matmul(folded, ops.transpose(value_block, (0, 1, 3, 2)))
                change = ops.reshape(ops.cast(change, self.wide), ops.shape(weights))
                change = self._drop(change, i, j) - _block(inner, i, self.size)
                change = weights * change
                if bias_grad:
                    bias_grad = [self._add_pairs(bias_grad[0], change, i, j)]
                change = fold_groups(ops.cast(change * slope, key.dtype), heads)
                new = ops.matmul(change, key_block)  # (B, K, G t, H)
                new = ops.reshape(ops.cast(new, self.wide), ops.shape(block))
                new = new + _block(query_grad, i, self.size)
                key_part = key_part + ops.cast(
                    ops.matmul(
                        ops.transpose(change, (0, 1, 3, 2)), fold_groups(block, heads)
                    ),
                    self.wide,
                )
                query_grad = _put(query_grad, new, i, self.size)
                return i + 1, query_grad, key_part, value_part, *bias_grad

            first, end = self._queries_of(j)
            nothing = [
                ops.zeros_like(x, dtype=self.wide) for x in (key_block, value_block)
            ]
            _, query_grad, key_part, value_part, *bias_grad = ops.while_loop(
                lambda i, *_: ops.less(i, end),
                step,
                (first, query_grad, *nothing, *bias_grad),
            )
            key_grad = _put(key_grad, key_part, j, self.key_size)
            value_grad = _put(value_grad, value_part, j, self.key_size)
            return j + 1, query_grad, key_grad, value_grad, *bias_grad

        state = [ops.zeros_like(x, dtype=self.wide) for x in padded]
        _, query_grad, key_grad, value_grad, *bias_grad = ops.while_loop(
            lambda j, *_: ops.less(j, self.key_count), columns, (_zero(), *state)
        )
        key_length = ops.shape(key)[2] - self.key_room
        found = [query_grad[:, :, :length]]
        found += [x[:, :, :key_length] for x in (key_grad, value_grad)]
        for x in bias_grad:
            rows = length if x.shape[2] != 1 else 1
            found.append(x[:, :, :rows, : key_length if x.shape[3] != 1 else 1])
        return found

    def _scores(self, block, key, i, j, *bias):
        """Scores (B, N, t, s), where they count, and the soft cap's slope."""
        key_block = _block(key, j, self.key_size)
        folded = fold_groups(block, key.shape[1])
        scores = ops.matmul(folded, ops.transpose(key_block, (0, 1, 3, 2)))
        batch, heads, length, _ = ops.shape(block)
        shape = batch, heads, length, self.key_size
        scores, slope = ops.reshape(ops.cast(scores, self.wide), shape), 1.0
        if self.cap is not None:
            bent = ops.tanh(scores / self.cap)
            scores, slope = self.cap * bent, 1.0 - bent * bent
        if bias:
            scores = scores + ops.cast(self._pairs(bias[0], i, j), self.wide)
        keep = self._keep(i, j)
        return scores if keep is None else ops.where(keep, scores, LOW), keep, slope

    def _keep(self, i, j):
        padding_mask, attention_mask = self.padding_mask, self.attention_mask
        if padding_mask is not None:
            start, rows = j * self.key_size, ops.shape(padding_mask)[0]
            padding_mask = ops.slice(padding_mask, (0, start), (rows, self.key_size))
        if attention_mask is not None:
            attention_mask = self._pairs(attention_mask, i, j)
        return attention_keep(
            (self.size, self.key_size),
            padding_mask,
            attention_mask,
            self.causal,
            self.window,
            self.offset + i * self.size - j * self.key_size,
        )

    def _mix(self, weights, value, j):
        """(B, N, t, s) times the values of block j, (B, N, t, H)."""
        folded = fold_groups(ops.cast(weights, value.dtype), value.shape[1])
        mixed = ops.matmul(folded, _block(value, j, self.key_size))
        shape = *ops.shape(weights)[:3], value.shape[3]
        return ops.reshape(ops.cast(mixed, self.wide), shape)

    def _keys_of(self, i):
        """The blocks of keys, first and end, that queries of block i may see."""
        start = self.offset + i * self.size
        last, first, end = start + self.size - 1, _zero(), self.key_count
        if self.window is not None:
            first = ops.maximum(start - self.window + 1, 0) // self.key_size
        if self.causal or self.window is not None:
            last = last if self.causal else last + self.window - 1
            end = ops.minimum(last // self.key_size + 1, end)
        return ops.cast(first, "int32"), ops.cast(end, "int32")

    def _queries_of(self, j):
        """The blocks of queries, first and end, that may see keys of block j."""
        start = j * self.key_size - self.offset
        first, end = _zero(), self.count
        if self.causal or self.window is not None:
            near = start if self.causal else start - self.window + 1
            first = ops.maximum(near, 0) // self.size
        if self.window is not None:
            last = start + self.key_size - 1 + self.window - 1
            end = ops.minimum((ops.maximum(last, -1) + self.size) // self.size, end)
        return ops.cast(first, "int32"), ops.cast(end, "int32")

    def _drop(self, x, i, j):
        """Some entries of block (i, j) zero, always the same, the others larger."""
        if not self.rate:
            return x
        batch, heads, length, key_length = ops.shape(x)
        rows = ops.arange(batch * heads, dtype="int32")
        rows = ops.reshape(rows, (batch, heads, 1, 1)) * (self.count * self.size)
        rows = rows + i * self.size + ops.reshape(ops.arange(length), (length, 1))
        columns = j * self.key_size + ops.arange(key_length, dtype="int32")
        seed = ops.cast(self.seed, "uint32")
        noise = _scramble(ops.cast(rows, "uint32") + seed[0])
        noise = _scramble(noise + ops.cast(columns, "uint32") + seed[1])
        high = ops.right_shift(noise, 8)  # dialect: in training only
        uniform = ops.cast(high, "float32") * 2.0**-24
        kept = ops.cast(uniform >= self.rate, x.dtype)
        return x * kept / (1.0 - self.rate)

    def _pad_pairs(self, x):
        rows = 0 if x.shape[2] == 1 else self.room
        columns = 0 if x.shape[3] == 1 else self.key_room
        return ops.pad(x, ((0, 0), (0, 0), (0, rows), (0, columns)))

    def _place(self, x, i, j):
        """Where block (i, j) of a mask or bias begins, and its shape."""
        outer = ops.shape(x)[:2]
        row, length = (0, 1) if x.shape[2] == 1 else (i * self.size, self.size)
        column, width = 0, 1
        if x.shape[3] != 1:
            column, width = j * self.key_size, self.key_size
        return (0, 0, row, column), (*outer, length, width)

    def _pairs(self, x, i, j):
        return ops.slice(x, *self._place(x, i, j))

    def _add_pairs(self, x, change, i, j):
        """A bias's gradient with that of block (i, j) added."""
        start, shape = self._place(x, i, j)
        axes = tuple(axis for axis in range(4) if x.shape[axis] == 1)
        change = ops.sum(change, axis=axes, keepdims=True) if axes else change
        return ops.slice_update(x, start, ops.slice(x, start, shape) + change)


def _cut(length):
    """Length of a block, number of blocks and what is missing in the last one."""
    if isinstance(length, int):
        size = min(BLOCK, length)
        return size, -(-length // size), -length % size
    return BLOCK, (length + BLOCK - 1) // BLOCK, BLOCK  # at least what is missing


def _zero():
    return ops.convert_to_tensor(0, "int32")


def _block(x, number, size):
    batch, heads, _, width = ops.shape(x)
    return ops.slice(x, (0, 0, number * size, 0), (batch, heads, size, width))


def _put(x, block, number, size):
    return ops.slice_update(x, (0, 0, number * size, 0), ops.cast(block, x.dtype))


def _kept(keep, weights):
    return weights if keep is None else ops.where(keep, weights, 0.0)


def _scramble(x):
    """A hash of uint32 numbers: each bit of the input changes half of the output."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        shifted = ops.right_shift(x, shift)  # dialect: in training only
        x = ops.bitwise_xor(x, shifted)  # dialect: in training only
        x = x * np.uint32(factor)
    shifted = ops.right_shift(x, 16)  # dialect: in training only
    return ops.bitwise_xor(x, shifted)  # dialect: in training only
