"""Mamba-1: a selective state space, in the place of attention.

Letters: B batch, T length, D width of `inputs`, E = expand D inner width, N state_size,
K kernel_size, R time_step_rank.
"""

import math

import keras
from keras import ops

from keras_tfm.layers.heads import check_width
from keras_tfm.layers.parts import make_dense, part_arguments
from keras_tfm.layers.policies import owner_dtype
from keras_tfm.layers.projection import Projection
from keras_tfm.layers.real_tokens_first import keep_first
from keras_tfm.layers.recurrent_mixer import RecurrentMixer, both_ways
from keras_tfm.layers.selective_scan import selective_scan, selective_step
from keras_tfm.layers.short_convolution import ShortConvolution
from keras_tfm.layers.time_steps import check_state_space, log_of_range, time_step_bias


@keras.saving.register_keras_serializable(package="keras_tfm")
class MambaMixer(RecurrentMixer, keras.layers.Layer):
    """Mixes tokens by a state that each token decays and writes to by its own measure.

    Widens `inputs` to E channels and a gate, convolves each channel over K tokens,
    carries N numbers a channel from token to token, and projects back to D. Time and
    memory grow with T, and a step of decoding costs the same at every length. It is
    causal by itself, so `use_causal_mask` changes nothing.

    Args:
        expand: float, E / D.
        state_size: int N.
        kernel_size: int K, at least 2.
        time_step_rank: int R; D / 16, rounded up, unless given.
        time_step_range: pair of floats, first time steps are drawn between them.
        time_step_offset: float, added to every time step.
        bidirectional: bool, the state is carried both ways, with the same weights,
            over a centred convolution, and the two results are added; for encoders.
        activation: of the convolution and the gate.
        use_bias: bool, biases of the input, selection and output projections.
        use_convolution_bias: bool.
        kernel_initializer: initializer of these projections.
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
        ValueError: an argument above that it cannot take, a cache if bidirectional.

    Example:
        >>> layer = keras_tfm.layers.MambaMixer()
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References: Gu and Dao 2023, arXiv:2312.00752; both ways: Zhu et al. 2024,
        arXiv:2401.09417.
    """

    def __init__(
        self,
        expand=2,
        state_size=16,
        kernel_size=4,
        time_step_rank=None,
        time_step_range=(0.001, 0.1),
        time_step_offset=0.0,
        bidirectional=False,
        activation="silu",
        use_bias=False,
        use_convolution_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        check_state_space(state_size, kernel_size, time_step_range)
        self.expand = expand
        self.state_size = state_size
        self.kernel_size = kernel_size
        self.time_step_rank = time_step_rank
        self.time_step_range = tuple(time_step_range)
        self.time_step_offset = time_step_offset
        self.bidirectional = bidirectional
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.use_convolution_bias = use_convolution_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, inputs_shape, context_shape=None):
        *outer, hidden_dim = inputs_shape
        self._hidden_dim, self._width = hidden_dim, int(self.expand * hidden_dim)
        self._rank = self.time_step_rank or math.ceil(hidden_dim / 16)
        inner_shape = *outer, self._width
        self.input_projection = make_dense(self, "input", 2 * self._width, inputs_shape)
        self.convolution = ShortConvolution(
            self.kernel_size,
            use_bias=self.use_convolution_bias,
            centred=self.bidirectional,
            **part_arguments(self, "convolution"),
        )
        self.convolution.build(inner_shape)
        selected = self._rank + 2 * self.state_size
        self.selection = make_dense(self, "selection", selected, inner_shape)
        bound = self._rank**-0.5
        self.time_step = Projection(
            self._width,
            use_bias=False,  # its bias is added in float32
            kernel_initializer=keras.initializers.RandomUniform(-bound, bound),
            **part_arguments(self, "time_step"),
        )
        self.time_step.build((*outer, self._rank))
        self.output_projection = make_dense(self, "output", hidden_dim, inner_shape)
        self.time_step_bias = self.add_weight(
            shape=(self._width,),
            initializer=time_step_bias(*self.time_step_range),
            name="time_step_bias",
        )
        self.log_rates = self.add_weight(
            shape=(self._width, self.state_size),
            initializer=log_of_range,
            name="log_rates",
        )
        self.skip = self.add_weight((self._width,), initializer="ones", name="skip")

    def cache_leaves(self):
        """Shapes and dtypes of the cache."""
        return {
            "convolution": ((self.kernel_size - 1, self._width), self.compute_dtype),
            "state": ((self.state_size, self._width), self.wide_dtype),
        }

    def mix(self, inputs, counts, cache):
        """See `RecurrentMixer`."""
        check_width(inputs, self._hidden_dim, "inputs")
        x, gate = ops.split(self.input_projection(inputs), 2, axis=-1)  # (B, T, E)
        x, newest = self.convolution.call_with_cache(x, cache["convolution"], counts)
        x = self.activation(x)
        mixed, state = self._scan(x, counts, cache["state"])
        mixed = ops.cast(mixed, x.dtype) * self.activation(gate)
        outputs = self.output_projection(keep_first(mixed, counts))  # (B, T, D)
        return outputs, {"convolution": newest, "state": state}

    def _scan(self, x, counts, state):
        """What the states give, float32 (B, T, E), and the last state (B, N, E)."""
        wide = self.wide_dtype
        ends = self._rank, self._rank + self.state_size
        time_step, write, read = ops.split(self.selection(x), ends, axis=-1)
        time_step = ops.cast(self.time_step(time_step), wide)
        time_step = ops.softplus(time_step + ops.cast(self.time_step_bias, wide))
        time_step = keep_first(time_step + self.time_step_offset, counts)
        x, write, read = (ops.cast(y, wide) for y in (x, write, read))
        rates = -ops.exp(ops.cast(ops.transpose(self.log_rates), wide))  # (N, E)
        sequences = time_step, time_step * x, write, read
        skipped = x * ops.cast(self.skip, wide)
        if self.bidirectional:
            return both_ways(selective_scan, sequences, rates) + 2 * skipped, None
        run = selective_step if x.shape[1] == 1 else selective_scan
        mixed, state = run(*sequences, rates, state)
        return mixed + skipped, state

    def get_config(self):
        parts = []
        if self.built:
            parts = [self.input_projection, self.selection]
            parts += [self.time_step, self.output_projection]
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, parts),
            "expand": self.expand,
            "state_size": self.state_size,
            "kernel_size": self.kernel_size,
            "time_step_rank": self.time_step_rank,
            "time_step_range": self.time_step_range,
            "time_step_offset": self.time_step_offset,
            "bidirectional": self.bidirectional,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "use_convolution_bias": self.use_convolution_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
