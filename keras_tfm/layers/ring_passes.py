"""Exact attention over a sequence that is cut into shards, which pass keys round.

Letters: B batch, T query length, S key-value length, N query heads, K key-value heads,
G = N / K, H size of a head, R shards, C length of a chunk: half a shard.

A shard holds chunk r from the front and chunk r from the back, so that under a causal
mask all shards have the same work. The shards are the first axis of every tensor; a
turn of the ring moves the last to the front, which XLA makes a message to the next
device where the axis is spread over devices.
"""

import keras
from keras import ops

from keras_tfm.layers.length_blocks import count_blocks

LOW = -1e30


def attend_ring(query, key, value, padding_mask, num_shards, causal, spread, scale):
    """Softmax attention, R blocks of keys one after the other, for all shards at once.

    Neither pass holds more than R blocks of G C times C scores a head; the gradient
    computes them again.

    Args:
        query: float (B, N, T, H).
        key: float (B, K, S, H).
        value: float (B, K, S, H).
        padding_mask: bool (B or 1, S), True for real keys.
        num_shards: int R.
        causal: bool, then S must be T.
        spread: function of a tensor (R, B K, length, width), which lays its first axis
            on devices; the identity in one process.
        scale: float.

    Returns: float (B, N, T, H).

    References: Liu et al. 2023, arXiv:2310.01889; Brandon et al. 2023 (chunks from both
        ends), arXiv:2311.09431.
    """
    groups = query.shape[1] // key.shape[1]
    ring = _Ring(num_shards, groups, causal, spread)
    keep = ops.expand_dims(padding_mask, (1, 3))  # (B, 1, S, 1)
    keep = ops.cast(keep, query.dtype) * ops.ones_like(key[..., :1])  # (B, K, S, 1)

    @ops.custom_gradient
    def run(query, key, value, keep):
        queries = ring.cut(query * ops.cast(scale, query.dtype), groups)
        keys = [ring.cut(x) for x in (key, value, keep)]
        outputs, sums = ring.forward(queries, keys)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            upstream = ring.cut(ops.cast(upstream, query.dtype), groups)
            found = ring.backward(queries, keys, outputs, sums, upstream)
            query_grad = ring.join(found[0], query, groups) * scale
            grads = (query_grad, *(ring.join(x, key) for x in found[1:]))
            pairs = zip(grads, (query, key, value))
            return *(ops.cast(g, x.dtype) for g, x in pairs), ops.zeros_like(keep)

        return ring.join(outputs, query, groups), gradient

    return run(query, key, value, keep)


