"""Gradients of a function where it is called: what `keras.ops` has no word for.

The only file of layers/ that knows backends: each has its own way to say it.
"""

import keras


def value_and_pullback(function, inputs, upstream):
    """The value of a function, and gradients of its product with `upstream`.

    Args:
        function: of float tensors, gives one float tensor.
        inputs: list of float tensors.
        upstream: tensor like the value.

    Returns: pair of the value and a list of gradients, like `inputs`.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(inputs)
            value = function(*inputs)
        upstream = tf.cast(upstream, value.dtype)
        found = tape.gradient(
            value, inputs, upstream, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return value, [tf.convert_to_tensor(gradient) for gradient in found]
    if backend == "jax":
        import jax

        value, pull = jax.vjp(function, *inputs)
        return value, list(pull(upstream.astype(value.dtype)))
    if backend == "torch":
        import torch

        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in inputs]
            value = function(*inputs)
        found = torch.autograd.grad(
            value, inputs, upstream.to(value.dtype), allow_unused=True
        )
        zeros = [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs)]
        return value.detach(), zeros
    raise NotImplementedError(f"No gradients inside a layer on the {backend} backend.")
