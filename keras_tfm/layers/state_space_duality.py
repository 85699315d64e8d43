"""The recurrence of Mamba-2, chunk by chunk in matrix products.

    state_t = exp(time_step_t rate) state_{t-1} + time_step_t write_t x_t
    outputs_t = read_t state_t

Inside a chunk it is attention whose weights decay; between chunks a state is carried.

Letters: B batch, T length, G groups, R heads of a group, P width of a head, W = R P,
N state size, C chunks, Q tokens of a chunk, M = C B G matrices of one product.
"""

import keras
from keras import ops

from keras_tfm.layers.length_blocks import cut_length
from keras_tfm.layers.walk import walk

CHUNK = 64


def state_space_scan(x, time_step, write, read, rates, state=None):
    """The whole recurrence. Memory grows with T.

    Args:
        x: float (B, T, G, W).
        time_step: float (B, T, G, R), at least zero; where it is zero the state stays
            as it is.
        write: float (B, T, G, N).
        read: float (B, T, G, N).
        rates: float (G, R), negative.
        state: float (B, G, N, W), before the first token; zero unless given. All have
            one dtype, float32 at least.

    Returns: pair of outputs (B, T, G, W) and the state after the last token.

    References: Dao and Gu 2024, sec. 6, arXiv:2405.21060.
    """
    chunks = _Chunks(ops.shape(x)[1], x.shape[2])
    heads, groups = time_step.shape[3], x.shape[2]
    if state is None:
        state = _first(x, write)
    decay = chunks.cut(time_step * rates)  # (M, Q, R), exponents
    x, time_step, write, read = (chunks.cut(y) for y in (x, time_step, write, read))
    since = ops.cumsum(decay, axis=1)  # (M, Q, R), from the beginning of the chunk
    whole = since[:, -1:]  # (M, 1, R)
    outputs = _inside(x, time_step, write, read, since)

    left = time_step * ops.exp(whole - since)  # what is there at the chunk's end
    ends = ops.matmul(ops.transpose(write, (0, 2, 1)), _by_head(x, left))  # (M, N, W)
    shape = chunks.count, -1, ends.shape[1], ends.shape[2]
    wide = ops.repeat(ops.exp(whole), x.shape[2] // heads, axis=2)  # (M, 1, W)
    wide = ops.reshape(wide, (chunks.count, -1, 1, ends.shape[2]))
    begins, last = carry(
        wide, ops.reshape(ends, shape), ops.reshape(state, (-1, *shape[2:]))
    )
    begins = ops.reshape(begins, (-1, *shape[2:]))  # (M, N, W)
    outputs = outputs + _by_head(ops.matmul(read, begins), ops.exp(since))
    return chunks.join(outputs), ops.reshape(last, (-1, groups, *shape[2:]))


def state_space_step(x, time_step, write, read, rates, state=None):
    """`state_space_scan` of a single token, T = 1."""
    if state is None:
        state = _first(x, write)
    x, time_step, write, read = (ops.squeeze(y, 1) for y in (x, time_step, write, read))
    times = x.shape[2] // rates.shape[1]
    decay, steps = (
        ops.expand_dims(ops.repeat(y, times, axis=2), 2)  # (B, G, 1, W)
        for y in (ops.exp(time_step * rates), time_step)
    )
    drive = steps * ops.expand_dims(x, 2)
    state = decay * state + ops.expand_dims(write, 3) * drive  # (B, G, N, W)
    outputs = ops.sum(ops.expand_dims(read, 3) * state, axis=2)  # (B, G, W)
    return ops.expand_dims(outputs, 1), state


class _Chunks:
    """How a length is cut into matrices of Q rows."""

    def __init__(self, length, groups):
        self.length, self.groups = length, groups
        self.size, self.count, self.room = cut_length(length, CHUNK)

    def cut(self, x):
        """(B, T, G, W) -> (M, Q, W); what is missing is zero."""
        batch, width = ops.shape(x)[0], x.shape[3]
        x = ops.pad(x, ((0, 0), (0, self.room), (0, 0), (0, 0)))
        x = ops.reshape(x, (batch, self.count, self.size, self.groups, width))
        x = ops.transpose(x, (1, 0, 3, 2, 4))  # (C, B, G, Q, W)
        return ops.reshape(x, (-1, self.size, width))

    def join(self, x):
        """(M, Q, W) -> (B, T, G, W)."""
        width = x.shape[2]
        x = ops.reshape(x, (self.count, -1, self.groups, self.size, width))
        x = ops.transpose(x, (1, 0, 3, 2, 4))  # (B, C, Q, G, W)
        x = ops.reshape(x, (-1, self.count * self.size, self.groups, width))
        return x[:, : self.length]


def _inside(x, time_step, write, read, since):
    """What the tokens of one chunk give each other, (M, Q, W)."""
    _, size, heads = since.shape
    scores = ops.matmul(read, ops.transpose(write, (0, 2, 1)))  # (M, Q, Q)
    since, steps = (ops.transpose(y, (0, 2, 1)) for y in (since, time_step))
    passed = ops.expand_dims(since, 3) - ops.expand_dims(since, 2)  # (M, R, Q, Q)
    past = ops.tril(ops.ones((size, size), "bool"))
    decay = ops.where(past, ops.exp(ops.where(past, passed, 0.0)), 0.0)
    weights = ops.expand_dims(scores, 1) * decay * ops.expand_dims(steps, 2)
    outputs = ops.matmul(weights, _split(x, heads))  # (M, R, Q, P)
    outputs = ops.transpose(outputs, (0, 2, 1, 3))
    return ops.reshape(outputs, (-1, size, x.shape[2]))


def _split(x, heads):
    """(M, Q, W) -> (M, R, Q, P)."""
    _, size, width = x.shape
    x = ops.reshape(x, (-1, size, heads, width // heads))
    return ops.transpose(x, (0, 2, 1, 3))


def _by_head(x, factors):
    """(M, Q, W) times (M, Q, R), one factor for each head."""
    return x * ops.repeat(factors, x.shape[2] // factors.shape[2], axis=2)


def _first(x, write):
    """No state yet, zeros (B, G, N, W)."""
    x, write = ops.sum(x, axis=1), ops.sum(write, axis=1)  # also where T = 0
    return ops.expand_dims(ops.zeros_like(write), 3) * ops.expand_dims(
        ops.zeros_like(x), 2
    )


def carry(decay, ends, state):
    """From chunk to chunk: each begins where the last one has decayed to, plus its end.

    Args:
        decay: float (C, B, 1, W).
        ends: float (C, B, N, W), where each chunk ends if it begins with nothing.
        state: float (B, N, W).

    Returns: pair of what they begin with, (C, B, N, W), and the last state.
    """

    @ops.custom_gradient
    def run(decay, ends, state):
        def step(carried, now):
            return [now[0] * carried[0] + now[1]], carried

        zeros = [ops.zeros_like(state)]
        (last,), (begins,) = walk(step, [state], [decay, ends], zeros)

        def gradient(*arguments, upstream=None):
            upstream = arguments if upstream is None else upstream
            of_begins, of_last = keras.tree.flatten(upstream)

            def back(carried, now):
                decay, begin, of_begin = now
                of_decay = ops.sum(carried[0] * begin, axis=1, keepdims=True)
                return [decay * carried[0] + of_begin], [of_decay, *carried]

            zeros = [ops.zeros_like(decay[0]), ops.zeros_like(state)]
            sources = [decay, begins, of_begins]
            (of_state,), found = walk(back, [of_last], sources, zeros, reverse=True)
            return (*found, of_state)

        return (begins, last), gradient

    return run(decay, ends, state)
