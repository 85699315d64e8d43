"""Mixture of experts: each token is computed by a few of many feed-forwards.

Letters: B batch, T length, D width of `inputs`, E num_experts.
"""

import keras
from keras import ops

from keras_tfm.layers.masks import combine_masks
from keras_tfm.layers.policies import owner_dtype, part_policy
from keras_tfm.layers.values import (
    build_value,
    deserialize_values,
    given,
    recreate,
    serialize_value,
    takes,
)


@keras.saving.register_keras_serializable(package="keras_tfm")
class MixtureOfExperts(keras.layers.Layer):
    """Sends each token to its `top_k` experts and adds what they say, weighted.

    A linear router scores the experts of every token; the weights of the chosen ones
    are the softmax over their scores alone. There is no capacity: no token is
    dropped, and the result is exact. Every expert is computed on every token, so
    this saves parameters' worth of specialisation, not time.

    Two losses are added in training: the load-balancing loss
    weight * E * sum_e(share of tokens sent to e * mean router probability of e),
    which is weight * 1 at perfect balance, and the router z loss
    weight * mean(logsumexp(router scores) ** 2), which keeps scores small. Padding
    counts in neither.

    Args:
        expert: position-wise layer such as `FeedForward`, recreated E times.
        num_experts: int E.
        top_k: int, experts per token.
        load_balancing_weight: float.
        router_z_weight: float.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, D).
        padding_mask: bool (B, T), True for real tokens.
        training: bool.
        mask, inputs_mask: filled by Keras, not by users.

    Returns: float (B, T, D).

    Raises:
        ValueError: unless 1 <= top_k <= num_experts.

    Example:
        >>> expert = keras_tfm.layers.FeedForward(32)
        >>> layer = keras_tfm.layers.MixtureOfExperts(expert, num_experts=4)
        >>> tuple(layer(keras.ops.zeros((2, 7, 16))).shape)
        (2, 7, 16)

    References:
        Shazeer et al. 2017, arXiv:1701.06538; load balancing: Fedus et al. 2021,
        sec. 2.2, arXiv:2101.03961; z loss: Zoph et al. 2022, arXiv:2202.08906;
        softmax over the chosen: Jiang et al. 2024, arXiv:2401.04088.
    """

    def __init__(
        self,
        expert,
        num_experts,
        top_k=2,
        load_balancing_weight=0.01,
        router_z_weight=0.001,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        if not 1 <= top_k <= num_experts:
            raise ValueError(
                f"`top_k` must be between 1 and `num_experts`, got {top_k} of "
                f"{num_experts}."
            )
        self.experts = [
            recreate(expert, f"expert_{i}", self) for i in range(num_experts)
        ]
        self.num_experts = num_experts
        self.top_k = top_k
        self.load_balancing_weight = load_balancing_weight
        self.router_z_weight = router_z_weight
        self.supports_masking = True

    def build(self, inputs_shape):
        self.router = keras.layers.Dense(
            self.num_experts,
            use_bias=False,
            name="router",
            dtype=_at_least_float32(part_policy(self.dtype_policy, "router")),
            trainable=self.trainable,
        )
        self.router.build(inputs_shape)
        for expert in self.experts:
            build_value(expert, inputs_shape)

    def call(
        self, inputs, padding_mask=None, training=None, mask=None, inputs_mask=None
    ):
        x = ops.cast(inputs, self.compute_dtype)
        padding_mask = combine_masks(padding_mask, mask, inputs_mask)
        scores = self.router(ops.cast(x, self.router.compute_dtype))  # (B, T, E)
        chosen, weights = self._route(scores)
        if training:
            self._add_losses(scores, chosen, padding_mask)
        outputs = 0.0
        weights = ops.split(ops.cast(weights, x.dtype), self.num_experts, axis=-1)
        for expert, weight in zip(self.experts, weights):
            flag = training if takes(expert, "training") else None
            outputs = outputs + weight * expert(x, **given(training=flag))
        return outputs

    def _route(self, scores):
        """Chosen experts as 0 or 1, and their weights, both (B, T, E)."""
        _, indices = ops.top_k(scores, self.top_k)  # (B, T, top_k)
        one_hot = ops.one_hot(indices, self.num_experts, dtype=scores.dtype)
        chosen = ops.sum(one_hot, axis=-2)
        weights = ops.softmax(ops.where(ops.greater(chosen, 0), scores, -1e30), axis=-1)
        return chosen, weights

    def _add_losses(self, scores, chosen, padding_mask):
        if padding_mask is None:
            real = ops.ones_like(scores[..., :1])
        else:
            real = ops.expand_dims(ops.cast(padding_mask, scores.dtype), -1)
        count = ops.maximum(ops.sum(real), 1.0)
        share = ops.sum(chosen * real, axis=(0, 1)) / (count * self.top_k)  # (E,)
        probability = ops.sum(ops.softmax(scores, -1) * real, axis=(0, 1)) / count
        balance = self.num_experts * ops.sum(ops.stop_gradient(share) * probability)
        z = ops.logsumexp(scores, axis=-1, keepdims=True)
        self.add_loss(self.load_balancing_weight * balance)
        self.add_loss(self.router_z_weight * ops.sum(real * ops.square(z)) / count)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        parts = [*self.experts, self.router] if self.built else self.experts
        return {
            **super().get_config(),
            "dtype": owner_dtype(self, parts),
            "expert": serialize_value(self.experts[0]),
            "num_experts": self.num_experts,
            "top_k": self.top_k,
            "load_balancing_weight": self.load_balancing_weight,
            "router_z_weight": self.router_z_weight,
        }

    @classmethod
    def from_config(cls, config):
        return cls(**deserialize_values(config, ("expert",)))


def _at_least_float32(policy):
    """Routing decides, so it is computed in float32 in mixed precision."""
    half = policy.compute_dtype in ("float16", "bfloat16")
    unquantized = policy.quantization_mode is None
    return keras.dtype_policies.get("float32") if half and unquantized else policy
