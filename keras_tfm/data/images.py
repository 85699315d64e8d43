"""The image pipeline: arrays in memory to augmented, scaled batches.

Letters: B batch, C num_classes; height, width and channels in words.
"""

import numpy as np

from keras_tfm.data.batches import gather_dataset


def image_dataset(
    images,
    labels,
    batch_size=128,
    training=False,
    augment=None,
    mix=None,
    num_classes=None,
    mean=None,
    std=None,
    seed=0,
):
    """Images to batches of floats, augmented batch by batch while training.

    Args:
        images: uint8 (N, height, width, channels).
        labels: int (N,).
        batch_size: int B.
        training: bool: shuffled anew at each pass and augmented, else as they are.
        augment: layer or callable on float images in [0, 1], see `image_augmentation`.
        mix: layer on {"images", "labels"} such as `image_mixing` makes; labels must
            then be one-hot, so `num_classes` is needed.
        num_classes: int C or None. If given, labels are one-hot float32 (B, C).
        mean: float or (channels,), subtracted after scaling; see `channel_statistics`.
        std: float or (channels,), divides after that.
        seed: int, of the order.

    Returns: `tf.data.Dataset` of `(images, labels)`: float32 (B, height, width,
        channels), int32 (B,) or float32 (B, C).

    Raises:
        ValueError: if images and labels differ in number, there is none, the images
            are no 4-D uint8 array, or `mix` comes without `num_classes`.
    """
    import tensorflow as tf

    images, labels = np.asarray(images), np.asarray(labels)
    _check_images(images, labels, mix, num_classes)
    shift = np.float32(0.0 if mean is None else mean)
    scale = np.float32(1.0 if std is None else std)

    def prepare(batch, classes):
        batch = tf.cast(batch, "float32") / 255.0
        classes = tf.cast(classes, "int32")
        if num_classes is not None:
            classes = tf.one_hot(classes, num_classes)
        if training and augment is not None:
            batch = augment(batch, training=True)
        if training and mix is not None:
            mixed = mix({"images": batch, "labels": classes}, training=True)
            batch, classes = mixed["images"], mixed["labels"]
        return (batch - shift) / scale, classes

    dataset = gather_dataset((images, labels), batch_size, training, seed)
    dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def channel_statistics(images):
    """Measure mean and standard deviation of each channel, for images in [0, 1].

    Args:
        images: uint8 (N, height, width, channels), the training images.

    Returns: `(mean, std)`, two lists of float, one a channel; std is at least 1e-6.
    """
    flat = np.asarray(images).reshape(-1, np.shape(images)[-1])
    mean = flat.mean(axis=0, dtype="float64") / 255.0
    square = np.mean(np.square(flat, dtype="float64"), axis=0) / 255.0**2
    std = np.sqrt(np.maximum(square - mean**2, 1e-12))
    return mean.tolist(), std.tolist()


def _check_images(images, labels, mix, num_classes):
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(
            "`images` must be uint8 (N, height, width, channels), "
            f"got {images.dtype} {images.shape}."
        )
    if not len(images) or len(images) != len(labels):
        raise ValueError(
            f"`labels` must be as many as `images` ({len(images)}, at least one), "
            f"got {len(labels)}."
        )
    if mix is not None and num_classes is None:
        raise ValueError("`num_classes` must be given with `mix`, got None.")
