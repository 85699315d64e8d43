"""Attention inside buckets: each token to those near it among its bucket's tokens.

Tokens are sorted by (bucket, position) and cut into chunks of C. Whoever is fewer than
C places away in its bucket then stands in the same chunk or in one beside it. Who is
that near does not depend on later tokens, other buckets or padding.

Letters: B batch, N heads, R = B N, G rounds, T query length, S key length, H size of a
head, C length of a chunk, n chunks in all rounds, W length of neighbouring chunks.
"""

import math

import keras
from keras import ops

from keras_tfm.layers.length_blocks import cut_length
from keras_tfm.layers.masks import as_rank_2
from keras_tfm.layers.row_order import invert_order, permute_rows

LOW = -1e30
SELF = -1e5  # log weight of a round in which a token has nobody but itself
NOBODY, NO_KEY = -1, -2  # buckets of padding, as queries and as keys


def attend_in_buckets(
    query_key, value, buckets, size, padding_mask=None, causal=False, dropout=None
):
    """Attention with the queries as keys, over rounds of buckets.

    Args:
        query_key: float (B, N, T, H).
        value: float (B, N, T, H).
        buckets: int32 (B, N, T, G).
        size: int C; a token sees those fewer than C places away in its bucket.
        padding_mask: bool (B, T) or None, True for real tokens.
        causal: bool.
        dropout: callable or None, on the weights.

    Returns: float (B, N, T, H).
    """
    batch, heads, length, width = ops.shape(query_key)
    places = _Sorted(buckets, size, padding_mask)
    size = places.size
    pairs = places.sort(ops.concatenate([query_key, value], axis=-1))
    query, mixed = pairs[..., :width], pairs[..., width:]  # (R, n, C, H)

    scores = _scores(query, _neighbours(unit(query), causal))  # (R, n, C, W)
    across = ops.where(places.buckets < 0, NO_KEY, places.buckets)
    across = ops.expand_dims(_neighbours(across, causal, NO_KEY), 2)  # (R, n, 1, W)
    keep = ops.equal(ops.expand_dims(places.buckets, 3), across)
    keep = ops.logical_and(keep, _window(size, causal))
    weights, total, sums = _exponentials(scores, keep)
    weights = ops.cast(weights, value.dtype)
    weights = weights if dropout is None else dropout(weights)
    found = ops.matmul(weights, _neighbours(mixed, causal))  # (R, n, C, H)
    mixed = ops.where(total > 0, found / ops.cast(_or_one(total), value.dtype), mixed)

    mixed = ops.concatenate([ops.cast(mixed, sums.dtype), sums], axis=-1)
    mixed = places.unsort(mixed)  # (R, G, S, H + 1)
    shares = ops.softmax(mixed[..., -1:], axis=1) if places.rounds > 1 else 1.0
    mixed = ops.sum(shares * mixed[..., :-1], axis=1)[:, :length]
    mixed = ops.cast(ops.reshape(mixed, (batch, heads, length, width)), value.dtype)
    if padding_mask is None:
        return mixed
    return ops.where(ops.expand_dims(padding_mask, (1, 3)), mixed, 0)


def weights_in_buckets(
    query,
    query_key,
    buckets,
    all_buckets,
    size,
    offset,
    padding_mask=None,
    causal=False,
):
    """The weights of `attend_in_buckets`, for a few queries or to look at.

    Args:
        query: float (B, N, T, H).
        query_key: float (B, N, S, H), of all tokens, those of the queries too.
        buckets: int32 (B, N, T, G), of the queries.
        all_buckets: int32 (B, N, S, G).
        size: int C.
        offset: int or int32 scalar tensor, place of the first query among the keys.
        padding_mask: bool (B, S) or None, True for real tokens.
        causal: bool.

    Returns: float32 (B, N, T, S).
    """
    scores = _scores(query, unit(query_key))
    rows = ops.arange(ops.shape(query)[2], dtype="int32") + offset
    rows, columns = ops.expand_dims(rows, 1), ops.arange(ops.shape(query_key)[2])
    columns = ops.expand_dims(ops.cast(columns, "int32"), 0)
    past, same = columns <= rows, ops.equal(columns, rows)
    before_or_beside = columns < rows if causal else columns != rows
    real = (
        None
        if padding_mask is None
        else ops.expand_dims(as_rank_2(padding_mask), (1, 2))
    )
    found = []
    for i in range(buckets.shape[3]):
        across = ops.transpose(all_buckets[..., i : i + 1], (0, 1, 3, 2))
        keep = ops.equal(buckets[..., i : i + 1], across)  # (B, N, T, S)
        if real is not None:
            keep = ops.logical_and(keep, real)
        count = ops.cast(keep, "int32")
        before = ops.where(past, count, 0)
        place = ops.sum(before, axis=-1, keepdims=True) - ops.cumsum(count, axis=-1)
        keep = ops.logical_and(keep, ops.abs(place) < size)
        keep = ops.logical_and(keep, before_or_beside)
        weight, total, sums = _exponentials(scores, keep)
        alone = ops.cast(ops.logical_and(total == 0, same), weight.dtype)
        found.append((weight / _or_one(total) + alone, sums))
    weights, sums = zip(*found)
    if len(found) > 1:
        shares = ops.softmax(ops.concatenate(sums, axis=-1), axis=-1)  # (B, N, T, G)
        weights = [w * shares[..., i : i + 1] for i, w in enumerate(weights)]
    weights = sum(weights)
    if real is None:
        return weights
    asked = ops.any(ops.logical_and(real, same), axis=-1, keepdims=True)
    return ops.where(asked, weights, 0.0)


