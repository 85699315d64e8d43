"""Mamba-2: a state space with one rate a head, in the place of attention.

Letters: B batch, T length, D width of `inputs`, E = expand D inner width, N state_size,
K kernel_size, G num_groups, H num_heads, P = E / H width of a head, R = H / G.
"""

import keras
from keras import ops

from keras_tfm.layers.heads import check_heads, check_width
from keras_tfm.layers.parts import make_dense, part_arguments
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.real_tokens_first import keep_first
from keras_tfm.layers.recurrent_mixer import RecurrentMixer, both_ways
from keras_tfm.layers.short_convolution import ShortConvolution
from keras_tfm.layers.state_space_duality import state_space_scan, state_space_step
from keras_tfm.layers.time_steps import check_state_space, log_of_range, time_step_bias


@keras.saving.register_keras_serializable(package="keras_tfm")
class Mamba2Mixer(RecurrentMixer, keras.layers.Layer):
    """Mixes tokens by a state of N x P numbers a head, in large matrix products.

    Unlike in `MambaMixer`, the channels of a head decay alike, so that a chunk of
    tokens is attention with decaying weights (the state space duality): quicker for
    the same size of state, which may be much larger. Time and memory grow with T, and a
    step of decoding costs the same at every length. It is causal by itself, so
    `use_causal_mask` changes nothing.

    Args:
        num_heads: int H, divides E.
        expand: float, E / D.
        state_size: int N.
        num_groups: int G, divides H; the heads of a group write and read alike.
        kernel_size: int K, at least 2, tokens of the convolution before the state.
        time_step_range: pair of floats, first time steps are drawn between them.
        bidirectional: bool, the state is carried both ways, with the same weights,
            over a centred convolution, and the two results are added; for encoders.
        activation: of the convolution and the gate.
        norm_epsilon: float, of the RMS norm of each group behind the gate.
        use_bias: bool, biases of the input and output projections.
        use_convolution_bias: bool.
        kernel_initializer: initializer of the two projections.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        context: None, as `attention_mask`, `attention_bias` and `positions`.
        padding_mask: bool (B, T), True for real tokens, joined with the implicit Keras
            mask. Others are passed over, wherever they stand, and give the output
            projection of zero.
        attention_mask: None.
        attention_bias: None.
        positions: None.
        use_causal_mask: bool, not if bidirectional.
        return_attention_scores: False, there are none.
        training: bool.
        mask, inputs_mask, context_mask: filled by Keras, not by users.

    Returns: float (B, T, D).

    Raises:
        ValueError: an argument above that it cannot take, a cache if bidirectional,
            heads that do not divide.

    Example:
        >>> layer = keras_tfm.layers.Mamba2Mixer(num_heads=4)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Dao and Gu 2024, arXiv:2405.21060.
    """

    def __init__(
        self,
        num_heads,
        expand=2,
        state_size=128,
        num_groups=1,
        kernel_size=4,
        time_step_range=(0.001, 0.1),
        bidirectional=False,
        activation="silu",
        norm_epsilon=1e-5,
        use_bias=False,
        use_convolution_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_heads(num_heads)
        check_state_space(state_size, kernel_size, time_step_range)
        if num_groups < 1 or num_heads % num_groups:
            raise ValueError(
                f"`num_groups` must divide `num_heads`, got {num_groups} and "
                f"{num_heads}."
            )
        self.num_heads = num_heads
        self.expand = expand
        self.state_size = state_size
        self.num_groups = num_groups
        self.kernel_size = kernel_size
        self.time_step_range = tuple(time_step_range)
        self.bidirectional = bidirectional
        self.activation = keras.activations.get(activation)
        self.norm_epsilon = norm_epsilon
        self.use_bias = use_bias
        self.use_convolution_bias = use_convolution_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        *outer, hidden_dim = inputs_shape
        self._hidden_dim, self._width = hidden_dim, int(self.expand * hidden_dim)
        if self._width % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide the inner width {self._width}, got "
                f"{self.num_heads}."
            )
        mixed = self._width + 2 * self.num_groups * self.state_size
        self.input_projection = make_dense(
            self, "input", self._width + mixed + self.num_heads, inputs_shape
        )
        self.convolution = ShortConvolution(
            self.kernel_size,
            use_bias=self.use_convolution_bias,
            centred=self.bidirectional,
            **part_arguments(self, "convolution"),
        )
        self.convolution.build((*outer, mixed))
        inner_shape = *outer, self._width
        self.output_projection = make_dense(self, "output", hidden_dim, inner_shape)
        self.time_step_bias = self._of_heads(
            "time_step_bias", time_step_bias(*self.time_step_range)
        )
        self.log_rates = self._of_heads("log_rates", log_of_range)
        self.skip = self._of_heads("skip", "ones")
        self.norm_scale = self.add_weight(
            (self._width,), initializer="ones", name="norm_scale"
        )

    def _of_heads(self, name, initializer):
        return self.add_weight((self.num_heads,), initializer=initializer, name=name)

    def cache_leaves(self):
        """Shapes and dtypes of the cache."""
        mixed = self._width + 2 * self.num_groups * self.state_size
        state = self.num_groups, self.state_size, self._width // self.num_groups
        return {
            "convolution": ((self.kernel_size - 1, mixed), self.compute_dtype),
            "state": (state, self.wide_dtype),
        }

    def mix(self, inputs, counts, cache):
        """See `RecurrentMixer`."""
        check_width(inputs, self._hidden_dim, "inputs")
        ends = self._width, -self.num_heads
        projected = self.input_projection(inputs)
        gate, x = projected[..., : ends[0]], projected[..., ends[0] : ends[1]]
        x, newest = self.convolution.call_with_cache(x, cache["convolution"], counts)
        x = self.activation(x)
        time_step = ops.cast(projected[..., ends[1] :], self.wide_dtype)  # (B, T, H)
        mixed, state = self._scan(x, time_step, counts, cache["state"])
        gated = mixed * self.activation(ops.cast(gate, self.wide_dtype))
        outputs = ops.cast(self._norm(gated), self.compute_dtype)
        outputs = self.output_projection(keep_first(outputs, counts))  # (B, T, D)
        return outputs, {"convolution": newest, "state": state}

    def _scan(self, x, time_step, counts, state):
        """What the states give, float32 (B, T, E), and the last state."""
        wide = self.wide_dtype
        time_step = ops.softplus(time_step + ops.cast(self.time_step_bias, wide))
        time_step = keep_first(time_step, counts)
        selected = self.num_groups * self.state_size
        ends = self._width, self._width + selected
        x, write, read = ops.split(ops.cast(x, wide), ends, axis=-1)
        rates = -ops.exp(ops.cast(self.log_rates, wide))
        rates = ops.reshape(rates, (self.num_groups, -1))  # (G, R)
        sequences = [self._by_group(y) for y in (x, time_step, write, read)]
        skip = ops.repeat(ops.cast(self.skip, wide), self._width // self.num_heads)
        if self.bidirectional:
            mixed, state = both_ways(state_space_scan, sequences, rates), None
            skip = 2 * skip
        elif x.shape[1] == 1:
            mixed, state = state_space_step(*sequences, rates, state)
        else:
            mixed, state = state_space_scan(*sequences, rates, state)
        return ops.reshape(mixed, ops.shape(x)) + x * skip, state

    def _by_group(self, x):
        """(B, T, ...) -> (B, T, G, ...)."""
        batch, length, width = ops.shape(x)
        groups = self.num_groups
        return ops.reshape(x, (batch, length, groups, width // groups))

    def _norm(self, x):
        """RMS norm of each group."""
        grouped = self._by_group(x)  # (B, T, G, E / G)
        size = ops.mean(ops.square(grouped), axis=-1, keepdims=True)
        grouped = grouped * ops.rsqrt(size + self.norm_epsilon)
        scale = ops.cast(self.norm_scale, x.dtype)
        return ops.reshape(grouped, ops.shape(x)) * scale

    def get_config(self):
        parts = []
        if self.built:
            parts = [self.input_projection, self.output_projection]
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, parts),
            "num_heads": self.num_heads,
            "expand": self.expand,
            "state_size": self.state_size,
            "num_groups": self.num_groups,
            "kernel_size": self.kernel_size,
            "time_step_range": self.time_step_range,
            "bidirectional": self.bidirectional,
            "activation": keras.activations.serialize(self.activation),
            "norm_epsilon": self.norm_epsilon,
            "use_bias": self.use_bias,
            "use_convolution_bias": self.use_convolution_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
