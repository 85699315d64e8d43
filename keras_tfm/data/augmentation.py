"""Image augmentation with Keras's own layers, whole batches at a time.

`keras.layers.RandomCrop` cuts all images of a batch at one place. The shifts here come
from `RandomTranslation`, which draws one per image: by whole pixels, with black
moving in, it is the same as padding with zeros and cropping at random.

A batch of 128 images of 32 x 32 takes about 10 ms on one core for shift and flip, 1 to
3 ms for mixing, but about 300 ms for RandAugment.
"""

import keras


def image_augmentation(
    image_size, crop_padding=4, flip=True, rand_augment=False, seed=None
):
    """Make the augmentation usual for small colour images.

    Args:
        image_size: (height, width).
        crop_padding: int, the largest shift in pixels; 0 for none.
        flip: bool, mirrors half of the images left to right (not for digits).
        rand_augment: bool, adds two random operations of RandAugment (slow, see above).
        seed: int or None.

    Returns: `keras.layers.Pipeline` on float (B, height, width, channels) in [0, 1],
        for `image_dataset(augment=...)`; with `training=False` it changes nothing.

    Raises:
        ValueError: if the shift is negative or not smaller than the image.

    References: He et al. 2015, sec. 4.2, arXiv:1512.03385 (pad 4, crop, flip); Cubuk
        et al. 2019, arXiv:1909.13719 (RandAugment).
    """
    height, width = image_size
    if not 0 <= crop_padding < min(height, width):
        raise ValueError(
            f"`crop_padding` must be in [0, {min(height, width)}), got {crop_padding}."
        )
    layers = []
    if crop_padding:
        # Half a pixel more: nearest rounds the ends as often as the rest.
        reach = crop_padding + 0.499
        shift = keras.layers.RandomTranslation(
            reach / height,
            reach / width,
            fill_mode="constant",
            interpolation="nearest",
            seed=seed,
        )
        layers.append(shift)
    if flip:
        layers.append(keras.layers.RandomFlip("horizontal", seed=seed))
    if rand_augment:
        layers.append(
            keras.layers.RandAugment((0, 1), num_ops=2, factor=0.3, seed=seed)
        )
    return keras.layers.Pipeline(layers)


def image_mixing(kind, alpha=None, seed=None):
    """Make the layer that blends images and their one-hot labels within a batch.

    Args:
        kind: "mixup" (blends whole images) or "cutmix" (pastes a rectangle).
        alpha: float, of the Beta distribution; None means 0.2 for mixup, 1 for cutmix.
        seed: int or None.

    Returns: `keras.layers.MixUp` or `CutMix`, for `image_dataset(mix=...)`.

    Raises:
        ValueError: for an unknown `kind`.

    References: Zhang et al. 2017, arXiv:1710.09412; Yun et al. 2019, arXiv:1905.04899.
    """
    if kind == "mixup":
        return keras.layers.MixUp(0.2 if alpha is None else alpha, seed=seed)
    if kind == "cutmix":
        return keras.layers.CutMix(1.0 if alpha is None else alpha, seed=seed)
    raise ValueError(f'`kind` must be "mixup" or "cutmix", got {kind!r}.')
