"""Exact attention block by block: neither pass ever holds T times S scores.

Letters: B batch, T query length, S key-value length, N query heads, K key-value heads,
G = N / K query heads that share a key-value head, H size of a head, t and s lengths of
a block of queries and of keys.
"""

import keras
from keras import ops

from keras_tfm.layers.attention_blocks import (
    AttentionBlocks,
    block_of,
    put_block,
    zero,
)
from keras_tfm.layers.block_dropout import drop_block
from keras_tfm.layers.heads import fold_groups

LOW = -1e30


def attend_blockwise(
    query,
    key,
    value,
    attention_bias=None,
    logit_soft_cap=None,
    scale=1.0,
    dropout_rate=0.0,
    dropout_seed=None,
    **masks,
):
    """`attend` with memory that grows with T + S, not with T times S.

    The softmax is kept up to date as blocks of keys come; the gradient computes the
    scores again. Blocks that a causal mask or a window empties are left out. Dropout
    draws by the place of each weight, the same in both passes. First gradients only.

    Args:
        query: float (B, N, T, H).
        key: float (B, K, S, H).
        value: float (B, K, S, H).
        attention_bias: float or None, see `scaled_dot_product_attention`; it has a
            gradient.
        logit_soft_cap: float or None.
        scale: float.
        dropout_rate: float in [0, 1), of the attention weights.
        dropout_seed: int tensor of two numbers, with a rate above 0.
        **masks: of `AttentionBlocks`.

    Returns: float (B, N, T, H).

    References:
        Milakov and Gimelshein 2018 (softmax of a stream), arXiv:1805.02867; Rabe and
        Staats 2021 (memory), arXiv:2112.05682; Dao et al. 2022, arXiv:2205.14135.
    """
    lengths = ops.shape(query)[2], ops.shape(key)[2]
    blocks = AttentionBlocks(*lengths, **masks)
    passes = _Passes(blocks, query.dtype, logit_soft_cap, dropout_rate, dropout_seed)

    @ops.custom_gradient
    def run(query, key, value, *bias):
        padded = [
            blocks.pad_queries(query * ops.cast(scale, query.dtype)),
            blocks.pad_keys(key),
            blocks.pad_keys(value),
            *map(blocks.pad_pairs, bias),
        ]
        outputs, sums = passes.forward(*padded)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            found = passes.backward(padded, outputs, sums, upstream)
            found[0] = found[0] * scale
            wanted = (query, key, value, *bias)
            return tuple(ops.cast(g, x.dtype) for g, x in zip(found, wanted))

        return outputs[:, :, : ops.shape(query)[2]], gradient

    bias = []
    if attention_bias is not None:
        missing = 4 - len(attention_bias.shape)
        bias = [ops.expand_dims(attention_bias, tuple(range(missing)))]
    return run(query, key, value, *bias)


