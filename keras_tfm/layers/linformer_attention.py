"""Linformer: keys and values mixed along the length into a few.

Letters: B batch, T query length, S key-value length, D width of `inputs`, N heads, H
size of a head, L max_length, R rank.
"""

import keras
from keras import ops

from keras_tfm.layers.attention_projections import (
    make_projections,
    project_keys_values,
    project_output,
    project_queries,
    projections_of,
)
from keras_tfm.layers.cached_attention import make_cache
from keras_tfm.layers.dot_product_attention import attend
from keras_tfm.layers.heads import check_heads
from keras_tfm.layers.key_value_cache import check_built
from keras_tfm.layers.masks import as_rank_2, combine_masks
from keras_tfm.layers.parts import make_dropout
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.real_tokens_first import keep_first, moves_of, to_front
from keras_tfm.layers.values import refuse

SHARING = ("none", "headwise", "key_value")
MIXED = "its keys are mixtures of all positions"


@keras.saving.register_keras_serializable(package="keras_tfm")
class LinformerAttention(keras.layers.Layer):
    """Attention to R learned mixtures of the positions instead of S positions.

    Two matrices (L, R), trained, mix keys and values along the length, so time and
    memory grow with T times R. A shorter input uses their first rows: the n-th real
    token is mixed by row n, wherever padding stands. Every mixture knows the future,
    so the layer cannot be causal and says so.

    Args:
        num_heads: int N.
        max_length: int L, the longest S.
        rank: int R, mixtures.
        sharing: "none": two matrices a head; "headwise": two for all heads;
            "key_value": one for all heads, keys and values.
        key_dim: int H; D / N unless given.
        use_bias: bool, biases of the four projections.
        attention_dropout: float in [0, 1), on the attention weights, in training.
        kernel_initializer: initializer of the four projections.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        context: float (B, S, any width), what to attend to; `inputs` unless given.
        padding_mask: bool (B, S), True for real keys; joined with the implicit
            Keras mask of the keys.
        attention_mask, attention_bias, positions, use_causal_mask: refused.
        return_attention_scores: bool, also return the weights of the mixtures,
            (B, N, T, R).
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: heads that do not divide, an unknown `sharing`, a length past
            `max_length`, an argument that it cannot honour.

    Example:
        >>> layer = keras_tfm.layers.LinformerAttention(4, max_length=64, rank=8)
        >>> tuple(layer(keras.ops.zeros((2, 37, 16))).shape)
        (2, 37, 16)

    References: Wang et al. 2020, arXiv:2006.04768.
    """

    def __init__(
        self,
        num_heads,
        max_length,
        rank,
        sharing="none",
        key_dim=None,
        use_bias=True,
        attention_dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_heads(num_heads)
        if not 1 <= rank <= max_length:
            raise ValueError(
                f"`rank` must be in 1 ... `max_length`, got {rank} and {max_length}."
            )
        if sharing not in SHARING:
            raise ValueError(
                f'`sharing` must be "none", "headwise" or "key_value", got {sharing!r}.'
            )
        self.num_heads = num_heads
        self.max_length = max_length
        self.rank = rank
        self.sharing = sharing
        self.key_dim = key_dim
        self.use_bias = use_bias
        self.attention_dropout = attention_dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        make_projections(self, inputs_shape, context_shape)
        self.key_mixer = self._mixer("key_mixer")
        self.value_mixer = self.key_mixer
        if self.sharing != "key_value":
            self.value_mixer = self._mixer("value_mixer")
        self.drop = make_dropout(self, "attention_dropout", self.attention_dropout)

    def _mixer(self, name):
        """A matrix of any head, or one of all, that keeps the size of what it mixes."""
        heads = self.num_heads if self.sharing == "none" else 1
        return self.add_weight(
            shape=(heads, self.max_length, self.rank),
            initializer=keras.initializers.RandomNormal(stddev=self.max_length**-0.5),
            autocast=False,
            name=name,
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
        refuse(
            self,
            MIXED,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            positions=positions,
            use_causal_mask=use_causal_mask,
        )
        if context is None:
            context, context_mask = inputs, combine_masks(mask, inputs_mask)
        padding_mask = combine_masks(padding_mask, context_mask)
        return self._attend(
            project_queries(self, inputs),
            project_keys_values(self, context),
            padding_mask,
            return_attention_scores,
            dropout=self.drop if training and self.attention_dropout else None,
        )

    def init_cache(self, batch_size, max_length, context=None):
        """Keys and values of `context`, computed once, for cross-attention alone.

        Args:
            batch_size: int or int tensor B.
            max_length: int, without effect.
            context: float (B, S, width).

        Returns: dict of two tensors (B, N, S, H).

        Raises:
            ValueError: without `context`, since the layer is not causal.
        """
        check_built(self)
        if context is None:
            raise ValueError(
                "LinformerAttention is not causal, so it has a cache for "
                f"cross-attention alone: {MIXED}."
            )
        return make_cache(self, batch_size, max_length, context)

    def call_with_cache(
        self,
        inputs,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """Attention of new tokens to the context that is in the cache.

        Args:
            inputs: float (B, T, D).
            cache: what `init_cache` gave.
            cache_index: int32 scalar tensor, without effect.
            padding_mask: bool, of the new tokens; without effect.
            context_padding_mask: bool (B, S), True for real source tokens.
            positions: refused.

        Returns: pair of float (B, T, D) and the cache.
        """
        check_built(self)
        refuse(self, MIXED, positions=positions)
        pair = cache["context_key"], cache["context_value"]
        query = project_queries(self, inputs)
        return self._attend(query, pair, context_padding_mask), cache

    def _attend(
        self,
        query,
        key_value,
        padding_mask,
        return_attention_scores=False,
        dropout=None,
    ):
        length = key_value[0].shape[2]
        if length is not None and length > self.max_length:
            raise ValueError(
                f"The length must be at most `max_length` {self.max_length}, got "
                f"{length}."
            )
        if padding_mask is not None:
            key_value = _close_up(key_value, as_rank_2(padding_mask))
        mixers = self.key_mixer, self.value_mixer
        key, value = (_mix(m, x) for m, x in zip(mixers, key_value))
        heads = attend(
            query,
            key,
            value,
            dropout=dropout,
            return_attention_scores=return_attention_scores,
            implementation="dense",
        )
        heads, weights = heads if return_attention_scores else (heads, None)
        outputs = project_output(self, heads)
        return (outputs, weights) if return_attention_scores else outputs

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        shape = (*inputs.shape[:1], self.num_heads, inputs.shape[1], self.rank)
        return outputs, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, projections_of(self)),
            "num_heads": self.num_heads,
            "max_length": self.max_length,
            "rank": self.rank,
            "sharing": self.sharing,
            "key_dim": self.key_dim,
            "use_bias": self.use_bias,
            "attention_dropout": self.attention_dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _mix(mixer, x):
    """(N or 1, L, R) and (B, N, S, H) -> (B, N, R, H)."""
    mixer = ops.cast(mixer, x.dtype)[:, : ops.shape(x)[2]]
    return ops.matmul(ops.expand_dims(ops.transpose(mixer, (0, 2, 1)), 0), x)


def _close_up(key_value, padding_mask):
    """Keys and values with the real ones first, in order, and zeros after them."""
    batch, heads, length, _ = ops.shape(key_value[0])
    padding_mask = ops.broadcast_to(padding_mask, (batch, length))
    moves, counts = moves_of(ops.repeat(padding_mask, heads, axis=0))

    def close_up(x):
        rows = ops.reshape(x, (batch * heads, length, x.shape[3]))
        rows = keep_first(to_front(rows, moves), counts)
        return ops.reshape(rows, ops.shape(x))

    return tuple(map(close_up, key_value))
