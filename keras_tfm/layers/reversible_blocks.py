"""A stack of blocks whose inputs are found again from their outputs.

Letters: B batch, T length, D width, L num_blocks.
"""

import keras
from keras import ops

from keras_tfm.layers.key_value_cache import check_built
from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.values import (
    deserialize_values,
    draws_random_numbers,
    given,
    recreate,
    serialize_value,
)
from keras_tfm.layers.vector_jacobian import value_and_pullback


@keras.saving.register_keras_serializable(package="keras_tfm")
class ReversibleBlocks(keras.layers.Layer):
    """Blocks over two streams, trained with the memory of one block.

        y1 = x1 + attention(norm(x2))
        y2 = x2 + feed_forward(norm(y1))

    A block's inputs are its outputs minus its branches, so that nothing is kept for
    the gradient but the last outputs: it goes back block by block, computes each
    again, and memory does not grow with L. Both streams start as `inputs`, in float32
    at least; the result is their mean.

    Args:
        block: a `TransformerEncoderBlock`, or a `TransformerDecoderBlock` without
            cross-attention, without dropout, of `norm_position` "pre" or "sandwich".
        num_blocks: int L, copies of it, each with its own weights.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        padding_mask: bool (B, T), True for real tokens; joined with the implicit
            Keras mask.
        attention_mask: bool (T, T), (B, T, T), (B, 1, T, T) or (B, N, T, T).
        positions: int (T,) or (B, T), for an attention with `rotary`.
        use_causal_mask: bool, as the block has it unless given.
        training: bool.
        mask, inputs_mask: filled by Keras, not by users.

    Returns: float (B, T, D).

    Raises:
        ValueError: `num_blocks` below 1; a block that draws random numbers, has
            cross-attention or `norm_position="post"`.

    Example:
        >>> block = keras_tfm.layers.TransformerEncoderBlock(
        ...     keras_tfm.layers.LSHAttention(num_heads=4),
        ...     keras_tfm.layers.FeedForward(64),
        ... )
        >>> layer = keras_tfm.layers.ReversibleBlocks(block, num_blocks=3)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References:
        Gomez et al. 2017, arXiv:1707.04585; Kitaev et al. 2020, sec. 3,
        arXiv:2001.04451.
    """

    def __init__(self, block, num_blocks, **kwargs):
        super().__init__(autocast=False, **kwargs)
        if num_blocks < 1:
            raise ValueError(f"`num_blocks` must be at least 1, got {num_blocks}.")
        names = [f"block_{i}" for i in range(num_blocks)]
        self.blocks = [recreate(block, name, self) for name in names]
        first = self.blocks[0]
        if getattr(first, "norm_position", "post") == "post":
            raise ValueError(
                "`block` must be a TransformerEncoderBlock or TransformerDecoderBlock "
                f'with `norm_position` "pre" or "sandwich", got {block!r}.'
            )
        crossed = getattr(first, "cross_attention", None) is not None
        if crossed or first.feed_forward is None:
            raise ValueError(
                "`block` must have a `feed_forward` and no `cross_attention`."
            )
        self.num_blocks = num_blocks
        self.supports_masking = True

    def build(self, inputs_shape):
        for block in self.blocks:
            block.build(inputs_shape)
        if draws_random_numbers(self.blocks[0]):
            raise ValueError(
                "`block` must draw no random numbers, which it could not draw again: "
                "set its dropout, and that of its parts, to 0."
            )

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        positions=None,
        use_causal_mask=None,
        training=None,
        mask=None,
        inputs_mask=None,
    ):
        arguments = given(
            padding_mask=combine_masks(padding_mask, mask, inputs_mask),
            attention_mask=attention_mask,
            positions=positions,
            use_causal_mask=self._causal(use_causal_mask),
        )
        branches = [
            branch
            for block in self.blocks
            for branch in (_Attention(block, arguments), _FeedForward(block))
        ]
        return ops.cast(_run(branches, self._streams(inputs)), self.compute_dtype)

    def init_cache(self, batch_size, max_length, context=None):
        """Empty caches of the blocks' attention.

        Args:
            batch_size: int or int tensor B.
            max_length: int M, positions that the cache holds.
            context: None.

        Returns: list of L caches.
        """
        check_built(self)
        return [
            block.attention.init_cache(batch_size, max_length) for block in self.blocks
        ]

    def call_with_cache(
        self,
        inputs,
        cache,
        cache_index,
        padding_mask=None,
        context_padding_mask=None,
        positions=None,
    ):
        """The blocks on new tokens, causal.

        Args:
            inputs: float (B, T, D), the tokens at cache_index, cache_index + 1 ...
            cache: what `init_cache` or the last call gave.
            cache_index: int32 scalar tensor, how many positions are filled.
            padding_mask: bool (B, M), True for real tokens.
            context_padding_mask: None.
            positions: int (T,) or (B, T), for an attention with `rotary`.

        Returns: pair of float (B, T, D) and the new cache.
        """
        check_built(self)
        one = other = self._streams(inputs)
        found = []
        for block, block_cache in zip(self.blocks, cache):
            residual = block.attention_residual
            entered = residual.enter(ops.cast(other, self.compute_dtype))
            branch, block_cache = block.attention.call_with_cache(
                entered,
                block_cache,
                cache_index,
                padding_mask=padding_mask,
                positions=positions,
            )
            one = one + _branch(residual, branch, one.dtype)
            other = other + _FeedForward(block)(one)
            found.append(block_cache)
        return ops.cast((one + other) / 2, self.compute_dtype), found

    def _streams(self, inputs):
        wide = keras.backend.result_type(self.compute_dtype, "float32")
        return ops.cast(ops.cast(inputs, self.compute_dtype), wide)

    def _causal(self, use_causal_mask):
        if use_causal_mask is None:  # a decoder block is causal
            return hasattr(self.blocks[0], "cross_attention")
        return use_causal_mask

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, self.blocks),
            "block": serialize_value(self.blocks[0]),
            "num_blocks": self.num_blocks,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("block",)))


