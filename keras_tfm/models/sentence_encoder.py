"""Vectors of whole texts, on top of a backbone.

Letters: B batch, T length, D width of the backbone.
"""

import keras

from keras_tfm.models import inputs as tools
from keras_tfm.models.on_backbone import OnBackbone

POOLINGS = ("mean", "first", "backbone")


@keras.saving.register_keras_serializable(package="keras_tfm")
class SentenceEncoder(OnBackbone, keras.Model):
    """One vector of length 1 a text: texts of like meaning have a high dot product.

    Args:
        backbone: a `Bert`, or any functional model whose outputs are a dict with
            `sequence_output`, float (B, T, D); trained further as it is, not copied.
        pooling: "mean" of the real tokens' outputs; "first", the first token's;
            "backbone" for its `pooled_output`, float (B, D).
        dtype: dtype policy; the backbone's unless given. Vectors are float32.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: what the backbone takes.
        training: bool.

    Returns: float32 (B, D), of length 1.

    Raises:
        ValueError: for an unknown `pooling`.

    Example:
        >>> backbone = keras_tfm.models.Bert(
        ...     vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32,
        ... )
        >>> encoder = keras_tfm.models.SentenceEncoder(backbone)
        >>> vectors = encoder(np.array([[1, 2, 3], [4, 5, 6]]))
        >>> tuple(vectors.shape), round(float(np.sum(vectors[0] ** 2)), 4)
        ((2, 8), 1.0)

    References: Reimers and Gurevych 2019, arXiv:1908.10084.
    """

    def __init__(self, backbone, pooling="mean", dtype=None, trainable=True, **kwargs):
        if pooling not in POOLINGS:
            raise ValueError(f"`pooling` must be one of {POOLINGS}, got {pooling!r}.")
        policy = backbone.dtype_policy if dtype is None else dtype
        policy = keras.dtype_policies.get(policy)

        # Layers
        mean = keras.layers.GlobalAveragePooling1D(name="pool", dtype="float32")
        normalize = keras.layers.UnitNormalization(name="vectors", dtype="float32")

        # Graph
        inputs = tools.inputs_like(backbone)
        outputs = backbone(inputs)
        if pooling == "backbone":
            pooled = outputs["pooled_output"]  # (B, D)
        elif pooling == "first":
            pooled = outputs["sequence_output"][:, 0]
        else:
            real = inputs.get("padding_mask") if isinstance(inputs, dict) else None
            pooled = mean(outputs["sequence_output"], mask=real)
        super().__init__(inputs, normalize(pooled), **kwargs)
        tools.settle(self, policy, trainable)
        self.input_spec = backbone.input_spec

        # Config
        self.backbone = backbone
        self.pooling = pooling

    def get_config(self):
        return {
            **super().get_config(),
            "pooling": self.pooling,
        }
