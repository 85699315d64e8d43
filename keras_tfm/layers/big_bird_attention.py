"""BigBird: attention to near, global and random blocks of keys.

Letters: B batch, T length, C number of blocks, t length of a block, D width, G global
tokens, N heads, J blocks of keys that a block of queries sees, H size of a head.
"""

import keras
from keras import ops

from keras_tfm.layers.attention_parts import (
    active_dropout,
    arguments_of,
    make_head_parts,
    take_arguments,
)
from keras_tfm.layers.attention_projections import (
    make_projections,
    project_keys_values,
    project_output,
    project_queries,
)
from keras_tfm.layers.banded_attention import (
    attend_blocks,
    for_all,
    real_keys,
    to_blocks,
)
from keras_tfm.layers.big_bird_blocks import (
    BlockPattern,
    gather_blocks,
    pairs_of_positions,
    used_blocks,
)
from keras_tfm.layers.dot_product_attention import attend
from keras_tfm.layers.encoder_only import refuse_in_encoder
from keras_tfm.layers.heads import attention_spec
from keras_tfm.layers.leading_tokens import first_real, turn
from keras_tfm.layers.length_blocks import count_blocks
from keras_tfm.layers.masks import as_rank_4, combine_masks
from keras_tfm.layers.values import given


@keras.saving.register_keras_serializable(package="keras_tfm")
class BigBirdAttention(keras.layers.Layer):
    """Self-attention to near, global and random blocks, in time that grows with T.

    A row is cut into blocks from its first real token on. Each block of queries sees
    itself, the block on either side, `random_blocks` others from anywhere in the row,
    which are always the same for one `seed`, and what is global. Global are the first
    and the last blocks (ITC) and `global_tokens` at the beginning that belong to no
    block (ETC; prepend them with `ClassToken`): they are seen by all, and see all. A
    row of few blocks is attended to in full.

    Masks, biases and scores of size T times T are taken and given, but computed as
    densely as they are; all else is done in blocks.

    Args:
        num_heads: int N.
        block_size: int t.
        random_blocks: int, for each block of queries and each head.
        first_blocks: int, global blocks at the beginning of a row.
        last_blocks: int, global blocks at its end, where the real tokens end.
        global_tokens: int G.
        seed: int, of the random blocks.
        key_dim: int H; D / N unless given.
        use_bias: bool, biases of the four projections.
        attention_dropout: float in [0, 1), on the attention weights, in training.
        kernel_initializer: initializer of the four projections.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D), any T.
        context: refused, blocks are those of one sequence.
        padding_mask: bool (B, T), True for real tokens; joined with the implicit Keras
            mask.
        attention_mask: bool (T, T), (B, T, T), (B, 1, T, T) or (B, N, T, T).
        attention_bias: float, broadcasts to (B, N, T, T), added to the scores.
        positions: refused, there is no rotary; add them to the embeddings.
        use_causal_mask: refused, what is global sees all.
        return_attention_scores: bool, also return the weights (B, N, T, T).
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D), or a pair with the attention weights.

    Raises:
        ValueError: a `block_size` below 1, a count below 0, heads that do not divide,
            or an argument that is refused.

    Example:
        >>> layer = keras_tfm.layers.BigBirdAttention(num_heads=4, block_size=16)
        >>> tuple(layer(keras.ops.zeros((2, 300, 16))).shape)
        (2, 300, 16)

    References: Zaheer et al. 2020, arXiv:2007.14062.
    """

    def __init__(
        self,
        num_heads,
        block_size=64,
        random_blocks=3,
        first_blocks=1,
        last_blocks=1,
        global_tokens=0,
        seed=0,
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
        if block_size < 1:
            raise ValueError(f"`block_size` must be at least 1, got {block_size}.")
        counts = {
            "random_blocks": random_blocks,
            "first_blocks": first_blocks,
            "last_blocks": last_blocks,
            "global_tokens": global_tokens,
        }
        for name, value in counts.items():
            if value < 0:
                raise ValueError(f"`{name}` must not be negative, got {value}.")
            setattr(self, name, value)
        self.block_size, self.seed = block_size, seed
        self._pattern = BlockPattern(
            first_blocks, last_blocks, random_blocks, num_heads, seed
        )

    def build(self, inputs_shape):
        make_projections(self, inputs_shape)
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
        if not pairs and not self._is_short(inputs):
            return self._in_blocks(inputs, padding_mask, **dropout)
        heads = self._dense(inputs, padding_mask, **pairs, **dropout)
        if return_attention_scores:
            return project_output(self, heads[0]), heads[1]
        return project_output(self, heads)

    def _is_short(self, inputs):
        """Whether all see all."""
        length = inputs.shape[1]
        if length is None:
            return False
        count = count_blocks(length - self.global_tokens, self.block_size)
        return self._pattern.seen_by_all(count)

    def _dense(self, inputs, padding_mask, attention_mask=None, **options):
        keep = as_rank_4(attention_mask)
        if not self._is_short(inputs):
            seen = pairs_of_positions(
                self._pattern,
                self.block_size,
                self.global_tokens,
                ops.shape(inputs)[1],
                padding_mask,
            )
            keep = combine_masks(keep, seen)
        return attend(
            project_queries(self, inputs),
            *project_keys_values(self, inputs),
            padding_mask=padding_mask,
            attention_mask=keep,
            **options,
        )

    def _in_blocks(self, inputs, padding_mask, **dropout):
        start = None
        if padding_mask is not None:
            start = first_real(padding_mask)
            inputs, padding_mask = turn(inputs, start), turn(padding_mask, start)
        query = project_queries(self, inputs)
        key, value = project_keys_values(self, inputs)
        every = {"padding_mask": padding_mask, **dropout}  # for queries that see all

        outer, size = self.global_tokens, self.block_size
        length = ops.shape(query[:, :, outer:])[2]
        count, width = count_blocks(length, size), query.shape[3]
        real = real_keys(padding_mask, key)
        blocks, keys, values, reals = (
            to_blocks(x[:, :, outer:], size, count) for x in (query, key, value, real)
        )
        used = used_blocks(reals)
        numbers, counted = self._pattern.choose(used, count)
        keys, values = gather_blocks(keys, numbers), gather_blocks(values, numbers)
        # What does not count is looked up in a block behind the last.
        reals = ops.pad(reals, ((0, 0), (0, 1), (0, 0), (0, 0)))
        reals = gather_blocks(reals, ops.where(counted, numbers, count))
        if outer:
            real = ops.logical_and(real, ops.ones_like(key[..., :1], dtype="bool"))
            first = [for_all(x[:, :, :outer], count) for x in (key, value, real)]
            keys, values, reals = (
                ops.concatenate(pair, axis=3)
                for pair in zip(first, (keys, values, reals))
            )
        heads = attend_blocks(blocks, keys, values, reals, width, **dropout)
        for i in range(self.last_blocks):
            heads = self._see_all(heads, blocks, used - 1 - i, key, value, **every)
        heads = heads[:, :length]
        inner = self.first_blocks * size
        if outer + inner:
            first = attend(query[:, :, : outer + inner], key, value, **every)
            heads = ops.concatenate([first, heads[:, inner:]], axis=1)
        outputs = project_output(self, heads)
        return outputs if start is None else turn(outputs, -start)

    def _see_all(self, heads, blocks, number, key, value, **every):
        """`heads` (B, C t, N, H) with one block in each row that sees all keys."""
        batch, count, num_heads, size = ops.shape(blocks)
        width = key.shape[3]
        number = ops.reshape(number, (-1, 1, 1, 1))
        wanted = ops.broadcast_to(ops.maximum(number, 0), (batch, 1, num_heads, 1))
        query = gather_blocks(blocks, wanted)  # (B, 1, N, t H)
        query = ops.reshape(query, (batch, num_heads, size // width, width))
        found = attend(query, key, value, **every)  # (B, t, N, H)
        found = ops.reshape(found, (batch, 1, 1, num_heads * size))
        own = ops.reshape(ops.arange(count, dtype="int32"), (1, -1, 1, 1))
        here = ops.logical_and(
            ops.equal(own, number), ops.greater_equal(own, self.first_blocks)
        )
        shape = ops.shape(heads)
        heads = ops.reshape(heads, (batch, count, 1, num_heads * size))
        return ops.reshape(ops.where(here, found, heads), shape)

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
        return {
            **super().get_config(),
            **arguments_of(self),
            "block_size": self.block_size,
            "random_blocks": self.random_blocks,
            "first_blocks": self.first_blocks,
            "last_blocks": self.last_blocks,
            "global_tokens": self.global_tokens,
            "seed": self.seed,
        }
