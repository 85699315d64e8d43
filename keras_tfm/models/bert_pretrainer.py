"""BERT's pretraining heads: masked tokens, and whether two segments follow.

Letters: B batch, T length, V vocabulary_size, E width of the token embedding.
"""

import keras

from keras_tfm.layers.policies import part_policy
from keras_tfm.models import inputs as tools
from keras_tfm.models.on_backbone import OnBackbone


@keras.saving.register_keras_serializable(package="keras_tfm")
class VocabularyBias(keras.layers.Layer):
    """Adds one learned number per word to logits made with a tied embedding.

    Args:
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: float (B, T, V).

    Returns: float (B, T, V).
    """

    def build(self, inputs_shape):
        self.bias = self.add_weight(
            name="bias", shape=(inputs_shape[-1],), initializer="zeros"
        )

    def call(self, inputs):
        return inputs + self.bias

    def compute_output_shape(self, inputs_shape):
        return inputs_shape


@keras.saving.register_keras_serializable(package="keras_tfm")
class BertPretrainer(OnBackbone, keras.Model):
    """A `Bert` with its two pretraining heads, a functional model.

    The masked-token head is a dense layer with the token embedding's width, a norm,
    and the token embedding in reverse with a bias; the next-sentence head is linear
    on the pooled output, where index 1 means: not the next sentence (ALBERT: the two
    are swapped).

    Args:
        backbone: a `Bert`; trained further as it is, not copied.
        next_sentence: bool, False for the masked-token head alone (RoBERTa).
        activation: of the dense layer; the backbone's unless given.
        dtype: dtype policy of the heads; the backbone's unless given.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: what the backbone takes.
        training: bool.

    Returns: dict with `token_logits`, float32 (B, T, V), and, with `next_sentence`,
        `next_sentence_logits`, float32 (B, 2).

    Example:
        >>> backbone = keras_tfm.models.Bert(
        ...     vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32,
        ... )
        >>> outputs = keras_tfm.models.BertPretrainer(backbone)(
        ...     keras.ops.ones((2, 7), "int32")
        ... )
        >>> tuple(outputs["token_logits"].shape)
        (2, 7, 50)

    References: Devlin et al. 2018, sec. 3.1, arXiv:1810.04805.
    """

    def __init__(
        self,
        backbone,
        next_sentence=True,
        activation=None,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        policy = backbone.dtype_policy if dtype is None else dtype
        policy = keras.dtype_policies.get(policy)

        def part(name):
            return {"name": name, "dtype": part_policy(policy, name)}

        # Layers
        own_activation = backbone.get_config()["activation"]
        transform = keras.layers.Dense(
            backbone.token_embedding.output_dim,
            activation=keras.activations.get(activation or own_activation),
            kernel_initializer=tools.initializer(),
            **part("token_transform"),
        )
        norm = keras.layers.LayerNormalization(
            epsilon=backbone.norm_epsilon, **part("token_norm")
        )
        bias = VocabularyBias(name="token_logits", dtype="float32")

        # Graph
        inputs = tools.inputs_like(backbone)
        features = backbone(inputs)
        tokens = norm(transform(features["sequence_output"]))  # (B, T, E)
        logits = bias(backbone.token_embedding(tokens, reverse=True))
        outputs = {"token_logits": logits}
        if next_sentence:
            outputs["next_sentence_logits"] = keras.layers.Dense(
                2,
                kernel_initializer=tools.initializer(),
                name="next_sentence_logits",
                dtype=tools.head_dtype(policy, "next_sentence_logits"),
            )(features["pooled_output"])
        super().__init__(inputs, outputs, **kwargs)
        tools.settle(self, policy, trainable)
        self.input_spec = None  # `call` checks
        self.hidden, self.token_bias = tokens, bias
        self.backbone = backbone
        self.next_sentence = next_sentence
        self.activation = tools.activation_config(activation)

    def output_matrix(self):
        """What makes the tokens' logits of `hidden`: float (V, E), and a bias (V,)."""
        return self.backbone.token_embedding.embeddings, self.token_bias.bias

    def get_config(self):
        return {
            **super().get_config(),
            "next_sentence": self.next_sentence,
            "activation": self.activation,
        }
