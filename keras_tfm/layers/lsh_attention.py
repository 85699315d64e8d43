"""Reformer's attention: a token looks at tokens whose vectors point the same way.

Letters: B batch, T length, M cache length, D width of `inputs`, N heads, H size of a
head, G rounds.
"""

import random

import keras
from keras import ops

from keras_tfm.layers.attention_projections import project_heads, project_output
from keras_tfm.layers.bucket_attention import attend_in_buckets, weights_in_buckets
from keras_tfm.layers.hash_buckets import (
    buckets_of,
    check_buckets,
    draw_rotations,
)
from keras_tfm.layers.heads import attention_spec, check_heads, head_size
from keras_tfm.layers.key_value_cache import check_built, empty_cache, extend_cache
from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.parts import make_dense, make_dropout
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.values import refuse

BUCKETS = "it looks at a few tokens, chosen by hashing"


@keras.saving.register_keras_serializable(package="keras_tfm")
class LSHAttention(keras.layers.Layer):
    """Attention of each token to those of its bucket that are near it.

    Queries are keys too, and random rotations hash them into buckets, anew in each
    round. A token sees the tokens of its bucket that are fewer than `bucket_size`
    places away from it there, on both sides or, causal, before it; itself only if it
    has nobody else. Rounds are joined as one softmax. Time and memory grow with T
    times rounds times `bucket_size`.

    The rotations are a weight that is not trained: saved with the layer, the same at
    every call.

    Args:
        num_heads: int N.
        bucket_size: int, tokens that one sees on either side.
        num_buckets: 1, an even int, or several even ints: several cheap hashes make
            one bucket. About T / `bucket_size` in all.
        num_rounds: int G; more rounds find more of the likely tokens.
        key_dim: int H; D / N unless given.
        use_bias: bool, biases of the three projections.
        attention_dropout: float in [0, 1), on the attention weights, in training.
        kernel_initializer: initializer of the three projections.
        seed: int, of the rotations; a new one unless given.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        context: refused, since queries are the keys.
        padding_mask: bool (B, T), True for real tokens; joined with the implicit
            Keras mask.
        attention_mask, attention_bias, positions: refused.
        use_causal_mask: bool.
        return_attention_scores: bool, also return the weights (B, N, T, T), which
            takes memory that grows with T times T.
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: heads that do not divide, odd numbers of buckets, an argument
            that it cannot honour.

    Example:
        >>> layer = keras_tfm.layers.LSHAttention(num_heads=4, seed=0)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16)), use_causal_mask=True).shape)
        (2, 7, 16)

    References: Kitaev et al. 2020, Reformer, arXiv:2001.04451.
    """

    def __init__(
        self,
        num_heads,
        bucket_size=64,
        num_buckets=64,
        num_rounds=4,
        key_dim=None,
        use_bias=True,
        attention_dropout=0.0,
        kernel_initializer="glorot_uniform",
        seed=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_heads(num_heads)
        for name, value in (("bucket_size", bucket_size), ("num_rounds", num_rounds)):
            if value < 1:
                raise ValueError(f"`{name}` must be positive, got {value}.")
        self.num_heads = num_heads
        self.bucket_size = bucket_size
        self._factors = check_buckets(num_buckets)
        self.num_buckets = num_buckets
        self.num_rounds = num_rounds
        self.key_dim = key_dim
        self.use_bias = use_bias
        self.attention_dropout = attention_dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.supports_masking = True

    def build(self, inputs_shape):
        *outer, hidden_dim = inputs_shape
        key_dim = self.key_dim or head_size(self.num_heads, hidden_dim)
        self.key_shape = self.num_heads, key_dim
        width = self.num_heads * key_dim
        self.query_key = make_dense(self, "query_key", width, inputs_shape)
        self.value = make_dense(self, "value", width, inputs_shape)
        self.output_projection = make_dense(self, "output", hidden_dim, (*outer, width))
        self.drop = make_dropout(self, "attention_dropout", self.attention_dropout)
        self.rotations = None
        if self._factors != (1,):
            seed = random.randrange(2**31) if self.seed is None else self.seed
            drawn = draw_rotations(
                *self.key_shape, self.num_rounds, self._factors, seed
            )
            self.rotations = self.add_weight(
                shape=drawn.shape,
                initializer=lambda shape, dtype: ops.cast(drawn, dtype),
                trainable=False,
                autocast=False,
                name="rotations",
            )

    def call(
        self,
        inputs,
        context=None,
        padding_mask=None,
        attention_mask=None,
        attention_bias=None,
        positions=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
        inputs_mask=None,
        context_mask=None,
    ):
        refuse(self, "queries are the keys", context=context, context_mask=context_mask)
        refuse(
            self,
            BUCKETS,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            positions=positions,
        )
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        query_key, value, buckets = self._hashed(inputs)
        masks = {"padding_mask": padding_mask, "causal": use_causal_mask}
        dropout = self.drop if training and self.attention_dropout else None
        heads = attend_in_buckets(
            query_key, value, buckets, self.bucket_size, dropout=dropout, **masks
        )
        outputs = self._outputs(heads)
        if not return_attention_scores:
            return outputs
        weights = weights_in_buckets(
            query_key, query_key, buckets, buckets, self.bucket_size, 0, **masks
        )
        return outputs, ops.cast(weights, self.compute_dtype)

    def init_cache(self, batch_size, max_length, context=None):
        """Empty keys, values and buckets for `max_length` positions.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, positions that the cache holds.
            context: refused.

        Returns: dict of "key" and "value" (B, N, M, H), and "buckets" int32
            (B, N, M, G).
        """
        check_built(self)
        refuse(self, "queries are the keys", context=context)
        heads, key_dim = self.key_shape
        shape = batch_size, heads, max_length
        buckets = ops.zeros((*shape, self.num_rounds), "int32")
        buckets = ops.reshape(buckets, (-1, heads, max_length, self.num_rounds))
        pair = empty_cache((*shape, key_dim), self.compute_dtype)
        return {**pair, "buckets": buckets}

    def call_with_cache(
        self,
        inputs,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """Causal attention of new tokens to those in the cache and themselves.

        Args:
            inputs: float (B, T, D), the tokens at cache_index, cache_index + 1 ...
            cache: what `init_cache` or the last call gave.
            cache_index: int32 scalar tensor, how many positions are filled.
            padding_mask: bool (B, M), True for real tokens.
            context_padding_mask: refused.
            positions: refused.

        Returns: pair of float (B, T, D) and the cache with the new tokens.
        """
        check_built(self)
        refuse(self, "queries are the keys", context_padding_mask=context_padding_mask)
        refuse(self, BUCKETS, positions=positions)
        query_key, value, buckets = self._hashed(inputs)
        pair, _ = extend_cache(
            {name: cache[name] for name in ("key", "value")},
            query_key,
            value,
            cache_index,
        )
        start = (0, 0, cache_index, 0)
        cache = {**pair, "buckets": ops.slice_update(cache["buckets"], start, buckets)}
        length, width = ops.shape(query_key)[2:]
        if isinstance(length, int) and length <= self.bucket_size:
            weights = weights_in_buckets(
                query_key,
                cache["key"],
                buckets,
                cache["buckets"],
                self.bucket_size,
                cache_index,
                padding_mask,
                causal=True,
            )
            weights = ops.cast(weights, self.compute_dtype)
            return self._outputs(ops.matmul(weights, cache["value"])), cache
        heads = attend_in_buckets(  # of all, so that time grows with M, not T times M
            cache["key"],
            cache["value"],
            cache["buckets"],
            self.bucket_size,
            padding_mask,
            causal=True,
        )
        shape = (*ops.shape(heads)[:2], length, width)
        return self._outputs(ops.slice(heads, start, shape)), cache

    def _hashed(self, inputs):
        """Queries that are keys, values (B, N, T, H), buckets (B, N, T, G)."""
        query_key = project_heads(self, "query_key", inputs)
        value = project_heads(self, "value", inputs)
        hashes = self.rotations, self.num_rounds, self._factors
        return query_key, value, buckets_of(query_key, *hashes)

    def _outputs(self, heads):
        return project_output(self, ops.transpose(heads, (0, 2, 1, 3)))

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        return attention_spec(self, inputs, context, return_attention_scores)

    def get_config(self):
        parts = []
        if self.built:
            parts = [self.query_key, self.value, self.output_projection]
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, parts),
            "num_heads": self.num_heads,
            "bucket_size": self.bucket_size,
            "num_buckets": self.num_buckets,
            "num_rounds": self.num_rounds,
            "key_dim": self.key_dim,
            "use_bias": self.use_bias,
            "attention_dropout": self.attention_dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
