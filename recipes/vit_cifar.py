"""Train a Vision Transformer to name small images, from scratch or a pretrained one.

    python -m recipes.vit_cifar                      (scikit-learn digits, no download)
    python -m recipes.vit_cifar --dataset cifar10    (any TFDS set of one image size)
    python -m recipes.vit_cifar --dataset folder:images    (one sub-folder per class)
    python -m recipes.vit_cifar --dataset cifar10 --init FOLDER

With --init a pretrained model is loaded, and a linear head trained on its features;
--fine-tune 1 trains the whole.
Reference runs: docs/recipes/vit_cifar.md (command, machine, time, accuracy).
"""

import dataclasses
import sys

import keras
import numpy as np

from keras_tfm import data, layers, models, visualize
from recipes import artifacts, classifiers, flags, pretrained_vision, session
from recipes.flags import option

PRESETS = {
    "cifar10": {
        "patch_size": 4, "num_layers": 4, "num_heads": 3, "hidden_dim": 192,
        "intermediate_dim": 384, "position_stddev": 0.5, "epochs": 20,
        "batch_size": 128, "learning_rate": 1e-3, "shift": 4, "flip": 1,
        "activation": "relu", "mixed_precision": "bfloat16",
    },
    "full": {  # for a GPU
        "dataset": "cifar10", "patch_size": 4, "num_layers": 12, "num_heads": 6,
        "hidden_dim": 384, "intermediate_dim": 1536, "position_stddev": 0.5,
        "epochs": 300, "batch_size": 256, "learning_rate": 1e-3, "shift": 4, "flip": 1,
        "rand_augment": 1, "mix": "cutmix", "drop_path": 0.1,
        "mixed_precision": "bfloat16", "jit": "on",
    },
    "folder": {"image_size": 32, "patch_size": 4, "shift": 4, "flip": 1},
    "--init": {
        "image_size": 112, "epochs": 20, "batch_size": 50, "learning_rate": 1e-3,
        "label_smoothing": 0.0,
    },
    "cifar10 --init": {"examples": 5000, "test_examples": 2000},
    "--init --fine-tune": {"epochs": 3, "batch_size": 32, "learning_rate": 5e-5},
}  # fmt: skip


@dataclasses.dataclass
class Config(flags.Common):
    """Every number of the run; the defaults are those for the digits."""

    dataset: str = option("digits", "digits, a TFDS name, or folder:PATH")
    init: str = option("", "a pretrained ViT, DeiT or DINOv2: a folder or a file")
    fine_tune: int = option(0, "1: train the model of --init, too, not its head alone")
    test_examples: int = option(0, "use only so many test images, 0 for all")
    image_size: int = option(32, "height and width for folder: images, and for --init")
    patch_size: int = option(2, "height and width of a patch, in pixels")
    num_layers: int = option(4, "encoder blocks")
    num_heads: int = option(4, "attention heads")
    hidden_dim: int = option(64, "width of the model")
    intermediate_dim: int = option(128, "inner width of the feed-forward")
    activation: str = option("gelu", "nonlinearity of the feed-forward")
    position_stddev: float = option(0.3, "how much positions differ at first")
    drop_path: float = option(0.0, "rate of skipped branches in the last block")
    epochs: int = option(40, "passes over the training images")
    batch_size: int = option(64, "images a step")
    learning_rate: float = option(2e-3, "highest learning rate, after the warm-up")
    weight_decay: float = option(0.05, "of matrices; norms and biases are left alone")
    label_smoothing: float = option(0.1, "share of the target spread over all classes")
    shift: int = option(1, "random shift, in pixels")
    flip: int = option(0, "1 mirrors half of the images")
    rand_augment: int = option(0, "1 adds RandAugment (slow)")
    mix: str = option("none", "blend images", ("none", "mixup", "cutmix"))
    jit: str = option("off", "compile the step with XLA, slow at first", flags.JIT)


