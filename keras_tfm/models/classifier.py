"""A classifier on top of a backbone.

Letters: B batch, T length, D width of the backbone, C num_classes.
"""

import keras
from keras import ops

from keras_tfm.layers.dropout import PairedDropout
from keras_tfm.models import inputs as tools
from keras_tfm.models.on_backbone import OnBackbone


def classifier(backbone, num_classes, dropout=0.0, pooling="backbone", name=None):
    """A functional model that classifies what a backbone pools.

    Args:
        backbone: a `Bert`, a `VisionTransformer`, or any functional model whose
            outputs are a dict with `pooled_output`, float (B, D).
        num_classes: int C.
        dropout: float in [0, 1), before the linear layer.
        pooling: "backbone" for its `pooled_output`; "mean" for the mean of its
            `sequence_output`, float (B, T, D), over real tokens; "token_and_mean" for
            the class token of a `VisionTransformer` beside the mean of its patches,
            (B, 2 D), as DINOv2's classifiers read.
        name: name of the model.

    Returns: `keras.Model` with the backbone's inputs and float32 logits (B, C).

    Raises:
        ValueError: if `num_classes` is below 2, or for an unknown `pooling`.

    Example:
        >>> backbone = keras_tfm.models.VisionTransformer(
        ...     image_size=8, patch_size=4, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32,
        ... )
        >>> model = keras_tfm.models.classifier(backbone, num_classes=10)
        >>> tuple(model(keras.ops.zeros((2, 8, 8, 3))).shape)
        (2, 10)
    """
    return Classifier(
        backbone, num_classes, dropout=dropout, pooling=pooling, name=name
    )


@keras.saving.register_keras_serializable(package="keras_tfm")
class Classifier(OnBackbone, keras.Model):
    """What `classifier` returns: a backbone, dropout and a linear layer.

    A functional model of its own class, so that keys which the backbone can do
    without may be missing here too.

    Args:
        backbone: see `classifier`; trained further as it is, not copied.
        num_classes: int C.
        dropout: float in [0, 1), before the linear layer.
        pooling: "backbone", "mean" or "token_and_mean", see `classifier`.
        dtype: dtype policy; the backbone's unless given. Logits are float32.
        **kwargs: `name`, `trainable`.

    Call arguments:
        inputs: what the backbone takes.
        training: bool.

    Returns: float32 (B, C), logits.

    Raises:
        ValueError: if `num_classes` is below 2, or for an unknown `pooling`.
    """

    def __init__(
        self,
        backbone,
        num_classes,
        dropout=0.0,
        pooling="backbone",
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        if num_classes < 2:
            raise ValueError(f"`num_classes` must be at least 2, got {num_classes}.")
        if pooling not in ("backbone", "mean", "token_and_mean"):
            raise ValueError(
                '`pooling` must be "backbone", "mean" or "token_and_mean", got '
                f"{pooling!r}."
            )
        if pooling == "token_and_mean" and not getattr(backbone, "num_class_tokens", 0):
            raise ValueError(
                f'`pooling="token_and_mean"` needs a class token, which '
                f"{backbone.name!r} has not."
            )
        policy = backbone.dtype_policy if dtype is None else dtype
        policy = keras.dtype_policies.get(policy)

        # Layers
        drop = PairedDropout(dropout, name="classifier_dropout")
        logits = keras.layers.Dense(
            num_classes,
            kernel_initializer=tools.initializer(),
            name="logits",
            dtype=tools.head_dtype(policy, "logits"),
        )

        # Graph
        inputs = tools.inputs_like(backbone)
        outputs = backbone(inputs)
        x = outputs["pooled_output"]  # (B, D)
        if pooling == "mean":
            real = inputs.get("padding_mask") if isinstance(inputs, dict) else None
            pool = keras.layers.GlobalAveragePooling1D(name="pool", dtype=policy)
            x = pool(outputs["sequence_output"], mask=real)
        if pooling == "token_and_mean":
            tokens = outputs["sequence_output"]
            patches = tokens[:, backbone.num_class_tokens :]
            x = ops.concatenate([tokens[:, 0], ops.mean(patches, axis=1)], axis=-1)
        super().__init__(inputs, logits(drop(x)), **kwargs)
        tools.settle(self, policy, trainable)
        self.input_spec = backbone.input_spec

        # Config
        self.backbone = backbone
        self.num_classes = num_classes
        self.dropout = dropout
        self.pooling = pooling

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "dropout": self.dropout,
            "pooling": self.pooling,
        }