def unit(x):
    """Keys: vectors of length one, so that a score is the query's length at most."""
    wide = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    mean = ops.mean(ops.square(wide), axis=-1, keepdims=True)
    return ops.cast(wide * ops.rsqrt(mean + 1e-6) / math.sqrt(x.shape[-1]), x.dtype)


def _scores(query, key):
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    return ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))


def _exponentials(scores, keep):
    """Weights that are not divided yet, their sum, and its logarithm.

    Whoever sees nobody has a sum of zero and a logarithm of SELF.
    """
    scores = ops.where(keep, scores, LOW)
    best = ops.max(scores, axis=-1, keepdims=True, initial=SELF)
    best = ops.stop_gradient(best)
    weights = ops.exp(scores - best)
    total = ops.sum(weights, axis=-1, keepdims=True)
    return weights, total, best + ops.log(_or_one(total))


def _or_one(total):
    return ops.where(total > 0, total, 1.0)


def _window(size, causal):
    """Which neighbours, but the token itself, are fewer than C away: bool (C, W)."""
    places = ops.expand_dims(ops.arange(size, dtype="int32") + size, 1)
    columns = ops.arange((2 if causal else 3) * size, dtype="int32")
    distance = places - ops.expand_dims(columns, 0)
    other = distance > 0 if causal else distance != 0
    return ops.logical_and(ops.abs(distance) < size, other)


def _neighbours(x, causal, fill=0):
    """(R, n, C, ...) -> (R, n, W, ...): the chunk before, itself, the one after."""
    room = [(0, 0), (1, 0 if causal else 1)] + [(0, 0)] * (len(x.shape) - 2)
    padded = ops.pad(x, room, constant_values=fill)
    parts = [padded[:, :-1], x] if causal else [padded[:, :-2], x, padded[:, 2:]]
    return ops.concatenate(parts, axis=2)


class _Sorted:
    """Tokens sorted by (bucket, position) in every round, in whole chunks.

    S is T and what the last chunk lacks.
    """

    def __init__(self, buckets, size, padding_mask):
        batch, heads, length, self.rounds = ops.shape(buckets)
        self.rows = batch * heads
        self.size, count, self.room = cut_length(length, size)
        self.chunks = self.rows, self.rounds * count, self.size
        self.length = length + self.room
        buckets = ops.transpose(buckets, (0, 1, 3, 2))  # (B, N, G, T)
        if padding_mask is not None:
            real = ops.expand_dims(as_rank_2(padding_mask), (1, 2))
            buckets = ops.where(real, buckets, NOBODY)
        room = ((0, 0), (0, 0), (0, 0), (0, self.room))
        buckets = ops.pad(buckets, room, constant_values=NOBODY)
        places = ops.arange(self.length, dtype="int32")
        keys = ops.sort(buckets * self.length + places, axis=-1)  # (B, N, G, S)
        order = ops.mod(keys, self.length)
        starts = ops.arange(self.rows * self.rounds, dtype="int32") * self.length
        order = ops.reshape(order, (-1, self.length)) + ops.expand_dims(starts, 1)
        self.order = ops.reshape(order, (-1,))  # of rows of (R, G, S), flattened
        self.undo = invert_order(self.order)
        # Buckets of different rounds are different.
        buckets = ops.floor_divide(keys, self.length)
        round_of = ops.expand_dims(ops.arange(self.rounds, dtype="int32"), 1)
        buckets = ops.where(buckets < 0, NOBODY, buckets * self.rounds + round_of)
        self.buckets = ops.reshape(buckets, self.chunks)  # (R, n, C)

    def sort(self, x):
        """(B, N, T, width) -> (R, n, C, width)."""
        width = x.shape[-1]
        x = ops.pad(x, ((0, 0), (0, 0), (0, self.room), (0, 0)))
        x = ops.reshape(x, (self.rows, 1, self.length, width))
        x = ops.broadcast_to(x, (self.rows, self.rounds, self.length, width))
        x = permute_rows(ops.reshape(x, (-1, width)), self.order, self.undo)
        return ops.reshape(x, (*self.chunks, width))

    def unsort(self, x):
        """(R, n, C, width) -> (R, G, S, width)."""
        width = x.shape[-1]
        x = permute_rows(ops.reshape(x, (-1, width)), self.undo, self.order)
        return ops.reshape(x, (self.rows, self.rounds, self.length, width))