def load(config):
    """Read images: uint8 (n, h, w, c), int (n,); held-out parts of the training set."""
    kind, path = data.parse_source(config.dataset)
    if config.dataset == "digits":
        (images, labels), test = data.load_digits(seed=config.seed)
        names = [str(digit) for digit in range(10)]
    elif kind == "folder":
        size = (config.image_size, config.image_size)
        images, labels, names = data.read_image_folder(path, size)
        train, held_out = data.split_indices(len(labels), 0.2, config.seed, labels)
        test = images[held_out], labels[held_out]
        images, labels = images[train], labels[train]
    else:
        name, folder = config.dataset, config.data_dir or None
        split = f"train[:{config.examples}]" if config.examples else "train"
        images, labels, names = data.load_images(name, split, folder)
        test = data.load_images(name, "test", folder)[:2]
    test = tuple(array[: config.test_examples or None] for array in test)
    chosen = classifiers.choose(len(labels), config)
    images, labels = images[chosen], labels[chosen]
    train, held_out = data.split_indices(len(labels), 0.05, config.seed, labels)
    parts = {"train": train, "validation": held_out}
    parts = {name: (images[part], labels[part]) for name, part in parts.items()}
    return {**parts, "test": test}, names


def build(config, images, num_classes):
    """The model: images in [0, 1] in, logits out."""
    if config.init:
        return pretrained_vision.build(config, images, num_classes)
    mean, std = data.channel_statistics(images)
    height, width, channels = images.shape[1:]
    backbone = models.VisionTransformer(
        (height, width), config.patch_size, config.num_layers, config.num_heads,
        config.hidden_dim, config.intermediate_dim, pooling="mean", channels=channels,
        attention=layers.MultiHeadAttention(config.num_heads),
        feed_forward=layers.FeedForward(config.intermediate_dim, config.activation),
        drop_path=config.drop_path, dtype=config.policy, remat=bool(config.remat),
    )  # fmt: skip
    # Beside the patches the usual 0.02 is so little that few images cannot teach it.
    table = backbone.get_layer("position_embedding").table
    noise = keras.random.normal(table.shape, seed=config.seed)
    table.assign(config.position_stddev * noise)
    pixels = keras.Input((height, width, channels), name="images")
    x = keras.layers.Normalization(mean=mean, variance=np.square(std))(pixels)
    logits = models.classifier(backbone, num_classes, name="logits")(x)
    return keras.Model(pixels, logits)


def run(config):
    """Train, evaluate and export; return the final numbers."""
    folder = session.start(config)
    parts, names = load(config)
    images, labels = parts["train"]
    augment = data.image_augmentation(
        images.shape[1:3], config.shift, config.flip, config.rand_augment, config.seed
    )
    mix = None if config.mix == "none" else data.image_mixing(config.mix, seed=0)
    options = {
        "batch_size": config.batch_size, "num_classes": len(names), "seed": config.seed
    }  # fmt: skip
    train = data.image_dataset(
        images, labels, training=True, augment=augment, mix=mix, **options
    )
    validation = data.image_dataset(*parts["validation"], **options)
    test = data.image_dataset(*parts["test"], **options)

    model = build(config, images, len(names))
    if config.init and not config.fine_tune:
        history, metrics = pretrained_vision.probe(model, config, parts)
    else:
        classifiers.compile_classifier(model, config, len(train), one_hot=True)
        history = session.fit(model, config, train, validation)
        metrics = classifiers.evaluate(model, test, "test", labels, parts["test"][1])

    few = parts["test"][0][:8].astype("float32") / 255
    titles = [f"test image {number}" for number in range(len(few))]
    classifiers.show(model, few, parts["test"][1][:8], names, titles)
    _draw(folder, model, few[:1])
    name = classifiers.name_classes(names)
    parity = artifacts.export_all(model, folder, few, postprocess=name)
    card = classifiers.card(
        f"A {'pretrained' if config.init else 'small'} Vision Transformer, trained on "
        f"{config.dataset}",
        names, len(labels), len(parts["test"][1]),
        use="Input `images`: float (B, height, width, channels) from 0 to 1, of the "
        f"size {images.shape[1:]}. The SavedModel's signature `predict` gives `label` "
        "and `probabilities`, everything else logits.",
    )  # fmt: skip
    return artifacts.finish(config, model, history, metrics, card, parity)


def _draw(folder, model, image):
    """Where the last block looks, on average over its queries."""
    scores = list(visualize.attention_scores(model, image).values())[-1]
    backbone = model.get_layer("logits").backbone
    sides = zip(backbone.image_size, backbone.patch_size)
    grid = tuple(size // patch for size, patch in sides)
    weights = scores[0].mean(axis=1)[:, backbone.num_class_tokens :]  # (N, P)
    visualize.patch_attention(image[0], weights, grid, path=folder / "attention.png")


def main(argv=None):
    """Run from the command line; return the exit code."""
    return session.main(run, Config, PRESETS, __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
