"""Performer: softmax attention by random features, and plain linear attention.

Letters: B batch, T query length, S key-value length, D width of `inputs`, N heads, H
size of a head, M features.
"""

import random

import keras
from keras import ops

from keras_tfm.layers.attention_projections import (
    cached_positions,
    make_projections,
    project_keys_values,
    project_output,
    project_queries,
    projections_of,
)
from keras_tfm.layers.cached_attention import make_cache
from keras_tfm.layers.heads import attention_spec, check_heads
from keras_tfm.layers.kernel_features import (
    EPSILON,
    KERNELS,
    default_num_features,
    draw_features,
    elu_features,
    favor_features,
)
from keras_tfm.layers.key_value_cache import check_built
from keras_tfm.layers.linear_attention import (
    empty_sums,
    mix_by_features,
    mix_by_features_causally,
    weights_by_features,
)
from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.values import (
    deserialize_values,
    recreate,
    refuse,
    serialize_value,
)

PAIRS = "it never looks at a pair of a query and a key"


@keras.saving.register_keras_serializable(package="keras_tfm")
class PerformerAttention(keras.layers.Layer):
    """Attention whose time and memory grow with T, and whose cache does not grow.

    The kernel exp(q k / sqrt(H)) of softmax attention becomes a product of M positive
    random features of q and of k ("favor"), so that keys and values are summed once
    for all queries. The error falls with M. With "elu" the features are elu(x) + 1:
    no approximation of the softmax, but an attention of its own.

    The random directions are a weight that is not trained: saved with the layer, the
    same at every call. `redraw` draws others, `training.RedrawFeatures` does so
    during `fit`. Features and sums are float32 at least under any policy.

    Args:
        num_heads: int N.
        num_features: int M; H log H unless given. For "favor" alone.
        key_dim: int H; D / N unless given.
        kernel: "favor" or "elu".
        rotary: a `RotaryEmbedding` applied to queries and keys, or None.
        use_bias: bool, biases of the four projections.
        kernel_initializer: initializer of the four projections.
        seed: int, of the random directions; a new one unless given.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        context: float (B, S, any width), what to attend to; `inputs` unless given.
        padding_mask: bool (B, S), True for real keys; joined with the implicit
            Keras mask of the keys.
        attention_mask, attention_bias: refused, there are no pairs.
        positions: int (T,) or (B, T), for `rotary`; 0, 1, 2 ... unless given.
        use_causal_mask: bool, without `context`.
        return_attention_scores: bool, also return the weights (B, N, T, S), which
            takes memory that grows with T times S.
        training: bool, without effect.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: heads that do not divide, an unknown `kernel`, an argument that
            it cannot honour.

    Example:
        >>> layer = keras_tfm.layers.PerformerAttention(num_heads=4, seed=0)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16)), use_causal_mask=True).shape)
        (2, 7, 16)

    References:
        Choromanski et al. 2020, arXiv:2009.14794; elu: Katharopoulos et al. 2020,
        arXiv:2006.16236.
    """

    def __init__(
        self,
        num_heads,
        num_features=None,
        key_dim=None,
        kernel="favor",
        rotary=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        seed=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_heads(num_heads)
        if kernel not in KERNELS:
            raise ValueError(f'`kernel` must be "favor" or "elu", got {kernel!r}.')
        if num_features is not None and (num_features < 1 or kernel == "elu"):
            raise ValueError(
                '`num_features` must be positive, and is for `kernel="favor"` alone, '
                f"got {num_features} for {kernel!r}."
            )
        self.num_heads = num_heads
        self.num_features = num_features
        self.key_dim = key_dim
        self.kernel = kernel
        self.rotary = recreate(rotary, "rotary", self)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        make_projections(self, inputs_shape, context_shape)
        key_dim = self.key_shape[1]
        if self.rotary is not None:
            self.rotary.build((*inputs_shape[:-1], self.num_heads, key_dim))
        self.features = None
        if self.kernel == "favor":
            num_features = self.num_features or default_num_features(key_dim)
            self.features = self.add_weight(
                shape=(num_features, key_dim),
                initializer=lambda shape, dtype: self._draw(shape, self.seed),
                trainable=False,
                autocast=False,
                name="features",
            )

    def redraw(self, seed=None):
        """Draw other random directions, as a long training may want.

        Args:
            seed: int, or None for a new one.
        """
        check_built(self)
        if self.features is not None:
            self.features.assign(self._draw(self.features.shape, seed))

    def _draw(self, shape, seed):
        seed = random.randrange(2**31) if seed is None else seed
        return ops.cast(draw_features(*shape, seed), self.variable_dtype)

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
        pairs = {"attention_mask": attention_mask, "attention_bias": attention_bias}
        refuse(self, PAIRS, **pairs)
        query = project_queries(self, inputs, positions)
        if context is None:
            padding_mask = combine_masks(padding_mask, mask, inputs_mask)
            key, value = project_keys_values(self, inputs, positions)
        else:  # its tokens stand at 0, 1, 2 ...
            why = "a `context` has no past and future"
            refuse(self, why, use_causal_mask=use_causal_mask)
            padding_mask = combine_masks(padding_mask, context_mask)
            key, value = project_keys_values(self, context)
        parts = *self._features(query, key), value
        if use_causal_mask:
            heads, _ = mix_by_features_causally(*parts, padding_mask)
        else:
            heads = mix_by_features(*parts, padding_mask)
        outputs = self._outputs(heads)
        if not return_attention_scores:
            return outputs
        weights = weights_by_features(*parts[:3], padding_mask, use_causal_mask)
        return outputs, ops.cast(weights, self.compute_dtype)

    def init_cache(self, batch_size, max_length, context=None):
        """Empty sums, of one size whatever `max_length` is, or `context`'s keys.

        Args:
            batch_size: int or int tensor B.
            max_length: int, without effect.
            context: float (B, S, width) for cross-attention: its keys and values
                are computed here, once.

        Returns: dict of "sums" (B, N, M, H + 1) and "factor" (B, N, 1, 1), float32;
            two tensors (B, N, S, H) for cross-attention.
        """
        if context is not None:
            return make_cache(self, batch_size, max_length, context)
        check_built(self)
        heads, key_dim = self.key_shape
        width = key_dim if self.features is None else self.features.shape[-2]
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        return empty_sums(batch_size, heads, width, key_dim, dtype)

    def call_with_cache(
        self,
        inputs,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """Causal attention of new tokens to all before them and themselves.

        Args:
            inputs: float (B, T, D), the tokens at cache_index, cache_index + 1 ...
            cache: what `init_cache` or the last call gave.
            cache_index: int32 scalar tensor, how many tokens came before.
            padding_mask: bool (B, positions), True for real tokens; self-attention
                only.
            context_padding_mask: bool (B, S); cross-attention only.
            positions: int (T,) or (B, T), for `rotary`; cache_index, ... unless given.

        Returns: pair of float (B, T, D) and the cache with the new tokens.
        """
        check_built(self)
        positions = cached_positions(self, inputs, cache_index, positions)
        query = project_queries(self, inputs, positions)
        if "context_key" in cache:
            parts = self._features(query, cache["context_key"])
            value = cache["context_value"]
            heads = mix_by_features(*parts, value, context_padding_mask)
            return self._outputs(heads), cache
        key, value = project_keys_values(self, inputs, positions)
        if padding_mask is not None:
            places = ops.arange(ops.shape(inputs)[1], dtype="int32") + cache_index
            padding_mask = ops.take(padding_mask, places, axis=1)
        parts = *self._features(query, key), value
        heads, cache = mix_by_features_causally(*parts, padding_mask, cache)
        return self._outputs(heads), cache

    def _features(self, query, key):
        """Features of queries and of keys, and the keys' log factors."""
        if self.features is None:
            (query, _), key = elu_features(query), elu_features(key)
        else:
            query, _ = favor_features(query, self.features)
            key = favor_features(key, self.features)
        return query + EPSILON, *key

    def _outputs(self, heads):
        heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
        return project_output(self, ops.cast(heads, self.compute_dtype))

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
            "num_features": self.num_features,
            "key_dim": self.key_dim,
            "kernel": self.kernel,
            "rotary": serialize_value(self.rotary),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("rotary",)))
