"""Multi-head attention: self, cross, grouped, windowed, with a cache.

Letters: B batch, T query length, S key-value length, M cache length, D width of
`inputs`, N query heads, K key-value heads, H size of a head.
"""

import keras

from keras_tfm.layers.attention_parts import (
    active_dropout,
    check_qk_norm,
    check_window,
    make_head_parts,
    with_relative_bias,
)
from keras_tfm.layers.attention_projections import (
    make_projections,
    project_keys_values,
    project_output,
    project_queries,
    projections_of,
)
from keras_tfm.layers.cached_attention import make_cache, read_cache
from keras_tfm.layers.dot_product_attention import attend
from keras_tfm.layers.heads import attention_spec, check_heads
from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.values import deserialize_values, recreate, serialize_value


@keras.saving.register_keras_serializable(package="keras_tfm")
class MultiHeadAttention(keras.layers.Layer):
    """Attention with several heads, between one sequence and itself or another.

    Projects `inputs` to N queries and `context` (or `inputs`) to K keys and values
    of size H, mixes the values and projects back to D.

    Args:
        num_heads: int N, query heads.
        key_dim: int H; D / N unless given.
        num_key_value_heads: int K, divides N; N unless given (1: multi-query).
        rotary: a `RotaryEmbedding` applied to queries and keys, or None.
        relative_bias: a layer such as `AlibiBias` or `RelativePositionBias` that
            makes a bias from the lengths, or None.
        window: int or None, a query sees keys fewer than `window` positions away.
        qk_norm: "rms" or "layer", norm over H of each query and key; None for none.
        logit_soft_cap: float or None, scores become cap * tanh(scores / cap).
        use_bias: bool, biases of the four projections.
        attention_dropout: float in [0, 1), on the attention weights, in training.
        kernel_initializer: initializer of the four projections.
        implementation: "auto", "dense" or "blockwise", see
            `scaled_dot_product_attention`.
        use_output_bias: bool, bias of the output projection; `use_bias` unless
            given (Qwen2 has biases on queries, keys and values alone).
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        context: float (B, S, any width), what to attend to; `inputs` unless given.
        padding_mask: bool (B, S), True for real keys; joined with the implicit
            Keras mask of the keys.
        attention_mask: bool (T, S), (B, T, S), (B, 1, T, S) or (B, N, T, S).
        attention_bias: float, broadcasts to (B, N, T, S), added to the scores.
        positions: int (T,) or (B, T), for `rotary`; 0, 1, 2 ... unless given.
        use_causal_mask: bool.
        return_attention_scores: bool, also return the weights (B, N, T, S).
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: heads that do not divide, an unknown `qk_norm`, `positions`
            without `rotary`.

    Example:
        >>> layer = keras_tfm.layers.MultiHeadAttention(num_heads=4)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16)), use_causal_mask=True).shape)
        (2, 7, 16)

    References:
        Vaswani et al. 2017, sec. 3.2.2, arXiv:1706.03762; Ainslie et al. 2023 (grouped
        heads), arXiv:2305.13245; Henry et al. 2020 (query-key norm), arXiv:2010.04245.
    """

    def __init__(
        self,
        num_heads,
        key_dim=None,
        num_key_value_heads=None,
        rotary=None,
        relative_bias=None,
        window=None,
        qk_norm=None,
        logit_soft_cap=None,
        use_bias=True,
        attention_dropout=0.0,
        kernel_initializer="glorot_uniform",
        implementation="auto",
        use_output_bias=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_heads(num_heads, num_key_value_heads)
        if window is not None:
            check_window(window)
        check_qk_norm(qk_norm)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.num_key_value_heads = num_key_value_heads
        self.rotary = recreate(rotary, "rotary", self)
        self.relative_bias = recreate(relative_bias, "relative_bias", self)
        self.window = window
        self.qk_norm = qk_norm
        self.logit_soft_cap = logit_soft_cap
        self.use_bias, self.use_output_bias = use_bias, use_output_bias
        self.attention_dropout = attention_dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.implementation = implementation
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        make_projections(
            self,
            inputs_shape,
            context_shape,
            self.num_key_value_heads,
            self.use_output_bias,
        )
        make_head_parts(self, inputs_shape, context_shape)

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
        query = project_queries(self, inputs, positions)
        if context is None:
            padding_mask = combine_masks(padding_mask, mask, inputs_mask)
            key, value = project_keys_values(self, inputs, positions)
        else:  # its tokens stand at 0, 1, 2 ...
            padding_mask = combine_masks(padding_mask, context_mask)
            key, value = project_keys_values(self, context, None)
        return self._attend(
            (query, key, value),
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            padding_mask=padding_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            dropout=active_dropout(self, training),
            implementation=self.implementation,
        )

    def init_cache(self, batch_size, max_length, context=None):
        """Empty keys and values for `max_length` positions, or those of `context`.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, positions that the cache holds.
            context: float (B, S, width) for cross-attention: its keys and values
                are computed here, once.

        Returns: dict of two tensors (B, K, M, H), with a `window` no longer than it;
            (B, K, S, H) for cross-attention.
        """
        return make_cache(self, batch_size, max_length, context, self.window)

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
            padding_mask: bool (B, M), True for real tokens; self-attention only.
            context_padding_mask: bool (B, S); cross-attention only.
            positions: int (T,) or (B, T), for `rotary`; cache_index, ... unless given.

        Returns: pair of float (B, T, D) and the cache with the new tokens.
        """
        heads, options, cache = read_cache(
            self,
            inputs,
            cache,
            cache_index,
            padding_mask,
            context_padding_mask,
            positions,
            self.window,
        )
        return self._attend(heads, **options), cache

    def _attend(
        self,
        query_key_value,
        attention_bias=None,
        query_offset=0,
        return_attention_scores=False,
        **masks_and_dropout,
    ):
        query, key, value = query_key_value
        attention_bias = with_relative_bias(
            self, query, key, attention_bias, query_offset
        )
        heads = attend(
            query,
            key,
            value,
            attention_bias=attention_bias,
            query_offset=query_offset,
            window=self.window,
            logit_soft_cap=self.logit_soft_cap,
            return_attention_scores=return_attention_scores,
            **masks_and_dropout,
        )
        heads, weights = heads if return_attention_scores else (heads, None)
        outputs = project_output(self, heads)  # (B, T, D)
        return (outputs, weights) if return_attention_scores else outputs

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        return attention_spec(self, inputs, context, return_attention_scores)

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, projections_of(self)),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "rotary": serialize_value(self.rotary),
            "relative_bias": serialize_value(self.relative_bias),
            "window": self.window,
            "qk_norm": self.qk_norm,
            "logit_soft_cap": self.logit_soft_cap,
            "use_bias": self.use_bias,
            "attention_dropout": self.attention_dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "implementation": self.implementation,
            "use_output_bias": self.use_output_bias,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("rotary", "relative_bias")))
