"""Longformer: attention to the keys around each query, and to a few global tokens.

Letters: B batch, T length, D width, G global tokens, N heads, H size of a head.
"""

import keras
from keras import ops

from keras_tfm.layers.attention_parts import (
    active_dropout,
    arguments_of,
    check_window,
    make_head_parts,
    take_arguments,
)
from keras_tfm.layers.attention_projections import (
    make_projections,
    project_heads,
    project_keys_values,
    project_output,
    project_queries,
    projections_of,
)
from keras_tfm.layers.banded_attention import Band, attend_band
from keras_tfm.layers.dot_product_attention import attend
from keras_tfm.layers.encoder_only import refuse_in_encoder
from keras_tfm.layers.heads import attention_spec
from keras_tfm.layers.leading_tokens import first_real, leading_mask, turn
from keras_tfm.layers.masks import as_rank_4, combine_masks, sliding_window_mask
from keras_tfm.layers.parts import make_dense
from keras_tfm.layers.values import given

GLOBAL = "global_query", "global_key", "global_value"


@keras.saving.register_keras_serializable(package="keras_tfm")
class LongformerAttention(keras.layers.Layer):
    """Self-attention of a window and global tokens, in time that grows with T.

    Each token sees the keys fewer than `window` positions away on both sides and the
    global tokens, which see all. What a global token asks and is shown comes from
    projections of its own; the others see it by the ordinary ones. Global are the first
    `global_tokens` real tokens of a row: a class token, or a question before a text.

    Masks, biases and scores of size T times T are taken and given, but computed as
    densely as they are; all else is done in blocks.

    Args:
        num_heads: int N.
        window: int; a query sees 2 `window` - 1 keys around it, its own included. What
            others call an attention window of 512 is a `window` of 257.
        global_tokens: int G, at least 1.
        key_dim: int H; D / N unless given.
        use_bias: bool, biases of the seven projections.
        attention_dropout: float in [0, 1), on the attention weights, in training.
        kernel_initializer: initializer of the seven projections.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D), any T.
        context: refused, a window is one of positions in the same sequence.
        padding_mask: bool (B, T), True for real tokens; joined with the implicit Keras
            mask.
        attention_mask: bool (T, T), (B, T, T), (B, 1, T, T) or (B, N, T, T).
        attention_bias: float, broadcasts to (B, N, T, T), added to the scores.
        positions: refused, there is no rotary; add them to the embeddings.
        use_causal_mask: refused, global tokens see all; `SlidingWindowAttention` can.
        return_attention_scores: bool, also return the weights (B, N, T, T).
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: a `window` or `global_tokens` below 1, heads that do not divide, or
            an argument that is refused.

    Example:
        >>> layer = keras_tfm.layers.LongformerAttention(num_heads=4, window=64)
        >>> tuple(layer(keras.ops.zeros((2, 700, 16))).shape)
        (2, 700, 16)

    References: Beltagy et al. 2020, arXiv:2004.05150.
    """

    def __init__(
        self,
        num_heads,
        window,
        global_tokens=1,
        key_dim=None,
        use_bias=True,
        attention_dropout=0.0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        take_arguments(
            self, num_heads, key_dim, use_bias, attention_dropout, kernel_initializer
        )
        check_window(window)
        if global_tokens < 1:
            raise ValueError(
                f"`global_tokens` must be at least 1, got {global_tokens}; "
                "`SlidingWindowAttention` has none."
            )
        self.window, self.global_tokens = window, global_tokens

    def build(self, inputs_shape):
        make_projections(self, inputs_shape)
        width = self.num_heads * self.key_shape[1]
        for name in GLOBAL:
            setattr(self, name, make_dense(self, name, width, inputs_shape))
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
        refuse_in_encoder(self, context, context_mask, positions, use_causal_mask)
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        pairs = given(
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
        )
        dropout = {"dropout": active_dropout(self, training)}
        band, length = Band(self.window - 1, False), inputs.shape[1]
        short = length is not None and length <= band.width + self.global_tokens
        if not pairs and not short:
            return self._in_blocks(inputs, band, padding_mask, **dropout)
        heads = self._dense(inputs, padding_mask, **pairs, **dropout)
        if return_attention_scores:
            return project_output(self, heads[0]), heads[1]
        return project_output(self, heads)

    def _in_blocks(self, inputs, band, padding_mask, **dropout):
        start, count = None, self.global_tokens
        if padding_mask is not None:
            start = first_real(padding_mask)
            inputs, padding_mask = turn(inputs, start), turn(padding_mask, start)
        heads = attend_band(
            project_queries(self, inputs),
            *project_keys_values(self, inputs),
            band,
            padding_mask=padding_mask,
            leading=count,
            **dropout,
        )  # (B, T, N, H)
        query, key, value = self._global_heads(inputs[:, :count], inputs)
        first = attend(query, key, value, padding_mask=padding_mask, **dropout)
        outputs = ops.concatenate([first, heads[:, count:]], axis=1)
        outputs = project_output(self, outputs)
        return outputs if start is None else turn(outputs, -start)

    def _dense(self, inputs, padding_mask, attention_mask=None, **options):
        length = ops.shape(inputs)[1]
        leading = leading_mask(self.global_tokens, length, padding_mask)  # (B, T)
        columns = ops.expand_dims(leading, (1, 2))
        near = sliding_window_mask(length, window=self.window, causal=False)
        near = ops.logical_or(near, columns)
        mask = combine_masks(as_rank_4(attention_mask), near)
        options["padding_mask"] = padding_mask
        heads = attend(
            project_queries(self, inputs),
            *project_keys_values(self, inputs),
            attention_mask=mask,
            **options,
        )
        every = attend(
            *self._global_heads(inputs, inputs),
            attention_mask=attention_mask,
            **options,
        )
        rows = ops.expand_dims(leading, (2, 3))
        if not options.get("return_attention_scores"):
            return ops.where(rows, every, heads)
        weights = ops.where(ops.transpose(rows, (0, 2, 1, 3)), every[1], heads[1])
        return ops.where(rows, every[0], heads[0]), weights

    def _global_heads(self, rows, inputs):
        """Queries of some tokens, keys and values of all, by the global projections."""
        query = project_heads(self, "global_query", rows, "inputs")
        return query, *(
            project_heads(self, name, inputs, "inputs") for name in GLOBAL[1:]
        )

    def init_cache(self, batch_size, max_length, context=None):
        """Refused: a cache is for causal attention.

        Args:
            batch_size: int.
            max_length: int.
            context: None.
        """
        refuse_in_encoder(self, use_causal_mask=True)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def compute_output_spec(
        self, inputs, context=None, return_attention_scores=False, **_
    ):
        return attention_spec(self, inputs, context, return_attention_scores)

    def get_config(self):
        parts = projections_of(self)
        if self.built:
            parts = [*parts, *(getattr(self, name) for name in GLOBAL)]
        return {
            **super().get_config(),
            **arguments_of(self, parts),
            "window": self.window,
            "global_tokens": self.global_tokens,
        }
