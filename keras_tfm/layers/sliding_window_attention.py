"""Attention to the keys around each query, block by block, with a rolling cache.

Letters: B batch, T length, M cache length, D width, N query heads, K key-value heads, H
size of a head.
"""

import keras
from keras import ops

from keras_tfm.layers.attention_parts import (
    active_dropout,
    arguments_of,
    check_qk_norm,
    check_window,
    make_head_parts,
    take_arguments,
    with_relative_bias,
)
from keras_tfm.layers.attention_projections import (
    make_projections,
    project_keys_values,
    project_output,
    project_queries,
)
from keras_tfm.layers.banded_attention import Band
from keras_tfm.layers.cached_attention import make_cache, read_cache
from keras_tfm.layers.dilated_attention import attend_dilated, attend_dilated_densely
from keras_tfm.layers.heads import attention_spec
from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.values import (
    deserialize_values,
    given,
    recreate,
    refuse,
    serialize_value,
)


@keras.saving.register_keras_serializable(package="keras_tfm")
class SlidingWindowAttention(keras.layers.Layer):
    """Self-attention to the nearest keys only, in time and memory that grow with T.

    The numbers are those of `MultiHeadAttention(num_heads, window=window)` with the
    same weights, whose names and shapes are the same too. Causal, a query sees its own
    key and the `window` - 1 before it; else as many after it. With a `dilation` of d it
    sees every d-th of them, d times as far.

    Masks, biases and scores of size T times T are taken and given, but computed as
    densely as they are; all else is done in blocks.

    Args:
        num_heads: int N, query heads.
        window: int, keys that a causal query sees, its own included.
        dilation: int, steps between them.
        key_dim: int H; D / N unless given.
        num_key_value_heads: int K, divides N; N unless given.
        rotary: a `RotaryEmbedding` applied to queries and keys, or None.
        relative_bias: a layer such as `AlibiBias` or `RelativePositionBias`, or None;
            only without dilation.
        qk_norm: "rms" or "layer", norm over H of each query and key; None for none.
        logit_soft_cap: float or None, scores become cap * tanh(scores / cap).
        use_bias: bool, biases of the four projections.
        attention_dropout: float in [0, 1), on the attention weights, in training.
        kernel_initializer: initializer of the four projections.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D), any T.
        context: refused, a window is one of positions in the same sequence.
        padding_mask: bool (B, T), True for real tokens; joined with the implicit Keras
            mask.
        attention_mask: bool (T, T), (B, T, T), (B, 1, T, T) or (B, N, T, T).
        attention_bias: float, broadcasts to (B, N, T, T), added to the scores.
        positions: int (T,) or (B, T), for `rotary`; 0, 1, 2 ... unless given.
        use_causal_mask: bool.
        return_attention_scores: bool, also return the weights (B, N, T, T).
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: a `window` or `dilation` below 1, heads that do not divide, a
            `context`, `relative_bias` with dilation, `positions` without `rotary`.

    Example:
        >>> layer = keras_tfm.layers.SlidingWindowAttention(num_heads=4, window=64)
        >>> tuple(layer(keras.ops.zeros((2, 700, 16)), use_causal_mask=True).shape)
        (2, 700, 16)

    References:
        Beltagy et al. 2020, sec. 3.1, arXiv:2004.05150; Child et al. 2019,
        arXiv:1904.10509; rolling cache: Jiang et al. 2023, arXiv:2310.06825.
    """

    def __init__(
        self,
        num_heads,
        window,
        dilation=1,
        key_dim=None,
        num_key_value_heads=None,
        rotary=None,
        relative_bias=None,
        qk_norm=None,
        logit_soft_cap=None,
        use_bias=True,
        attention_dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        take_arguments(
            self,
            num_heads,
            key_dim,
            use_bias,
            attention_dropout,
            kernel_initializer,
            num_key_value_heads,
        )
        check_window(window)
        check_qk_norm(qk_norm)
        if dilation < 1:
            raise ValueError(f"`dilation` must be at least 1, got {dilation}.")
        if dilation > 1 and relative_bias is not None:
            raise ValueError(
                f"`relative_bias` needs a `dilation` of 1, got {dilation}."
            )
        self.window, self.dilation = window, dilation
        self.num_key_value_heads = num_key_value_heads
        self.rotary = recreate(rotary, "rotary", self)
        self.relative_bias = recreate(relative_bias, "relative_bias", self)
        self.qk_norm = qk_norm
        self.logit_soft_cap = logit_soft_cap
        # How many positions a causal query looks over, its own included.
        self._span = (window - 1) * dilation + 1

    def build(self, inputs_shape):
        make_projections(
            self, inputs_shape, num_key_value_heads=self.num_key_value_heads
        )
        make_head_parts(self, inputs_shape)

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
        self._refuse_context(context=context, context_mask=context_mask)
        query = project_queries(self, inputs, positions)
        key, value = project_keys_values(self, inputs, positions)
        options = {
            "padding_mask": combine_masks(padding_mask, mask, inputs_mask),
            "dropout": active_dropout(self, training),
        }
        band = Band(self.window - 1, use_causal_mask)
        pairs = given(
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
        )
        if not pairs and not self._is_short(query, band):
            heads = self._in_blocks(query, key, value, band, **options)
            return project_output(self, heads)
        causal = {"use_causal_mask": use_causal_mask}
        heads = self._dense(query, key, value, **causal, **pairs, **options)
        if return_attention_scores:
            return project_output(self, heads[0]), heads[1]
        return project_output(self, heads)

    def init_cache(self, batch_size, max_length, context=None):
        """Empty keys and values of the newest positions.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, positions that are to be read.
            context: refused.

        Returns: dict of two tensors (B, K, M, H), no longer than a query looks back.
        """
        self._refuse_context(context=context)
        return make_cache(self, batch_size, max_length, window=self._span)

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
            cache_index: int32 scalar tensor, how many positions were read.
            padding_mask: bool (B, M), True for real tokens.
            context_padding_mask: refused.
            positions: int (T,) or (B, T), for `rotary`; cache_index, ... unless given.

        Returns: pair of float (B, T, D) and the cache with the new tokens.
        """
        self._refuse_context(context_padding_mask=context_padding_mask)
        where = {"positions": positions, "window": self._span}
        heads, options, cache = read_cache(
            self, inputs, cache, cache_index, padding_mask, **where
        )
        query, key, value = heads
        band = Band(self.window - 1, True)
        rolled = cache["key"].shape[2] == self._span
        if not rolled or self._is_short(query, band):
            heads = self._dense(*heads, **options)
        else:  # the oldest position is out of sight
            place = {"padding_mask": options["padding_mask"][:, 1:]}
            place["past"] = self._span - 1
            key, value = key[:, :, 1:], value[:, :, 1:]
            heads = self._in_blocks(query, key, value, band, **place)
        return project_output(self, heads), cache

    def _refuse_context(self, **arguments):
        why = "a window is one of positions in the same sequence"
        refuse(self, why, **arguments)

    def _is_short(self, query, band):
        """Whether blocks would be no less work than all pairs."""
        length = query.shape[2]
        return length is not None and length <= band.width * self.dilation

    def _in_blocks(self, query, key, value, band, **options):
        one_block = (ops.zeros((1, 1, size, 1)) for size in (band.size, band.width))
        bias = with_relative_bias(self, *one_block, None, band.before * band.size)
        return attend_dilated(
            query,
            key,
            value,
            band,
            self.dilation,
            logit_soft_cap=self.logit_soft_cap,
            attention_bias=bias,
            **options,
        )

    def _dense(self, query, key, value, attention_bias=None, query_offset=0, **options):
        return attend_dilated_densely(
            query,
            key,
            value,
            self._span,
            self.dilation,
            query_offset,
            logit_soft_cap=self.logit_soft_cap,
            attention_bias=with_relative_bias(
                self, query, key, attention_bias, query_offset
            ),
            **options,
        )

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        return attention_spec(self, inputs, context, return_attention_scores)

    def get_config(self):
        return {
            **super().get_config(),
            **arguments_of(self),
            "window": self.window,
            "dilation": self.dilation,
            "num_key_value_heads": self.num_key_value_heads,
            "rotary": serialize_value(self.rotary),
            "relative_bias": serialize_value(self.relative_bias),
            "qk_norm": self.qk_norm,
            "logit_soft_cap": self.logit_soft_cap,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("rotary", "relative_bias")))
