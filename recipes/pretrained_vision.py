"""What `vit_cifar --init` puts around a pretrained model: to fine-tune, or to probe.

Letters: N examples, B batch, T tokens, D width, C num_classes.
"""

import keras
import numpy as np

from keras_tfm import checkpoints, data, models
from recipes import classifiers, session


def build(config, images, num_classes):
    """A pretrained model with a fresh head: images in [0, 1] in, logits out.

    The head reads the class token beside the mean of the patches, float (B, 2 D).

    Args:
        config: `vit_cifar.Config`.
        images: uint8 (N, height, width, channels), of 1 or 3 channels.
        num_classes: int C.

    Returns: `keras.Model`; its last layer, "logits", is a `Classifier`.
    """
    backbone = checkpoints.load_pretrained(
        config.init, task="backbone", image_size=config.image_size,
        dtype=config.policy, remat=bool(config.remat),
    )  # fmt: skip
    mean, std = checkpoints.image_statistics(config.init)
    pixels = keras.Input(images.shape[1:], name="images")
    x = pixels
    if images.shape[-1] == 1 < backbone.channels:
        x = keras.layers.Concatenate()([x] * backbone.channels)
    x = keras.layers.Resizing(*backbone.image_size, data_format="channels_last")(x)
    x = keras.layers.Normalization(mean=mean, variance=np.square(std))(x)
    head = models.classifier(
        backbone, num_classes, pooling="token_and_mean", name="logits"
    )
    return keras.Model(pixels, head(x))


def probe(model, config, parts):
    """Train the head alone, on features that are computed once.

    Args:
        model: from `build`; its head gets the weights.
        config: `vit_cifar.Config`.
        parts: dict with "train", "validation" and "test": images and labels.

    Returns: pair of dicts, the history and the final numbers.
    """
    read = _features(model)
    features = {}
    for name, (images, labels) in parts.items():
        print(f"Features of {len(images):,} {name} images:")
        batches = data.image_dataset(images, labels, batch_size=config.batch_size)
        found = read.predict(batches.map(lambda images, _: images))  # (N, 2 D)
        features[name] = found.astype("float32")
    mean = features["train"].mean(0)
    std = np.maximum(features["train"].std(0), 1e-3)
    sets = {
        name: data.gather_dataset(
            ((values - mean) / std, parts[name][1].astype("int32")),
            config.batch_size,
            name == "train",
            config.seed,
        )
        for name, values in features.items()
    }
    dense = model.get_layer("logits").get_layer("logits")
    head = keras.Sequential([keras.Input(mean.shape), keras.layers.Dense(dense.units)])
    classifiers.compile_classifier(head, config, len(sets["train"]))
    history = session.fit(head, config, sets["train"], sets["validation"])
    labels = parts["train"][1], parts["test"][1]
    metrics = classifiers.evaluate(head, sets["test"], "test", *labels)
    kernel, bias = head.layers[-1].get_weights()
    kernel = kernel / std[:, None]  # for features as they are
    dense.set_weights([kernel, bias - mean @ kernel])
    return history, metrics


def _features(model):
    """From images to what the head reads."""
    classifier = model.get_layer("logits")
    body = keras.Model(
        classifier.input, classifier.get_layer("classifier_dropout").input
    )
    return keras.Model(model.input, body(model.layers[-2].output))