class _Branch:
    """What is added to one stream, as a function of the other and of weights."""

    def __init__(self, block, layers):
        self.block = block
        self.variables = [v for layer in layers for v in layer.trainable_variables]
        others = [v for layer in layers for v in layer.non_trainable_variables]
        self.others = [(v, ops.copy(v)) for v in others]

    def pure(self, x, *values):
        """The branch with these values as its trainable weights."""
        mapping = [*self.others, *zip(self.variables, values)]
        with keras.StatelessScope(mapping):
            return self(x)


class _Attention(_Branch):
    def __init__(self, block, arguments):
        super().__init__(block, [block.attention_residual, block.attention])
        self.arguments = arguments

    def __call__(self, x):
        residual = self.block.attention_residual
        entered = residual.enter(ops.cast(x, self.block.compute_dtype))
        branch = self.block.attention(entered, **self.arguments)
        return _branch(residual, branch, x.dtype)


class _FeedForward(_Branch):
    def __init__(self, block):
        super().__init__(block, [block.feed_forward_residual, block.feed_forward])

    def __call__(self, x):
        residual = self.block.feed_forward_residual
        entered = residual.enter(ops.cast(x, self.block.compute_dtype))
        return _branch(residual, self.block.feed_forward(entered), x.dtype)


def _branch(residual, branch, dtype):
    """What the residual would add to its stream."""
    return ops.cast(residual.leave(ops.zeros_like(branch), branch), dtype)


def _run(branches, x):
    """Mean of both streams after all branches, which take turns."""
    counts = [len(branch.variables) for branch in branches]
    values = [ops.copy(v) for branch in branches for v in branch.variables]

    def cut(values):
        """The weights of each branch."""
        starts = [sum(counts[:i]) for i in range(len(counts))]
        return [list(values[s : s + n]) for s, n in zip(starts, counts)]

    @ops.custom_gradient
    def run(x, *values):
        one = other = x  # attention is added to one, as a function of the other
        for branch, some in zip(branches, cut(values)):
            one, other = other, one + branch.pure(other, *some)
        ends = one, other

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            one, other = ends
            one_grad = other_grad = upstream / 2
            found = []
            for branch, some in zip(branches[::-1], cut(values)[::-1]):
                # (one, other) = (b, a + f(b)), and now (a, b) again
                added, (grad, *of_values) = value_and_pullback(
                    branch.pure, [one, *some], other_grad
                )
                one, other = other - added, one
                one_grad, other_grad = other_grad, one_grad + grad
                found = of_values + found
            return one_grad + other_grad, *found

        return (one + other) / 2, gradient

    return run(x, *values)
