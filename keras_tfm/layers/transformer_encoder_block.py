"""Encoder block: attention and feed-forward on one residual stream.

Letters: B batch, T length, N heads, D width.
"""

import keras
from keras import ops

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
class TransformerEncoderBlock(Rematerialized, keras.layers.Layer):
    """Wires an attention and a feed-forward layer into an encoder block.

    Both are given as instances and recreated from their configs, so one value may
    be handed to many blocks. Every long-sequence attention, a mixture of experts or
    a Keras layer of your own fits here.

    Args:
        attention: attention-like layer, such as `MultiHeadAttention`.
        feed_forward: position-wise layer, such as `FeedForward`, or None for a block
            without one.
        norm_position: "pre", "post" or "sandwich".
        norm: "layer" or "rms".
        norm_epsilon: float.
        dropout: float in [0, 1), on each branch, in training.
        drop_path: float in [0, 1], probability that a sample skips a branch.
        layer_scale: float or None, initial value of a learned factor per channel.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        padding_mask: bool (B, T), True for real tokens; joined with the implicit
            Keras mask, and not attached to the output (give it to pooling layers).
        attention_mask: bool (T, T), (B, T, T), (B, 1, T, T) or (B, N, T, T).
        attention_bias: float, broadcasts to (B, N, T, T), added to the scores.
        positions: int (T,) or (B, T), for an attention with `rotary`.
        use_causal_mask: bool.
        return_attention_scores: bool, also return the weights (B, N, T, T).
        training: bool.
        mask, inputs_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: a value that is built or cannot be rebuilt from its config, an
            unknown `norm` or `norm_position`.

    Example:
        >>> block = keras_tfm.layers.TransformerEncoderBlock(
        ...     keras_tfm.layers.MultiHeadAttention(num_heads=4),
        ...     keras_tfm.layers.FeedForward(64),
        ... )
        >>> tuple(block(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Vaswani et al. 2017, sec. 3.1, arXiv:1706.03762.
    """

    def __init__(
        self,
        attention,
        feed_forward,
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
        self.feed_forward = recreate(feed_forward, "feed_forward", self)
        self.norm_position = norm_position
        self.norm = norm
        self.norm_epsilon = norm_epsilon
        self.dropout = dropout
        self.drop_path = drop_path
        self.layer_scale = layer_scale
        self.supports_masking = True

    def build(self, inputs_shape):
        build_value(self.attention, inputs_shape)
        self.attention_residual = make_residual(self, "attention", inputs_shape)
        if self.feed_forward is not None:
            build_value(self.feed_forward, inputs_shape)
            self.feed_forward_residual = make_residual(
                self, "feed_forward", inputs_shape
            )

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        attention_bias=None,
        positions=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
        inputs_mask=None,
    ):
        x = ops.cast(inputs, self.compute_dtype)
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        arguments = given(
            padding_mask=padding_mask,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            positions=positions,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        branch = self.attention(self.attention_residual.enter(x), **arguments)
        if return_attention_scores:
            branch, scores = branch
        x = self.attention_residual.leave(x, branch, training=training)
        if self.feed_forward is not None:
            x = self.feed_forward_residual.around(
                self.feed_forward, x, padding_mask, training
            )
        return (x, scores) if return_attention_scores else x

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(self, inputs, return_attention_scores=False, **_):
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        _, scores = self.attention.compute_output_spec(
            inputs, return_attention_scores=True
        )
        return outputs, scores

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, [self.attention, self.feed_forward]),
            "attention": serialize_value(self.attention),
            "feed_forward": serialize_value(self.feed_forward),
            "norm_position": self.norm_position,
            "norm": self.norm,
            "norm_epsilon": self.norm_epsilon,
            "dropout": self.dropout,
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("attention", "feed_forward")))
