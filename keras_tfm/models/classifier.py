"""A classifier on top of a backbone.

Letters: B batch, C num_classes.
"""

import keras

from keras_tfm.models import inputs as tools


def classifier(backbone, num_classes, dropout=0.0, name=None):
    """A functional model that classifies what a backbone pools.

    Args:
        backbone: a `Bert`, a `VisionTransformer`, or any functional model whose
            outputs are a dict with `pooled_output`, float (B, D).
        num_classes: int C.
        dropout: float in [0, 1), before the linear layer.
        name: name of the model.

    Returns: `keras.Model` with the backbone's inputs and float32 logits (B, C).

    Raises:
        ValueError: if `num_classes` is below 2.

    Example:
        >>> backbone = keras_tfm.models.VisionTransformer(
        ...     image_size=8, patch_size=4, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=32,
        ... )
        >>> model = keras_tfm.models.classifier(backbone, num_classes=10)
        >>> tuple(model(keras.ops.zeros((2, 8, 8, 3))).shape)
        (2, 10)
    """
    if num_classes < 2:
        raise ValueError(f"`num_classes` must be at least 2, got {num_classes}.")
    inputs = keras.tree.map_structure(
        lambda x: keras.Input(x.shape[1:], dtype=x.dtype, name=x.name), backbone.input
    )
    x = backbone(inputs)["pooled_output"]
    x = keras.layers.Dropout(dropout, name="classifier_dropout")(x)
    logits = keras.layers.Dense(
        num_classes,
        kernel_initializer=tools.initializer(),
        name="logits",
        dtype="float32",
    )(x)
    return keras.Model(inputs, logits, name=name)