class _Ring:
    """The shards of one attention, each as a pair of chunks, near and far."""

    def __init__(self, num_shards, groups, causal, spread):
        self.num_shards, self.groups = num_shards, groups
        self.causal, self.spread = causal, spread

    def cut(self, x, groups=1):
        """(B, G K, T, H) -> chunks near and far, (R, B K, G C, H) each."""
        count = 2 * self.num_shards
        batch, heads, length, width = ops.shape(x)
        size = count_blocks(length, count)
        x = ops.pad(x, ((0, 0), (0, 0), (0, count * size - length), (0, 0)))
        x = ops.reshape(x, (batch * heads, count, size, width))
        x = ops.transpose(x, (1, 0, 2, 3))  # (2 R, B N, C, H)
        rows = batch * (heads // groups)
        x = ops.reshape(x, (count, rows, groups * size, width))
        return self.spread(x[: self.num_shards]), self.spread(
            ops.flip(x[self.num_shards :], axis=0)
        )

    def join(self, halves, like, groups=1):
        """What `cut` makes, back in the shape of `like` (B, N, T, H)."""
        near, far = halves
        x = ops.concatenate([near, ops.flip(far, axis=0)], axis=0)
        batch, heads, length, _ = ops.shape(like)
        count, _, rows, width = ops.shape(x)
        size = rows // groups
        x = ops.reshape(x, (count, batch * heads, size, width))
        x = ops.transpose(x, (1, 0, 2, 3))
        x = ops.reshape(x, (batch, heads, count * size, width))
        return x[:, :, :length]

    def visits(self, turn):
        """Which chunks meet in a turn: pairs (of queries, of keys, on the diagonal).

        A chunk is 0, near, or 1, far, or depends on the shard: a tensor (R, 1, 1, 1),
        True for near.
        """
        if not self.causal:
            return [(i, j, False) for i in (0, 1) for j in (0, 1)]
        if turn == 0:
            return [(0, 0, True), (1, 0, False), (1, 1, True)]
        # Keys of an earlier shard: their near half is past, their far half future.
        earlier = ops.arange(self.num_shards, dtype="int32") >= turn
        earlier = ops.reshape(earlier, (self.num_shards, 1, 1, 1))
        return [(1, 0, False), (earlier, earlier, False)]

    def scores(self, query, key, keep, diagonal):
        """Scores (R, B K, G C, C) in float32 at least, and where they count."""
        wide = keras.backend.result_type(query.dtype, "float32")
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        keep = ops.transpose(keep, (0, 1, 3, 2)) > 0  # (R, B K, 1, C)
        if diagonal:
            rows = ops.arange(ops.shape(query)[2], dtype="int32")
            columns = ops.arange(ops.shape(key)[2], dtype="int32")
            rows = ops.expand_dims(rows % ops.shape(key)[2], 1)  # the groups' rows
            past = rows >= ops.expand_dims(columns, 0)
            keep = ops.logical_and(keep, past)
        return ops.cast(scores, wide), keep

    def turned(self, halves):
        """Chunks of the shard before."""
        rolled = (ops.concatenate([x[-1:], x[:-1]], axis=0) for x in halves)
        return tuple(map(self.spread, rolled))

    def forward(self, queries, keys):
        """Outputs as halves, and log of each row's sum of exp(scores)."""
        query, (key, value, keep) = queries, keys
        wide = keras.backend.result_type(query[0].dtype, "float32")
        state = []
        for half in query:
            row = ops.zeros_like(half[..., :1], dtype=wide)
            mixed = row * ops.zeros((value[0].shape[3],), wide)
            state.append((row + LOW, row, mixed))
        for turn in range(self.num_shards):
            for i, j, diagonal in self.visits(turn):
                pair = _pick(query, i), _pick(key, j), _pick(keep, j)
                scores, real = self.scores(*pair, diagonal)
                best, total, mixed = _pick(state, i)
                scores = ops.where(real, scores, LOW)
                top = ops.max(scores, axis=-1, keepdims=True, initial=LOW)
                higher = ops.maximum(best, top)
                weights = ops.where(real, ops.exp(scores - higher), 0.0)
                shrink = ops.exp(best - higher)
                total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
                new = ops.matmul(
                    ops.cast(weights, value[0].dtype), _pick(value, j)
                )  # (R, B K, G C, H)
                mixed = mixed * shrink + ops.cast(new, wide)
                state = _put(state, i, (higher, total, mixed))
            if turn + 1 < self.num_shards:
                key, value, keep = map(self.turned, (key, value, keep))
        outputs, sums = [], []
        for best, total, mixed in state:
            total = ops.where(total > 0, total, 1.0)  # a row without a key is zero
            outputs.append(ops.cast(mixed / total, value[0].dtype))
            sums.append(best + ops.log(total))
        return outputs, sums

    def backward(self, queries, keys, outputs, sums, upstream):
        """Gradients of (scaled) queries, keys and values, as halves."""
        key, value, keep = keys
        wide = sums[0].dtype
        inner = [
            ops.sum(ops.cast(a, wide) * ops.cast(b, wide), axis=-1, keepdims=True)
            for a, b in zip(upstream, outputs)
        ]
        query_grad, key_grad, value_grad = (
            [ops.zeros_like(x, dtype=wide) for x in halves]
            for halves in (queries, key, value)
        )
        for turn in range(self.num_shards):
            for i, j, diagonal in self.visits(turn):
                query, above = _pick(queries, i), _pick(upstream, i)
                scores, real = self.scores(
                    query, _pick(key, j), _pick(keep, j), diagonal
                )
                weights = ops.where(real, ops.exp(scores - _pick(sums, i)), 0.0)
                change = _outer(above, _pick(value, j))  # (R, B K, G C, C)
                change = weights * (ops.cast(change, wide) - _pick(inner, i))
                change = ops.cast(change, query.dtype)
                weights = ops.cast(weights, query.dtype)
                query_grad = _add(query_grad, i, ops.matmul(change, _pick(key, j)))
                key_grad = _add(key_grad, j, _across(change, query))
                value_grad = _add(value_grad, j, _across(weights, above))
            # The gradients go on with their keys, and are home after R turns.
            last = turn + 1 == self.num_shards
            key_grad, value_grad = map(self.turned, (key_grad, value_grad))
            if not last:
                key, value, keep = map(self.turned, (key, value, keep))
        return query_grad, key_grad, value_grad


def _pick(halves, which):
    """One of two halves, or of each shard its own; halves may be nests."""
    if isinstance(which, int):
        return halves[which]
    return keras.tree.map_structure(lambda a, b: ops.where(which, a, b), *halves)


def _put(halves, which, new):
    """The halves with one of them replaced, see `_pick`."""
    if isinstance(which, int):
        return [new if i == which else half for i, half in enumerate(halves)]
    near, far = (
        keras.tree.map_structure(lambda a, b: ops.where(here, a, b), new, half)
        for here, half in zip((which, ops.logical_not(which)), halves)
    )
    return [near, far]


def _add(halves, which, new):
    old = _pick(halves, which)
    return _put(halves, which, old + ops.cast(new, old.dtype))


def _outer(x, y):
    """(R, B, t, H) and (R, B, s, H) -> (R, B, t, s)."""
    return ops.matmul(x, ops.transpose(y, (0, 1, 3, 2)))


def _across(pairs, x):
    """(R, B, t, s) and (R, B, t, H) -> (R, B, s, H)."""
    return ops.matmul(ops.transpose(pairs, (0, 1, 3, 2)), x)
