"""Multi-head attention: self, cross, grouped, windowed, with a cache.

Letters: B batch, T query length, S key-value length, M cache length, D width of
`inputs`, N query heads, K key-value heads, H size of a head.
"""

import keras
from keras import ops

from keras_tfm.layers.dot_product_attention import scaled_dot_product_attention
from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.policies import owner_dtype, part_policy
from keras_tfm.layers.values import deserialize_values, recreate, serialize_value

NORMS = {
    "layer": keras.layers.LayerNormalization,
    "rms": keras.layers.RMSNormalization,
}


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
        Vaswani et al. 2017, sec. 3.2.2, arXiv:1706.03762; grouped heads: Ainslie et
        al. 2023, arXiv:2305.13245; query-key norm: Henry et al. 2020,
        arXiv:2010.04245.
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
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        _check_heads(num_heads, num_key_value_heads)
        if qk_norm not in (None, *NORMS):
            raise ValueError(f'`qk_norm` must be "rms", "layer" or None, got {qk_norm}.')
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.num_key_value_heads = num_key_value_heads
        self.rotary = recreate(rotary, "rotary", self)
        self.relative_bias = recreate(relative_bias, "relative_bias", self)
        self.window = window
        self.qk_norm = qk_norm
        self.logit_soft_cap = logit_soft_cap
        self.use_bias = use_bias
        self.attention_dropout = attention_dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        *outer, hidden_dim = inputs_shape
        context_shape = inputs_shape if context_shape is None else context_shape
        if self.key_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide the width of `inputs`, got {self.num_heads} "
                f"heads and width {hidden_dim}; or give `key_dim`."
            )
        self._head_dim = self.key_dim or hidden_dim // self.num_heads
        self._widths = hidden_dim, context_shape[-1]
        key_heads = self.num_key_value_heads or self.num_heads
        self.query = self._projection("query", self.num_heads, inputs_shape)
        self.key = self._projection("key", key_heads, context_shape)
        self.value = self._projection("value", key_heads, context_shape)
        self.output_projection = self._dense("output", hidden_dim)
        self.output_projection.build((*outer, self.num_heads * self._head_dim))
        self._build_parts(inputs_shape, context_shape, key_heads)

    def _part(self, name):
        policy = part_policy(self.dtype_policy, name)
        return {"name": name, "dtype": policy, "trainable": self.trainable}

    def _dense(self, name, units):
        initializer = self.kernel_initializer.clone()
        return keras.layers.Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=initializer,
            **self._part(name),
        )

    def _projection(self, name, num_heads, shape):
        layer = self._dense(name, num_heads * self._head_dim)
        layer.build(shape)
        return layer

    def _build_parts(self, inputs_shape, context_shape, key_heads):
        queries_shape = (*inputs_shape[:-1], self.num_heads, self._head_dim)
        keys_shape = (*context_shape[:-1], key_heads, self._head_dim)
        self.query_norm = self.key_norm = None
        if self.qk_norm is not None:
            norm = NORMS[self.qk_norm]
            self.query_norm = norm(epsilon=1e-6, **self._part("query_norm"))
            self.query_norm.build(queries_shape)
            self.key_norm = norm(epsilon=1e-6, **self._part("key_norm"))
            self.key_norm.build(keys_shape)
        if self.rotary is not None:
            self.rotary.build(queries_shape)
        if self.relative_bias is not None:
            self.relative_bias.build(inputs_shape, context_shape)
        self.drop = keras.layers.Dropout(
            self.attention_dropout, **self._part("attention_dropout")
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
        if context is None:
            padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        else:
            padding_mask = combine_masks(padding_mask, context_mask)
        query = self._queries(inputs, positions)
        key, value = self._keys_values(
            inputs if context is None else context,
            self._key_positions(context, positions),
        )
        return self._attend(
            (query, key, value),
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
            padding_mask=padding_mask,
            attention_mask=attention_mask,
            use_causal_mask=use_causal_mask,
            dropout=lambda weights: self.drop(weights, training=training),
        )

    def init_cache(self, batch_size, max_length, context=None):
        """Empty keys and values for `max_length` positions, or those of `context`.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, positions that the cache holds.
            context: float (B, S, width) for cross-attention: its keys and values
                are computed here, once.

        Returns: dict of two tensors (B, M, K, H), or (B, S, K, H) for cross-attention.
        """
        self._check_built()
        if context is not None:
            key, value = self._keys_values(context, None)
            return {"context_key": key, "context_value": value}
        key_heads = self.num_key_value_heads or self.num_heads
        shape = (batch_size, max_length, key_heads, self._head_dim)
        empty = ops.zeros(shape, self.compute_dtype)
        return {"key": empty, "value": empty}

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
        self._check_built()
        if "context_key" in cache:
            query = self._queries(inputs, positions)
            triple = query, cache["context_key"], cache["context_value"]
            return self._attend(triple, padding_mask=context_padding_mask), cache
        length, max_length = inputs.shape[1], cache["key"].shape[1]
        if None not in (length, max_length) and length > max_length:
            raise ValueError(
                f"`inputs` has {length} tokens, the cache holds {max_length}."
            )
        if self.rotary is not None and positions is None:
            positions = ops.arange(ops.shape(inputs)[1], dtype="int32") + cache_index
        key, value = self._keys_values(inputs, positions)
        start = (0, cache_index, 0, 0)
        cache = {
            "key": ops.slice_update(cache["key"], start, key),
            "value": ops.slice_update(cache["value"], start, value),
        }
        outputs = self._attend(
            (self._queries(inputs, positions), cache["key"], cache["value"]),
            padding_mask=padding_mask,
            use_causal_mask=True,
            query_offset=cache_index,
        )
        return outputs, cache

    def _check_built(self):
        if not self.built:
            raise ValueError(f"{self.name!r} must be built before it has a cache.")

    def _queries(self, inputs, positions):
        self._check_width(inputs, self._widths[0], "inputs")
        if positions is not None and self.rotary is None:
            raise ValueError("`positions` needs an attention with `rotary`.")
        query = self._heads(self.query, inputs)  # (B, T, N, H)
        if self.query_norm is not None:
            query = self.query_norm(query)
        return query if self.rotary is None else self.rotary(query, positions)

    def _keys_values(self, context, positions):
        self._check_width(context, self._widths[1], "context")
        key = self._heads(self.key, context)  # (B, S, K, H)
        value = self._heads(self.value, context)
        if self.key_norm is not None:
            key = self.key_norm(key)
        if self.rotary is not None:
            key = self.rotary(key, positions)
        return key, value

    def _key_positions(self, context, positions):
        """Keys of a context stand at 0, 1, 2 ..., those of `inputs` where it does."""
        return positions if context is None else None

    def _heads(self, projection, x):
        x = projection(ops.cast(x, self.compute_dtype))
        batch, length, width = ops.shape(x)
        return ops.reshape(
            x, (batch, length, width // self._head_dim, self._head_dim)
        )

    def _attend(
        self,
        query_key_value,
        attention_bias=None,
        query_offset=0,
        return_attention_scores=False,
        **masks_and_dropout,
    ):
        query, key, value = query_key_value
        if self.relative_bias is not None:
            bias = self.relative_bias(query, key, query_offset=query_offset)
            attention_bias = bias if attention_bias is None else attention_bias + bias
        heads, weights = scaled_dot_product_attention(
            query,
            key,
            value,
            attention_bias=attention_bias,
            query_offset=query_offset,
            window=self.window,
            logit_soft_cap=self.logit_soft_cap,
            return_attention_scores=True,
            **masks_and_dropout,
        )
        batch, length, num_heads, head_dim = ops.shape(heads)
        heads = ops.reshape(heads, (batch, length, num_heads * head_dim))
        outputs = self.output_projection(heads)  # (B, T, D)
        return (outputs, weights) if return_attention_scores else outputs

    def _check_width(self, x, width, name):
        if x.shape[-1] != width:
            raise ValueError(
                f"`{name}` must be {width} wide, as when the layer was built, got "
                f"{x.shape[-1]}."
            )

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        batch, length, _ = inputs.shape
        key_length = length if context is None else context.shape[1]
        shape = (batch, self.num_heads, length, key_length)
        return outputs, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        parts = []
        if self.built:
            parts = [self.query, self.key, self.value, self.output_projection]
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, parts),
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
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("rotary", "relative_bias")))


def _check_heads(num_heads, num_key_value_heads):
    if num_heads < 1:
        raise ValueError(f"`num_heads` must be positive, got {num_heads}.")
    if num_key_value_heads and num_heads % num_key_value_heads:
        raise ValueError(
            f"`num_key_value_heads` must divide `num_heads`, got "
            f"{num_key_value_heads} and {num_heads}."
        )
