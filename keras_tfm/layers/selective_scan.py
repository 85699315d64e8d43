"""The recurrence of Mamba-1, by many lanes at once, with a gradient of its own.

    state_t = exp(time_step_t * rates) state_{t-1} + drive_t write_t
    outputs_t = read_t state_t

The length is cut into segments of STEPS tokens, those of small states into several
lanes of STEPS tokens. In a segment every lane first finds where it would end if it
began with nothing; from that follows where it begins, and all lanes walk once more and
give outputs; a single lane knows where it begins. Segments follow one another. The
gradient computes their states again, so none is kept but the first of each: what a
segment needs stays in the caches.

Letters: B batch, T length, E inner width, N size of a channel's state, G segments,
P lanes, J steps of a lane, M = P B rows that are computed at once, W any width.
"""

import keras
from keras import ops

from keras_tfm.layers.length_blocks import count_blocks, cut_length
from keras_tfm.layers.walk import walk

STEPS = 32
ENOUGH = 4096  # numbers that a step should have, so that its own time is small


def selective_scan(time_step, drive, write, read, rates, state=None):
    """The whole recurrence.

    Memory grows with T W, not with T E N. First gradients only.

    Args:
        time_step: float (B, T, E), at least zero; where it and `drive` are zero, the
            state stays as it is.
        drive: float (B, T, E), what goes into the state: the input times `time_step`.
        write: float (B, T, N).
        read: float (B, T, N).
        rates: float (N, E), negative.
        state: float (B, N, E), before the first token; zero unless given. All have
            one dtype, float32 at least.

    Returns: pair of outputs (B, T, E) and the state after the last token.

    References:
        Gu and Dao 2023, sec. 3, arXiv:2312.00752; Blelloch 1990, Prefix Sums and
        Their Applications.
    """
    segments = _Segments(*ops.shape(drive)[:2], drive.shape[2] * write.shape[2])
    state = _first(drive, rates) if state is None else state

    @ops.custom_gradient
    def run(time_step, drive, write, read, rates, state):
        sequences = [segments.cut(x) for x in (time_step, drive, write, read)]
        outputs, last, starts = _forward(sequences, rates, state, segments.lanes)

        def gradient(*arguments, upstream=None):
            upstream = arguments if upstream is None else upstream
            of_outputs, of_last = keras.tree.flatten(upstream)
            above = segments.cut(of_outputs), of_last
            found = _backward(sequences, rates, starts, above, segments.lanes)
            of_sequences = [segments.join(x) for x in found[2:]]
            return (*of_sequences, *found[:2])

        return (segments.join(outputs), last), gradient

    return run(time_step, drive, write, read, rates, state)


def selective_step(time_step, drive, write, read, rates, state=None):
    """`selective_scan` of a single token, T = 1."""
    state = _first(drive, rates) if state is None else state
    parts = [ops.squeeze(x, 1) for x in (time_step, drive, write, read)]
    state = _decay(parts[0], rates) * state + _outer(parts[2], parts[1])
    return ops.expand_dims(_read(state, parts[3]), 1), state


def _first(drive, rates):
    """No state yet: zeros (B, N, E) for drive (B, T, E)."""
    row = ops.sum(drive, axis=1, keepdims=True)  # (B, 1, E), also where T = 0
    return ops.zeros_like(row) * ops.zeros_like(rates)


