"""The attention weights of a whole model, block by block.

Letters: B batch, N num_heads, T query length, S key length.
"""

import contextlib
import functools
import inspect

import keras


def attention_scores(model, inputs):
    """Run a model and keep what every block attends to.

    Works with any model whose layers, or whose inner models' layers, take
    `return_attention_scores`: the models of this library, and models of your own
    made of its blocks or of `keras.layers.MultiHeadAttention`. Dropout is off.

    Args:
        model: a built `keras.Model`.
        inputs: what the model takes, arrays or tensors.

    Returns: dict from "<layer>/attention" and "<layer>/cross_attention" to float
        NumPy arrays (B, N, T, S), in the order of computation. The second call of
        a shared block is named "<layer>/attention_2", and so on.

    Raises:
        ValueError: no layer returns attention weights.

    Example:
        >>> tokens = keras.Input((None, 8))
        >>> layer = keras.layers.MultiHeadAttention(2, 4, name="self")
        >>> model = keras.Model(tokens, layer(tokens, tokens))
        >>> inputs = np.ones((1, 5, 8))
        >>> scores = keras_tfm.visualize.attention_scores(model, inputs)
        >>> {name: array.shape for name, array in scores.items()}
        {'self/attention': (1, 2, 5, 5)}
    """
    scores = {}
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(_recorded(x, scores)) for x in _attending(model)]
        if not found:
            raise ValueError(
                "`model` must have layers that take `return_attention_scores`, got "
                f"{sorted({type(layer).__name__ for layer in model.layers})}."
            )
        model(inputs, training=False)
    return scores


def _attending(model):
    """The outermost layers that can return attention weights."""
    found = []
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            found += _attending(layer)
        elif "return_attention_scores" in inspect.signature(layer.call).parameters:
            found.append(layer)
    return list({id(layer): layer for layer in found}.values())


@contextlib.contextmanager
def _recorded(layer, scores):
    """While open, every call of the layer leaves its weights in `scores`."""
    call = layer.call

    @functools.wraps(call)
    def recording_call(*args, **kwargs):
        outputs, weights = call(*args, **{**kwargs, "return_attention_scores": True})
        parts = weights if isinstance(weights, dict) else {"attention": weights}
        for part, array in parts.items():
            key, count = f"{layer.name}/{part}", 2
            while key in scores:
                key, count = f"{layer.name}/{part}_{count}", count + 1
            scores[key] = keras.ops.convert_to_numpy(array)
        return outputs

    layer.call = recording_call
    try:
        yield layer
    finally:
        del layer.call
