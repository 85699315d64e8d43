"""Decoder block: causal attention, cross-attention if given, feed-forward.

Letters: B batch, T length, S source length, M cache length, N heads, D width.
"""

import keras
from keras import ops

from keras_tfm.layers.key_value_cache import check_built
from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.rematerialized import Rematerialized
from keras_tfm.layers.residual import check_residual, make_residual
from keras_tfm.layers.values import (
    build_value,
    deserialize_values,
    given,
    recreate,
    serialize_value,
)


@keras.saving.register_keras_serializable(package="keras_tfm")
class TransformerDecoderBlock(Rematerialized, keras.layers.Layer):
    """Wires causal attention, cross-attention and a feed-forward into a block.

    Without `cross_attention` it is the block of a decoder-only model such as GPT.
    The values are recreated from their configs, as in `TransformerEncoderBlock`.

    Args:
        attention: attention-like layer over the target itself.
        feed_forward: position-wise layer, or None for a block without one, as those of
            a Mamba model.
        cross_attention: attention-like layer over `context`, or None.
        norm_position: "pre", "post" or "sandwich".
        norm: "layer" or "rms".
        norm_epsilon: float.
        dropout: float in [0, 1), on each branch, in training.
        drop_path: float in [0, 1], probability that a sample skips a branch.
        layer_scale: float or None, initial value of a learned factor per channel.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D), the target.
        context: float (B, S, any width), what `cross_attention` attends to.
        padding_mask: bool (B, T), True for real target tokens.
        context_padding_mask: bool (B, S), True for real source tokens. Both are
            joined with the implicit Keras masks, and not attached to the output.
        attention_mask: bool (T, T), (B, T, T), (B, 1, T, T) or (B, N, T, T).
        attention_bias: float, broadcasts to (B, N, T, T), added to the scores.
        positions: int (T,) or (B, T), for an attention with `rotary`.
        use_causal_mask: bool, True unless given.
        return_attention_scores: bool, also return the weights: a dict with
            "attention" (B, N, T, T) and, if there is one, "cross_attention"
            (B, N, T, S).
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: a value that is built or cannot be rebuilt from its config, an
            unknown `norm` or `norm_position`, `context` without `cross_attention`
            or the other way round.

    Example:
        >>> block = keras_tfm.layers.TransformerDecoderBlock(
        ...     keras_tfm.layers.MultiHeadAttention(num_heads=4),
        ...     keras_tfm.layers.FeedForward(64),
        ...     cross_attention=keras_tfm.layers.MultiHeadAttention(num_heads=2),
        ... )
        >>> target, source = keras.ops.zeros((2, 7, 16)), keras.ops.zeros((2, 5, 12))
        >>> tuple(block(target, context=source).shape)
        (2, 7, 16)

    References:
        Vaswani et al. 2017, sec. 3.1, arXiv:1706.03762; decoder only: Radford et al.
        2019, Language Models are Unsupervised Multitask Learners.
    """

    def __init__(
        self,
        attention,
        feed_forward,
        cross_attention=None,
        norm_position="pre",
        norm="layer",
        norm_epsilon=1e-5,
        dropout=0.0,
        drop_path=0.0,
        layer_scale=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_residual(norm_position, norm)
        self.attention = recreate(attention, "attention", self)
        self.cross_attention = recreate(cross_attention, "cross_attention", self)
        self.feed_forward = recreate(feed_forward, "feed_forward", self)
        self.norm_position = norm_position
        self.norm = norm
        self.norm_epsilon = norm_epsilon
        self.dropout = dropout
        self.drop_path = drop_path
        self.layer_scale = layer_scale
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        build_value(self.attention, inputs_shape)
        self.attention_residual = make_residual(self, "attention", inputs_shape)
        if self.cross_attention is not None:
            self._check_context(context_shape)
            build_value(self.cross_attention, inputs_shape, context_shape)
            self.cross_attention_residual = make_residual(
                self, "cross_attention", inputs_shape
            )
        if self.feed_forward is not None:
            build_value(self.feed_forward, inputs_shape)
            self.feed_forward_residual = make_residual(
                self, "feed_forward", inputs_shape
            )

    def call(
        self,
        inputs,
        context=None,
        padding_mask=None,
        context_padding_mask=None,
        attention_mask=None,
        attention_bias=None,
        positions=None,
        use_causal_mask=True,
        return_attention_scores=False,
        training=None,
        mask=None,
        inputs_mask=None,
        context_mask=None,
    ):
        self._check_context(context)
        x = ops.cast(inputs, self.compute_dtype)
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        wanted = given(
            return_attention_scores=return_attention_scores, training=training
        )
        arguments = given(
            padding_mask=padding_mask,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            positions=positions,
            use_causal_mask=use_causal_mask,
        )
        branch = self.attention(self.attention_residual.enter(x), **arguments, **wanted)
        branch, scores = branch if return_attention_scores else (branch, None)
        x = self.attention_residual.leave(x, branch, training=training)
        scores = {"attention": scores}
        if self.cross_attention is not None:
            context_padding_mask = combine_masks(context_padding_mask, context_mask)
            branch = self.cross_attention(
                self.cross_attention_residual.enter(x),
                context=context,
                **given(padding_mask=context_padding_mask),
                **wanted,
            )
            if return_attention_scores:
                branch, scores["cross_attention"] = branch
            x = self.cross_attention_residual.leave(x, branch, training=training)
        if self.feed_forward is not None:
            x = self.feed_forward_residual.around(
                self.feed_forward, x, padding_mask, training
            )
        return (x, scores) if return_attention_scores else x

    def _check_context(self, context):
        if (context is None) != (self.cross_attention is None):
            raise ValueError(
                "`context` must be given exactly if the block has a "
                f"`cross_attention`, got `context` {'not ' * (context is None)}given."
            )

    def init_cache(self, batch_size, max_length, context=None):
        """Empty caches of the parts; cross-attention's is filled from `context`.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, positions that the cache holds.
            context: float (B, S, width), if the block has a `cross_attention`.

        Returns: dict of caches, "attention" and perhaps "cross_attention".
        """
        check_built(self)
        self._check_context(context)
        cache = {"attention": self.attention.init_cache(batch_size, max_length)}
        if self.cross_attention is not None:
            cache["cross_attention"] = self.cross_attention.init_cache(
                batch_size, max_length, context
            )
        return cache

    def call_with_cache(
        self,
        inputs,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """The block on new tokens, as in `call` without training.

        Args:
            inputs: float (B, T, D), the tokens at cache_index, cache_index + 1 ...
            cache: what `init_cache` or the last call gave.
            cache_index: int32 scalar tensor, how many positions are filled.
            padding_mask: bool (B, M), True for real tokens.
            context_padding_mask: bool (B, S), True for real source tokens.
            positions: int (T,) or (B, T), for an attention with `rotary`.

        Returns: pair of float (B, T, D) and the new cache.
        """
        check_built(self)
        x = ops.cast(inputs, self.compute_dtype)
        branch, attention_cache = self.attention.call_with_cache(
            self.attention_residual.enter(x),
            cache["attention"],
            cache_index,
            padding_mask=padding_mask,
            positions=positions,
        )
        x = self.attention_residual.leave(x, branch, training=False)
        cache = {**cache, "attention": attention_cache}
        if self.cross_attention is not None:
            branch, cache["cross_attention"] = self.cross_attention.call_with_cache(
                self.cross_attention_residual.enter(x),
                cache["cross_attention"],
                cache_index,
                context_padding_mask=context_padding_mask,
            )
            x = self.cross_attention_residual.leave(x, branch, training=False)
        if self.feed_forward is not None:
            x = self.feed_forward_residual.around(self.feed_forward, x, training=False)
        return x, cache

    def compute_output_shape(self, inputs_shape, context_shape=None):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        _, own = self.attention.compute_output_spec(
            inputs, return_attention_scores=True
        )
        scores = {"attention": own}
        if self.cross_attention is not None:
            _, scores["cross_attention"] = self.cross_attention.compute_output_spec(
                inputs, context, return_attention_scores=True
            )
        return outputs, scores

    def get_config(self):
        parts = [self.attention, self.cross_attention, self.feed_forward]
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, parts),
            "attention": serialize_value(self.attention),
            "feed_forward": serialize_value(self.feed_forward),
            "cross_attention": serialize_value(self.cross_attention),
            "norm_position": self.norm_position,
            "norm": self.norm,
            "norm_epsilon": self.norm_epsilon,
            "dropout": self.dropout,
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
        }

    @classmethod
    def from_config(cls, config):
        names = ("attention", "feed_forward", "cross_attention")
        return cls(**deserialize_values(config, names))