class _Passes:
    """The two passes of one attention, over its blocks."""

    def __init__(self, blocks, dtype, logit_soft_cap, dropout_rate, dropout_seed):
        self.blocks, self.cap = blocks, logit_soft_cap
        self.rate, self.seed = dropout_rate, dropout_seed
        self.wide = keras.backend.result_type(dtype, "float32")

    def forward(self, query, key, value, *bias):
        """Outputs (B, N, T, H), and log of each row's sum of exp(scores)."""

        def rows(i, outputs, sums):
            block = block_of(query, i, self.blocks.size)
            one = ops.cast(block[..., :1], self.wide)

            def step(j, best, total, mixed):
                scores, keep, _ = self._scores(block, key, i, j, *bias)
                top = ops.max(scores, axis=-1, keepdims=True, initial=LOW)
                higher = ops.maximum(best, top)
                weights = _kept(keep, ops.exp(scores - higher))
                shrink = ops.exp(best - higher)
                total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
                new = self._mix(self._drop(weights, i, j), value, j)
                return j + 1, higher, total, mixed * shrink + new

            first, end = self.blocks.keys_of(i)
            _, best, total, mixed = ops.while_loop(
                lambda j, *_: ops.less(j, end),
                step,
                (
                    first,
                    ops.full_like(one, LOW),
                    ops.zeros_like(one),
                    ops.zeros_like(one) * ops.zeros((value.shape[3],), self.wide),
                ),
            )
            total = ops.where(total > 0, total, 1.0)  # a row without a key is zero
            mixed = ops.cast(mixed / total, outputs.dtype)
            sums = put_block(sums, best + ops.log(total), i, self.blocks.size)
            return i + 1, put_block(outputs, mixed, i, self.blocks.size), sums

        state = (
            zero(),
            ops.zeros_like(query[..., :1]) * ops.zeros((value.shape[3],), value.dtype),
            ops.zeros_like(query[..., :1], dtype=self.wide),
        )
        _, outputs, sums = ops.while_loop(
            lambda i, *_: ops.less(i, self.blocks.count), rows, state
        )
        return outputs, sums

    def backward(self, padded, outputs, sums, upstream):
        """Gradients of (scaled) queries, keys, values and perhaps the bias."""
        query, key, value, *bias = padded
        length = ops.shape(upstream)[2]
        upstream = self.blocks.pad_queries(ops.cast(upstream, outputs.dtype))
        inner = ops.sum(
            ops.cast(upstream, self.wide) * ops.cast(outputs, self.wide),
            axis=-1,
            keepdims=True,
        )  # (B, N, T, 1): the softmax's own share

        def columns(j, query_grad, key_grad, value_grad, *bias_grad):
            key_block = block_of(key, j, self.blocks.key_size)
            value_block = block_of(value, j, self.blocks.key_size)
            heads = value.shape[1]

            def step(i, query_grad, key_part, value_part, *bias_grad):
                block = block_of(query, i, self.blocks.size)
                above = block_of(upstream, i, self.blocks.size)
                scores, keep, slope = self._scores(block, key, i, j, *bias)
                sum_block = block_of(sums, i, self.blocks.size)
                weights = _kept(keep, ops.exp(scores - sum_block))  # (B, N, t, s)
                folded = fold_groups(above, heads)  # (B, K, G t, H)
                dropped = fold_groups(self._drop(weights, i, j), heads)
                dropped = ops.cast(dropped, value.dtype)
                value_part = value_part + ops.cast(
                    ops.matmul(ops.transpose(dropped, (0, 1, 3, 2)), folded), self.wide
                )
                change = ops.matmul(folded, ops.transpose(value_block, (0, 1, 3, 2)))
                change = ops.reshape(ops.cast(change, self.wide), ops.shape(weights))
                change = self._drop(change, i, j) - block_of(inner, i, self.blocks.size)
                change = weights * change
                if bias_grad:
                    bias_grad = [self.blocks.add_pairs(bias_grad[0], change, i, j)]
                change = fold_groups(ops.cast(change * slope, key.dtype), heads)
                new = ops.matmul(change, key_block)  # (B, K, G t, H)
                new = ops.reshape(ops.cast(new, self.wide), ops.shape(block))
                new = new + block_of(query_grad, i, self.blocks.size)
                key_part = key_part + ops.cast(
                    ops.matmul(
                        ops.transpose(change, (0, 1, 3, 2)), fold_groups(block, heads)
                    ),
                    self.wide,
                )
                query_grad = put_block(query_grad, new, i, self.blocks.size)
                return i + 1, query_grad, key_part, value_part, *bias_grad

            first, end = self.blocks.queries_of(j)
            nothing = [
                ops.zeros_like(x, dtype=self.wide) for x in (key_block, value_block)
            ]
            _, query_grad, key_part, value_part, *bias_grad = ops.while_loop(
                lambda i, *_: ops.less(i, end),
                step,
                (first, query_grad, *nothing, *bias_grad),
            )
            key_grad = put_block(key_grad, key_part, j, self.blocks.key_size)
            value_grad = put_block(value_grad, value_part, j, self.blocks.key_size)
            return j + 1, query_grad, key_grad, value_grad, *bias_grad

        state = [ops.zeros_like(x, dtype=self.wide) for x in padded]
        _, query_grad, key_grad, value_grad, *bias_grad = ops.while_loop(
            lambda j, *_: ops.less(j, self.blocks.key_count), columns, (zero(), *state)
        )
        key_length = ops.shape(key)[2] - self.blocks.key_room
        found = [query_grad[:, :, :length]]
        found += [x[:, :, :key_length] for x in (key_grad, value_grad)]
        for x in bias_grad:
            rows = length if x.shape[2] != 1 else 1
            found.append(x[:, :, :rows, : key_length if x.shape[3] != 1 else 1])
        return found

    def _scores(self, block, key, i, j, *bias):
        """Scores (B, N, t, s), where they count, and the soft cap's slope."""
        key_block = block_of(key, j, self.blocks.key_size)
        folded = fold_groups(block, key.shape[1])
        scores = ops.matmul(folded, ops.transpose(key_block, (0, 1, 3, 2)))
        batch, heads, length, _ = ops.shape(block)
        shape = batch, heads, length, self.blocks.key_size
        scores, slope = ops.reshape(ops.cast(scores, self.wide), shape), 1.0
        if self.cap is not None:
            bent = ops.tanh(scores / self.cap)
            scores, slope = self.cap * bent, 1.0 - bent * bent
        if bias:
            scores = scores + ops.cast(self.blocks.pairs(bias[0], i, j), self.wide)
        keep = self.blocks.keep(i, j)
        return scores if keep is None else ops.where(keep, scores, LOW), keep, slope

    def _mix(self, weights, value, j):
        """(B, N, t, s) times the values of block j, (B, N, t, H)."""
        folded = fold_groups(ops.cast(weights, value.dtype), value.shape[1])
        mixed = ops.matmul(folded, block_of(value, j, self.blocks.key_size))
        shape = *ops.shape(weights)[:3], value.shape[3]
        return ops.reshape(ops.cast(mixed, self.wide), shape)

    def _drop(self, x, i, j):
        blocks = self.blocks
        place = i * blocks.size, j * blocks.key_size
        return drop_block(x, self.rate, self.seed, place, blocks.count * blocks.size)


def _kept(keep, weights):
    return weights if keep is None else ops.where(keep, weights, 0.0)
