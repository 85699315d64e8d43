"""Exact attention over a sequence that is spread over devices.

Letters: B batch, T query length, S key-value length, M cache length, D width, N query
heads, K key-value heads, H size of a head, R shards.
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
from keras_tfm.layers.cached_attention import make_cache, read_cache
from keras_tfm.layers.dot_product_attention import attend
from keras_tfm.layers.heads import attention_spec, check_heads
from keras_tfm.layers.masks import as_rank_2, combine_masks
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.ring_passes import attend_ring
from keras_tfm.layers.values import (
    deserialize_values,
    recreate,
    refuse,
    serialize_value,
)


@keras.saving.register_keras_serializable(package="keras_tfm")
class RingAttention(keras.layers.Layer):
    """Multi-head attention over a sequence cut into shards, which pass keys round.

    The numbers are those of `MultiHeadAttention(num_heads)` with the same weights,
    whose names and shapes are the same too. Every shard has its queries and, one after
    the other, the keys of all shards; a causal mask leaves all shards the same work.

    On the JAX backend, under a `keras.distribution` whose mesh has an axis named
    `axis`, the shards lie on the devices of that axis and the keys go from device to
    device. In all other cases one process works on all shards.

    Args:
        num_heads: int N, query heads.
        axis: name of the mesh's axis that the sequence is spread over.
        num_shards: int R, a multiple of the devices along `axis`; as many as those
            unless given, 4 without any. The numbers do not depend on it.
        key_dim: int H; D / N unless given.
        num_key_value_heads: int K, divides N; N unless given.
        rotary: a `RotaryEmbedding` applied to queries and keys, or None.
        use_bias: bool, biases of the four projections.
        kernel_initializer: initializer of the four projections.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        context: float (B, S, any width), what to attend to; `inputs` unless given.
        padding_mask: bool (B, S), True for real keys; joined with the implicit Keras
            mask of the keys.
        attention_mask: refused, as all that has a number for each pair of positions.
        attention_bias: refused likewise.
        positions: int (T,) or (B, T), for `rotary`; 0, 1, 2 ... unless given.
        use_causal_mask: bool, in self-attention only.
        return_attention_scores: refused likewise.
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D).

    Raises:
        ValueError: heads that do not divide, `num_shards` below 1 or no multiple of the
            devices, a refused argument, `positions` without `rotary`.

    Example:
        >>> layer = keras_tfm.layers.RingAttention(num_heads=4)
        >>> tuple(layer(keras.ops.zeros((2, 70, 16)), use_causal_mask=True).shape)
        (2, 70, 16)

    References:
        Liu et al. 2023, arXiv:2310.01889; Brandon et al. 2023 (balanced work under a
        causal mask), arXiv:2311.09431.
    """

    def __init__(
        self,
        num_heads,
        axis="sequence",
        num_shards=None,
        key_dim=None,
        num_key_value_heads=None,
        rotary=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_heads(num_heads, num_key_value_heads)
        if num_shards is not None and num_shards < 1:
            raise ValueError(f"`num_shards` must be positive, got {num_shards}.")
        self.num_heads = num_heads
        self.axis, self.num_shards = axis, num_shards
        self.key_dim = key_dim
        self.num_key_value_heads = num_key_value_heads
        self.rotary = recreate(rotary, "rotary", self)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        make_projections(self, inputs_shape, context_shape, self.num_key_value_heads)
        if self.rotary is not None:
            heads = self.num_heads, self.key_shape[1]
            self.rotary.build((*inputs_shape[:-1], *heads))

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
            "it would have a number for each pair of positions",
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
        )
        devices = DevicesOfAxis(self.axis)
        inputs = devices.spread(inputs, 1)
        query = project_queries(self, inputs, positions)
        if context is None:
            padding_mask = combine_masks(padding_mask, mask, inputs_mask)
            key, value = project_keys_values(self, inputs, positions)
        else:  # its tokens stand at 0, 1, 2 ...
            refuse(
                self,
                "a `context` has no order that it shares with `inputs`",
                use_causal_mask=use_causal_mask,
            )
            padding_mask = combine_masks(padding_mask, context_mask)
            key, value = project_keys_values(self, devices.spread(context, 1), None)
        if padding_mask is None:
            padding_mask = ops.ones((1, ops.shape(key)[2]), "bool")
        heads = attend_ring(
            query,
            key,
            value,
            as_rank_2(padding_mask),
            self._shards(devices),
            use_causal_mask,
            lambda x: devices.spread(x, 0),
            self.key_shape[1] ** -0.5,
        )
        heads = ops.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
        return devices.spread(project_output(self, heads), 1)

    def init_cache(self, batch_size, max_length, context=None):
        """Empty keys and values for `max_length` positions, or those of `context`.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, positions that the cache holds.
            context: float (B, S, width), for cross-attention.

        Returns: dict of two tensors (B, K, M, H), (B, K, S, H) for cross-attention.
        """
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
        """Causal attention of new tokens to those in the cache, on one device.

        Args:
            inputs: float (B, T, D), the tokens at cache_index, cache_index + 1 ...
            cache: what `init_cache` or the last call gave.
            cache_index: int32 scalar tensor, how many positions are filled.
            padding_mask: bool (B, M), True for real tokens; self-attention only.
            context_padding_mask: bool (B, S); cross-attention only.
            positions: int (T,) or (B, T), for `rotary`; cache_index, ... unless given.

        Returns: pair of float (B, T, D) and the cache with the new tokens.
        """
        masks = padding_mask, context_padding_mask
        heads, options, cache = read_cache(
            self, inputs, cache, cache_index, *masks, positions
        )
        return project_output(self, attend(*heads, **options)), cache

    def _shards(self, devices):
        number = self.num_shards or devices.count or 4
        if devices.count and number % devices.count:
            raise ValueError(
                f"`num_shards` must be a multiple of the {devices.count} devices along "
                f"{self.axis!r}, got {number}."
            )
        return number

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return inputs_shape

    def compute_output_spec(self, inputs, context=None, **_):
        return attention_spec(self, inputs, context)

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, projections_of(self)),
            "num_heads": self.num_heads,
            "axis": self.axis,
            "num_shards": self.num_shards,
            "key_dim": self.key_dim,
            "num_key_value_heads": self.num_key_value_heads,
            "rotary": serialize_value(self.rotary),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("rotary",)))


class DevicesOfAxis:
    """The devices along one axis of the current `keras.distribution`'s mesh.

    Args:
        axis: str; `count` is None if the mesh has no such axis.
    """

    def __init__(self, axis):
        self.axis, self.count = axis, None
        distribution = keras.distribution.distribution()
        self.mesh = getattr(distribution, "device_mesh", None)
        if self.mesh is not None and axis in self.mesh.axis_names:
            self.count = self.mesh.shape[self.mesh.axis_names.index(axis)]
            self.batch = getattr(distribution, "batch_dim_name", None)

    def spread(self, x, place):
        """Lay axis `place` of a tensor, and the batch beside it, on devices.

        Args:
            x: tensor (B, T, ...) with place 1, or (R, B, ...) with place 0.
            place: int.

        Returns: `x`, unchanged where there are no devices or its length is no multiple
            of theirs.
        """
        length = x.shape[place]
        if not self.count or length is None or length % self.count:
            return x
        names = [None] * len(x.shape)
        names[place] = self.axis
        if self.batch != self.axis:
            names[1 - place] = self.batch
        layout = keras.distribution.TensorLayout(names, self.mesh)
        return keras.distribution.distribute_tensor(x, layout)
