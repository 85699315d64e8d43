"""ViT and DeiT checkpoints: names, layouts and config fields."""

import keras

from keras_tfm.checkpoints import vision
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.vision import LAYER
from keras_tfm.checkpoints.weight_map import linear, norm
from keras_tfm.models import VisionTransformer, classifier

BLOCKS = (
    *norm("block_{i}/attention_residual/norm_before", f"{LAYER}.layernorm_before"),
    *norm("block_{i}/feed_forward_residual/norm_before", f"{LAYER}.layernorm_after"),
    *linear("block_{i}/feed_forward/up", f"{LAYER}.intermediate.dense"),
    *linear("block_{i}/feed_forward/down", f"{LAYER}.output.dense"),
)
TEACHER = (
    *linear("logits", "cls_classifier"),
    *linear("distillation_logits", "distillation_classifier"),
)


def entries(config, backbone):
    """The `Entry`s of a backbone; see `Family`."""
    return (*vision.embedding_entries(config, backbone), *BLOCKS)


def build_vit(config, **changes):
    """A `VisionTransformer` with the sizes of a config; see `Family`."""
    fields = vision.fields_of(config)
    fields["intermediate_dim"] = config["intermediate_size"]
    return VisionTransformer(**{**fields, **changes})


def build_deit(config, **changes):
    """The same with a distillation token; see `Family`."""
    return build_vit(config, **{"distillation_token": True, **changes})


def build_classifier(backbone, config, num_classes):
    """A linear layer on the class token."""
    return classifier(backbone, num_classes or config.num_classes())


def build_with_teacher(backbone, config, num_classes):
    """The mean of two linear layers, on the class and on the distillation token."""
    num_classes = num_classes or config.num_classes()
    images = keras.Input(backbone.input.shape[1:], name="images")
    tokens = backbone(images)["sequence_output"]  # (B, C + P, D)
    heads = [
        keras.layers.Dense(num_classes, name=name, dtype="float32")(tokens[:, i])
        for i, name in enumerate(("logits", "distillation_logits"))
    ]
    mean = keras.layers.Average(name="mean_logits", dtype="float32")(heads)
    return keras.Model(images, mean)


def describe_vit(model):
    """The config of a plain `VisionTransformer`; see `Family`."""
    fields = vision.describe(model)
    if fields is None or model.distillation_token or model.layer_scale is not None:
        return None
    return {**fields, "intermediate_size": model.intermediate_dim}


def describe_deit(model):
    """The config of one with a distillation token; see `Family`."""
    fields = vision.describe(model)
    if fields is None or not model.distillation_token or model.layer_scale is not None:
        return None
    return {**fields, "intermediate_size": model.intermediate_dim}


VIT = Family(
    model_types=("vit",),
    build=build_vit,
    entries=entries,
    tasks={
        "backbone": Task(("ViTModel",), entries=vision.POOLER),
        "classification": Task(
            ("ViTForImageClassification",),
            prefix="vit.",
            entries=linear("logits", "classifier"),
            build=build_classifier,
        ),
    },
    describe=describe_vit,
)
DEIT = Family(
    model_types=("deit",),
    build=build_deit,
    entries=entries,
    tasks={
        "backbone": Task(("DeiTModel",), entries=vision.POOLER),
        "classification": Task(
            ("DeiTForImageClassification",),
            prefix="deit.",
            entries=linear("logits", "classifier"),
            build=build_classifier,
        ),
        "classification_with_teacher": Task(
            ("DeiTForImageClassificationWithTeacher",),
            prefix="deit.",
            entries=TEACHER,
            build=build_with_teacher,
        ),
    },
    describe=describe_deit,
)
