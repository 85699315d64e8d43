"""DINOv2 checkpoints: names, layouts and config fields."""

from keras_tfm.checkpoints import vision
from keras_tfm.checkpoints.family import Family, Task
from keras_tfm.checkpoints.vision import LAYER
from keras_tfm.checkpoints.weight_map import LINEAR, Entry, linear, norm, part_of
from keras_tfm.layers import GatedFeedForward
from keras_tfm.models import VisionTransformer, classifier

ATTENTION, FEED_FORWARD = "block_{i}/attention_residual", "block_{i}/feed_forward"
GATE, UP = part_of(0, 2), part_of(1, 2)
BLOCKS = (
    *norm(f"{ATTENTION}/norm_before", f"{LAYER}.norm1"),
    Entry(f"{ATTENTION}/layer_scale/gamma", f"{LAYER}.layer_scale1.lambda1"),
    *norm(f"{FEED_FORWARD}_residual/norm_before", f"{LAYER}.norm2"),
    Entry(
        f"{FEED_FORWARD}_residual/layer_scale/gamma", f"{LAYER}.layer_scale2.lambda1"
    ),
)
PLAIN = (
    *linear(f"{FEED_FORWARD}/up", f"{LAYER}.mlp.fc1"),
    *linear(f"{FEED_FORWARD}/down", f"{LAYER}.mlp.fc2"),
)
GATED = (  # of the giant model
    Entry(
        f"{FEED_FORWARD}/gate/kernel",
        f"{LAYER}.mlp.weights_in.weight",
        part_of(0, 2, layout=LINEAR),
    ),
    Entry(
        f"{FEED_FORWARD}/up/kernel",
        f"{LAYER}.mlp.weights_in.weight",
        part_of(1, 2, layout=LINEAR),
    ),
    Entry(f"{FEED_FORWARD}/gate/bias", f"{LAYER}.mlp.weights_in.bias", GATE),
    Entry(f"{FEED_FORWARD}/up/bias", f"{LAYER}.mlp.weights_in.bias", UP),
    *linear(f"{FEED_FORWARD}/down", f"{LAYER}.mlp.weights_out"),
)


def entries(config, backbone):
    """The `Entry`s of a backbone; see `Family`."""
    feed_forward = GATED if config["use_swiglu_ffn"] else PLAIN
    return (*vision.embedding_entries(config, backbone), *BLOCKS, *feed_forward)


def build(config, **changes):
    """A `VisionTransformer` with the sizes of a config; see `Family`."""
    width = int(config["hidden_size"] * config["mlp_ratio"])
    fields = vision.fields_of(config)
    fields["layer_scale"] = config["layerscale_value"]
    fields["drop_path"] = config["drop_path_rate"]
    if config["use_swiglu_ffn"]:
        width = (int(width * 2 / 3) + 7) // 8 * 8  # as wide in all, in eights
        fields["feed_forward"] = GatedFeedForward(width, use_bias=True)
    return VisionTransformer(**{**fields, "intermediate_dim": width, **changes})


def describe(model):
    """The config of a `VisionTransformer` with layer-scale; see `Family`."""
    fields = vision.describe(model)
    if fields is None or model.distillation_token or model.layer_scale is None:
        return None
    if model.pooling != "token" or model.intermediate_dim % model.hidden_dim:
        return None
    return {
        **fields,
        "mlp_ratio": model.intermediate_dim // model.hidden_dim,
        "layerscale_value": model.layer_scale,
        "drop_path_rate": model.drop_path,
        "use_swiglu_ffn": False,
        "use_mask_token": False,
    }


FAMILY = Family(
    model_types=("dinov2",),
    build=build,
    entries=entries,
    tasks={
        "backbone": Task(("Dinov2Model",)),
        "classification": Task(
            ("Dinov2ForImageClassification",),
            prefix="dinov2.",
            entries=linear("logits", "classifier"),
            build=lambda backbone, config, num_classes: classifier(
                backbone,
                num_classes or config.num_classes(),
                pooling="token_and_mean",
            ),
            fits=lambda model: model.pooling == "token_and_mean",
        ),
    },
    describe=describe,
    redundant=(r"embeddings\.mask_token",),  # for pretraining on hidden patches
)