class _Segments:
    """How a length is cut: the tokens of one step of all lanes lie side by side."""

    def __init__(self, batch, length, numbers):
        self.length, self.steps = length, STEPS
        batch = batch if isinstance(batch, int) else 1
        self.lanes = max(1, ENOUGH // max(1, batch * numbers))
        if isinstance(length, int):
            self.steps, count, _ = cut_length(length, STEPS)
            self.lanes = min(self.lanes, count)
        self.count = count_blocks(length, self.lanes * self.steps)

    def cut(self, x):
        """(B, T, W) -> (G, J, M, W); what is missing is zero."""
        batch, width = ops.shape(x)[0], x.shape[2]
        room = self.count * self.lanes * self.steps - self.length
        x = ops.pad(x, ((0, 0), (0, room), (0, 0)))
        x = ops.reshape(x, (batch, self.count, self.lanes, self.steps, width))
        x = ops.transpose(x, (1, 3, 2, 0, 4))  # (G, J, P, B, W)
        return ops.reshape(x, (self.count, self.steps, -1, width))

    def join(self, x):
        """(G, J, M, W) -> (B, T, W)."""
        width = x.shape[3]
        x = ops.reshape(x, (self.count, self.steps, self.lanes, -1, width))
        x = ops.transpose(x, (3, 0, 2, 1, 4))  # (B, G, P, J, W)
        size = self.count * self.steps * self.lanes
        return ops.reshape(x, (-1, size, width))[:, : self.length]


def _forward(sequences, rates, state, lanes):
    """Outputs (G, J, M, E), the last state, and that before each segment."""

    def segment(carried, parts):
        time_step, drive, write, read = parts
        moves = _decay(time_step, rates), _outer(write, drive)
        starts = _lane_starts(carried[0], moves, time_step, rates, lanes)

        def step(carried, now):
            after = now[0] * carried[0] + now[1]
            return [after], [_read(after, now[2])]

        zeros = [ops.zeros_like(drive[0])]
        (ends,), made = walk(step, [starts], [*moves, read], zeros)
        return [_by_lane(ends, lanes)[-1]], [*made, carried[0]]

    zeros = [ops.zeros_like(sequences[1][0]), ops.zeros_like(state)]
    (last,), (outputs, starts) = walk(segment, [state], sequences, zeros)
    return outputs, last, starts


def _backward(sequences, rates, starts, above, lanes):
    """Gradients of rates, of the first state, and of the sequences in their order."""

    def segment(carried, parts):
        of_rates, of_last = carried
        *now, of_outputs, start = parts
        found = _segment_gradient(now, rates, start, (of_outputs, of_last), lanes)
        return [of_rates + found[0], found[1]], found[2:]

    of_outputs, of_last = above
    carried, made = walk(
        segment,
        [ops.zeros_like(rates), of_last],
        [*sequences, of_outputs, starts],
        [ops.zeros_like(x[0]) for x in sequences],
        reverse=True,
    )
    return *carried, *made


def _segment_gradient(parts, rates, start, above, lanes):
    """What `_backward` gives, of one segment."""
    time_step, drive, write, read = parts
    of_outputs, of_last = above
    decay, inflow = _decay(time_step, rates), _outer(write, drive)
    starts = _lane_starts(start, (decay, inflow), time_step, rates, lanes)
    states = _states(starts, decay, inflow)  # (J, M, N, E), after each step

    def step(carried, now):  # carried: gradient of the state before the later step
        of_after = carried[0] + now[1]
        return [now[0] * of_after], [of_after]

    def both(carried, now):  # also that of rates; XLA sums columns slowly afterwards
        decay, above, before, time_step = now
        (of_before,), made = step(carried[:1], (decay, above))
        of_rates = before * of_before * ops.expand_dims(time_step, 1)
        return [of_before, carried[1] + of_rates], made

    before = ops.concatenate([ops.expand_dims(starts, 0), states[:-1]], axis=0)
    sources = decay, _outer(read, of_outputs)
    of_ends = _lane_starts(of_last, sources, time_step, rates, lanes, step)
    (of_starts, of_rates), (of_states,) = walk(
        both,
        [of_ends, ops.zeros_like(starts)],
        [*sources, before, time_step],
        [ops.zeros_like(starts)],
        reverse=True,
    )
    of_exponent = decay * before * of_states
    return (
        ops.sum(of_rates, axis=0),
        _by_lane(of_starts, lanes)[0],
        ops.sum(of_exponent * rates, axis=2),  # of time_step
        _read(of_states, write),  # of drive
        _along(of_states, drive),  # of write
        _along(states, of_outputs),  # of read
    )


def _states(starts, decay, inflow):
    """States after each step, (J, M, N, E)."""

    def step(carried, now):
        after = now[0] * carried[0] + now[1]
        return [after], [after]

    return walk(step, [starts], [decay, inflow], [ops.zeros_like(starts)])[1][0]


def _lane_starts(state, moves, time_step, rates, lanes, back=None):
    """What each lane begins with, from where they end if they begin with nothing.

    Args:
        state: (B, N, E), what the first one begins with.
        moves: pair of (J, M, N, E), factors and what is added.
        time_step: (J, M, E).
        rates: (N, E).
        lanes: int P.
        back: None, or the step of a walk from the last lane to the first.

    Returns: float (M, N, E).
    """
    if lanes == 1:
        return state
    reverse = back is not None

    def step(carried, now):
        return [now[0] * carried[0] + now[1]], []

    def alone(carried, now):
        return back(carried, now)[0], []

    nothing = ops.zeros_like(moves[0][0])
    (ends,), _ = walk(alone if reverse else step, [nothing], moves, reverse=reverse)
    whole = _decay(ops.sum(time_step, axis=0), rates)  # (M, N, E)
    whole, ends = _by_lane(whole, lanes), _by_lane(ends, lanes)

    def lane(carried, now):
        return step(carried, now)[0], carried

    zeros = [ops.zeros_like(state)]
    _, (begins,) = walk(lane, [state], [whole, ends], zeros, reverse)
    return ops.reshape(begins, (-1, *rates.shape))


def _by_lane(x, lanes):
    """(M, N, E) -> (P, B, N, E)."""
    return ops.reshape(x, (lanes, -1, *x.shape[1:]))


def _decay(time_step, rates):
    """(..., E) and (N, E) -> (..., N, E)."""
    return ops.exp(ops.expand_dims(time_step, -2) * rates)


def _outer(x, y):
    """(..., N) and (..., E) -> (..., N, E)."""
    return ops.expand_dims(x, -1) * ops.expand_dims(y, -2)


def _read(state, read):
    """(..., N, E) and (..., N) -> (..., E)."""
    return ops.squeeze(ops.matmul(ops.expand_dims(read, -2), state), -2)


def _along(state, x):
    """(..., N, E) and (..., E) -> (..., N)."""
    return ops.squeeze(ops.matmul(state, ops.expand_dims(x, -1)), -1)
