"""How a state space begins: with time steps over a range and rates 1, 2, 3 ...

Letters: E inner width, N size of a channel's state.
"""

import math

import keras
from keras import ops


def check_state_space(state_size, kernel_size, time_step_range):
    """Refuse numbers that make no state space.

    Args:
        state_size: int, should be positive.
        kernel_size: int, should be at least 2.
        time_step_range: should be two positive floats, the smaller first.
    """
    if state_size < 1:
        raise ValueError(f"`state_size` must be positive, got {state_size}.")
    if kernel_size < 2:
        raise ValueError(f"`kernel_size` must be at least 2, got {kernel_size}.")
    shortest, longest = time_step_range
    if not 0 < shortest <= longest:
        raise ValueError(
            "`time_step_range` must be two positive numbers, the smaller first, got "
            f"{tuple(time_step_range)}."
        )


def time_step_bias(shortest, longest):
    """An initializer whose softplus is spread evenly over a range, in the logarithm.

    Args:
        shortest: float, above zero.
        longest: float.
    """
    spread = keras.initializers.RandomUniform(math.log(shortest), math.log(longest))

    def initializer(shape, dtype=None):
        steps = ops.exp(spread(shape, dtype))
        return steps + ops.log(-ops.expm1(-steps))  # the inverse of softplus

    return initializer


def log_of_range(shape, dtype=None):
    """An initializer: log of 1, 2, 3 ... along the last axis."""
    numbers = ops.arange(1, shape[-1] + 1, dtype=dtype)
    return ops.broadcast_to(ops.log(numbers), shape)
