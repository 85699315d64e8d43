"""A position-wise layer applied to a part of the length at a time.

Letters: B batch, T length, D width, C length of a chunk, n chunks.
"""

import keras
from keras import ops

from keras_tfm.layers.length_blocks import count_blocks
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.values import (
    build_value,
    deserialize_values,
    draws_random_numbers,
    recreate,
    serialize_value,
    takes,
)
from keras_tfm.layers.vector_jacobian import value_and_pullback


@keras.saving.register_keras_serializable(package="keras_tfm")
class ChunkedFeedForward(keras.layers.Layer):
    """The numbers of a feed-forward, with the memory of a few positions.

    What the layer widens to exists for one chunk of positions only, forward and, as it
    is computed again, backward.

    Args:
        feed_forward: position-wise layer, such as `FeedForward`, without dropout.
        chunk_size: int C, positions at a time.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).

    Returns: float (B, T, D).

    Raises:
        ValueError: `chunk_size` below 1; a feed-forward that draws random numbers or
            wants a mask.

    Example:
        >>> layer = keras_tfm.layers.ChunkedFeedForward(
        ...     keras_tfm.layers.FeedForward(64), chunk_size=4
        ... )
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Kitaev et al. 2020, sec. 3, arXiv:2001.04451.
    """

    def __init__(self, feed_forward, chunk_size, **kwargs):
        super().__init__(autocast=False, **kwargs)
        if chunk_size < 1:
            raise ValueError(f"`chunk_size` must be at least 1, got {chunk_size}.")
        self.feed_forward = recreate(feed_forward, "feed_forward", self)
        self.chunk_size = chunk_size
        self.supports_masking = True

    def build(self, inputs_shape):
        build_value(self.feed_forward, inputs_shape)
        wants_mask = takes(self.feed_forward, "padding_mask")
        if wants_mask or draws_random_numbers(self.feed_forward):
            raise ValueError(
                "`feed_forward` must draw no random numbers (dropout belongs to the "
                "block) and take no `padding_mask`, got "
                f"{type(self.feed_forward).__name__}."
            )

    def call(self, inputs):
        x = ops.cast(inputs, self.compute_dtype)
        length, size = ops.shape(x)[1], self.chunk_size
        room = count_blocks(length, size) * size - length
        x = ops.pad(x, ((0, 0), (0, room), (0, 0)))  # (B, n C, D)
        variables = self.feed_forward.trainable_variables
        others = [(v, ops.copy(v)) for v in self.feed_forward.non_trainable_variables]

        def pure(x, *values):
            with keras.StatelessScope([*others, *zip(variables, values)]):
                return self.feed_forward(x)

        @ops.custom_gradient
        def run(x, *values):
            def forward(i, outputs):
                return _put(outputs, pure(_chunk(x, i, size), *values), i, size)

            def gradient(*arguments, upstream=None):
                upstream = arguments[0] if upstream is None else upstream

                def backward(i, x_grad, *value_grads):
                    inputs = [_chunk(x, i, size), *values]
                    above = _chunk(upstream, i, size)
                    _, (x_part, *parts) = value_and_pullback(pure, inputs, above)
                    sums = [
                        a + ops.cast(b, a.dtype) for a, b in zip(value_grads, parts)
                    ]
                    return _put(x_grad, x_part, i, size), *sums

                nothing = [ops.zeros_like(one) for one in (x, *values)]
                return tuple(_for_each_chunk(x, size, backward, *nothing))

            [outputs] = _for_each_chunk(x, size, forward, ops.zeros_like(x))
            return outputs, gradient

        return run(x, *[ops.copy(v) for v in variables])[:, :length]

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, [self.feed_forward]),
            "feed_forward": serialize_value(self.feed_forward),
            "chunk_size": self.chunk_size,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("feed_forward",)))


def _for_each_chunk(x, size, step, *state):
    """The state after `step(i, *state)` for each chunk i of (B, n C, D)."""
    count = ops.shape(x)[1] // size

    def body(i, *state):
        state = step(i, *state)
        return i + 1, *(state if isinstance(state, tuple) else (state,))

    first = ops.convert_to_tensor(0, "int32")
    return ops.while_loop(lambda i, *_: ops.less(i, count), body, (first, *state))[1:]


def _chunk(x, i, size):
    """Chunk i of (B, n C, D), (B, C, D)."""
    batch, _, width = ops.shape(x)
    return ops.slice(x, (0, i * size, 0), (batch, size, width))


def _put(x, chunk, i, size):
    """(B, n C, D) with chunk i replaced."""
    return ops.slice_update(x, (0, i * size, 0), chunk)
