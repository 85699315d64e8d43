"""RingAttention on eight virtual devices of JAX, in a process of its own.

Run by `python -m tests.ring_on_devices` with KERAS_BACKEND=jax and XLA_FLAGS
--xla_force_host_platform_device_count=8.
"""

import sys

import jax
import keras
import numpy as np

from keras_tfm import layers
from tests.laws import assert_near, normal, randomize

B, T, D = 2, 512, 12


def distribute(count):
    """Make a mesh with the sequence over `count` devices the current one."""
    devices = keras.distribution.list_devices("cpu")[:count]
    mesh = keras.distribution.DeviceMesh((1, count), ("batch", "sequence"), devices)
    layout = keras.distribution.LayoutMap(mesh)
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
    )


def step_of(layer, mask, causal):
    """Outputs and gradients of a layer as a function of its inputs and weights."""

    def loss(x, values):
        with keras.StatelessScope(state_mapping=list(zip(layer.variables, values))):
            y = layer(x, padding_mask=mask, use_causal_mask=causal)
        return keras.ops.sum(y * keras.ops.cos(y)), y

    return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))


def main():
    """Compare with dense attention; look at the program and its memory."""
    x = normal(B, T, D)
    mask = np.arange(T) < [[T - 100], [T]]
    dense = layers.MultiHeadAttention(3, implementation="dense")
    dense.build(x.shape)
    values = [v.value for v in randomize(dense).variables]
    memory = {}
    for causal in (False, True):
        expected = step_of(dense, mask, causal)(x, values)
        for count in (1, 2, 4, 8):
            distribute(count)
            ring = layers.RingAttention(3)
            ring.build(x.shape)
            ring.set_weights(dense.get_weights())
            step = step_of(ring, mask, causal)
            program = step.lower(x, [v.value for v in ring.variables]).compile()
            memory[causal, count] = program.memory_analysis().temp_size_in_bytes
            found = step(x, [v.value for v in ring.variables])
            for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
                assert_near(np.asarray(one), np.asarray(other), 2e-3)
            text = program.as_text()
            assert ("collective-permute" in text) == (count > 1)
    keras.distribution.set_distribution(None)
    for causal in (False, True):
        used = [memory[causal, count] for count in (1, 2, 4, 8)]
        print(used, file=sys.stderr)
        assert used[0] > 1.5 * used[1] > 2 * used[2] > 2.5 * used[3], used
    print(len(jax.devices()), "devices: right")


if __name__ == "__main__":
    main()
