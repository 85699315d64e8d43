"""ViT-S/16, forward and training step, beside timm and KerasHub.

    python -m benchmarks.vision             batch 8, 224 pixels
    python -m benchmarks.vision --tiny 1    a toy model: seconds, not minutes

The training step is AdamW on the mean square of the logits of 1,000 classes; no
dropout. timm runs on PyTorch.
"""

import numpy as np

from benchmarks.pairing import write
from benchmarks.steps import keras_run, parser, speed_table, torch_run

SMALL = {"pixels": 224, "patch": 16, "layers": 12, "heads": 6, "width": 384}
TINY = {"pixels": 32, "patch": 16, "layers": 2, "heads": 2, "width": 16}
CLASSES = 1000
CONTENDERS = [
    ("keras_tfm jit", "ours", {"jit": True}),
    ("keras_tfm graph", "ours", {"jit": False}),
    ("KerasHub jit", "keras_hub", {"jit": True}),
    ("KerasHub graph", "keras_hub", {"jit": False}),
    ("timm", "timm", {}),
    ("timm, torch.compile", "timm", {"compiled": True}),
]


def ours(shape, batch, training, threads, jit):
    """keras_tfm, `VisionTransformer`."""
    from keras_tfm import models

    backbone = models.VisionTransformer(
        shape["pixels"], shape["patch"], shape["layers"], shape["heads"],
        shape["width"], 4 * shape["width"],
    )  # fmt: skip
    model = models.classifier(backbone, CLASSES)
    return _keras(model, shape, batch, training, jit)


def keras_hub(shape, batch, training, threads, jit):
    """KerasHub, `ViTBackbone` with a linear head on the class token."""
    import keras
    import keras_hub as hub

    backbone = hub.models.ViTBackbone(
        (shape["pixels"], shape["pixels"], 3), (shape["patch"],) * 2,
        shape["layers"], shape["heads"], shape["width"], 4 * shape["width"],
    )  # fmt: skip
    logits = keras.layers.Dense(CLASSES)(backbone.output[:, 0])
    model = keras.Model(backbone.input, logits)
    return _keras(model, shape, batch, training, jit)


def timm(shape, batch, training, threads, compiled=False):
    """timm, `VisionTransformer`."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    torch.set_num_threads(threads)
    model = VisionTransformer(
        img_size=shape["pixels"], patch_size=shape["patch"], depth=shape["layers"],
        num_heads=shape["heads"], embed_dim=shape["width"], num_classes=CLASSES,
    ).train(training)  # fmt: skip
    images = torch.tensor(_images(shape, batch).transpose(0, 3, 1, 2).copy())
    return torch_run(lambda: model(images), model.parameters(), training, compiled)


def _keras(model, shape, batch, training, jit):
    target = np.zeros((batch, CLASSES), "float32")
    return keras_run(model, _images(shape, batch), target, training, jit)


def _images(shape, batch):
    sizes = batch, shape["pixels"], shape["pixels"], 3
    return np.random.default_rng(0).standard_normal(sizes).astype("float32")


def main():
    """Run from the command line."""
    arguments = parser(__doc__, "forward,step")
    arguments.add_argument("--batch", type=int, default=8, help="images")
    given = arguments.parse_args()
    tables = {}
    for kind in given.tables:
        settings = {
            "shape": TINY if given.tiny else SMALL,
            "batch": given.batch,
            "training": kind == "step",
        }
        title = f"{kind}, batch {given.batch}"
        how = given.threads, given.repeats
        tables[title] = speed_table("vision", CONTENDERS, settings, *how)
    write("vision", tables, given.output_dir)


if __name__ == "__main__":
    main()
