"""Blocks that forget what they computed and compute it again for the gradient."""

import keras
from keras import ops


class Rematerialized:
    """Makes `keras.RematScope("list_of_layers")` right for blocks with dropout.

    Keras runs a layer's `call` twice, so dropout would draw other numbers for the
    gradient, and losses added inside would have none. Here `call` becomes a function
    of the weights, the state of the random generators and the tensors it is given,
    and its losses are outputs.
    """

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """`layer_call` with nothing but what it is given, to be run twice.

        Args:
            layer_call: function, `call`.
            *args: what it will be called with.
            **kwargs: likewise.

        Returns: function of the same arguments.
        """
        if not kwargs.get("training"):  # nothing is kept, nothing need be forgotten
            return layer_call
        weights = [v for v in self.variables if _has_gradient(v)]

        def run(*args, **kwargs):
            others = [
                (v, ops.copy(v))  # as it is now
                for v in self.variables
                if not _has_gradient(v)
            ]
            given = keras.tree.flatten((args, kwargs))
            places = [place for place, one in enumerate(given) if _has_gradient(one)]

            def pure(values, tensors):
                filled = list(given)
                for place, tensor in zip(places, tensors):
                    filled[place] = tensor
                some, named = keras.tree.pack_sequence_as((args, kwargs), filled)
                mapping = [*others, *zip(weights, values)]
                with keras.StatelessScope(mapping, collect_losses=True) as scope:
                    outputs = layer_call(*some, **named)
                return outputs, list(scope.losses)

            twice = super(Rematerialized, self).rematerialized_call(pure)
            outputs, losses = twice(
                [weight.value for weight in weights], [given[place] for place in places]
            )
            for variable, value in others:
                if variable.name == "seed_generator_state":  # a seed and a counter
                    variable.assign(value + ops.convert_to_tensor([0, 1], value.dtype))
            for loss in losses:
                self.add_loss(loss)
            return outputs

        return run


def _has_gradient(x):
    """Whether something is a tensor or a variable of floats."""
    dtype = getattr(x, "dtype", None)
    return dtype is not None and keras.backend.is_float_dtype(dtype)
