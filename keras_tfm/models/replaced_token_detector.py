"""ELECTRA's pretraining head: which tokens were put in by someone else.

Letters: B batch, T length.
"""

import keras
from keras import ops

from keras_tfm.layers.policies import part_policy
from keras_tfm.models import inputs as tools
from keras_tfm.models.on_backbone import OnBackbone


@keras.saving.register_keras_serializable(package="keras_tfm")
class ReplacedTokenDetector(OnBackbone, keras.Model):
    """A `Bert` that says of every token whether it is the one that was written.

    A dense layer with the backbone's width and activation, and one number a token:
    above 0 means replaced. The tokens come from a small `BertPretrainer`.

    Args:
        backbone: a `Bert`; trained further as it is, not copied.
        dtype: dtype policy of the head; the backbone's unless given.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: what the backbone takes.
        training: bool.

    Returns: float32 (B, T), logits.

    Example:
        >>> backbone = keras_tfm.models.Bert(
        ...     vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32, pooler_activation=None,
        ... )
        >>> model = keras_tfm.models.ReplacedTokenDetector(backbone)
        >>> tuple(model(keras.ops.ones((2, 7), "int32")).shape)
        (2, 7)

    References: Clark et al. 2020, sec. 2, arXiv:2003.10555.
    """

    def __init__(self, backbone, dtype=None, trainable=True, **kwargs):
        policy = backbone.dtype_policy if dtype is None else dtype
        policy = keras.dtype_policies.get(policy)

        # Layers
        transform = keras.layers.Dense(
            backbone.hidden_dim,
            activation=keras.activations.get(backbone.get_config()["activation"]),
            kernel_initializer=tools.initializer(),
            name="token_transform",
            dtype=part_policy(policy, "token_transform"),
        )
        logits = keras.layers.Dense(
            1,
            kernel_initializer=tools.initializer(),
            name="replaced_logits",
            dtype=tools.head_dtype(policy, "replaced_logits"),
        )

        # Graph
        inputs = tools.inputs_like(backbone)
        tokens = transform(backbone(inputs)["sequence_output"])  # (B, T, D)
        outputs = ops.squeeze(logits(tokens), axis=-1)  # (B, T)
        super().__init__(inputs, outputs, **kwargs)
        tools.settle(self, policy, trainable)
        self.input_spec = None  # `call` checks
        self.backbone = backbone
