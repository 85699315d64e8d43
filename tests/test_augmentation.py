"""Augmentation: whole-pixel shifts drawn per image, flips, and mixing."""

import collections

import numpy as np
import pytest

from keras_tfm.data import image_augmentation, image_mixing

pytestmark = pytest.mark.tensorflow


def shifted(image, down, right):
    """The image moved by whole pixels, black moving in: pad with zeros, crop."""
    height, width, _ = image.shape
    padded = np.pad(image, [(9, 9), (9, 9), (0, 0)])
    return padded[9 - down : 9 - down + height, 9 - right : 9 - right + width]


def test_shift_is_pad_and_crop():
    image = np.random.default_rng(0).uniform(0.1, 1, (16, 12, 3)).astype("float32")
    layer = image_augmentation((16, 12), crop_padding=3, flip=False, seed=1)
    outputs = np.array(layer(np.tile(image, (600, 1, 1, 1)), training=True))
    table = {
        shifted(image, down, right).tobytes(): (down, right)
        for down in range(-3, 4)
        for right in range(-3, 4)
    }
    found = collections.Counter(table.get(out.tobytes()) for out in outputs)
    assert None not in found  # every output is a shift by at most 3 whole pixels
    assert len(found) > 40  # drawn per image, over all 49 places
    for axis in (0, 1):
        shares = collections.Counter()
        for shift, count in found.items():
            shares[shift[axis]] += count / 600
        assert all(0.08 < shares[s] < 0.21 for s in range(-3, 4)), shares


def test_flip():
    image = np.arange(12, dtype="float32").reshape(1, 3, 4, 1) / 12
    layer = image_augmentation((3, 4), crop_padding=0)
    outputs = np.array(layer(np.tile(image, (200, 1, 1, 1)), training=True))
    flipped = (outputs == image[:, :, ::-1]).all(axis=(1, 2, 3))
    same = (outputs == image).all(axis=(1, 2, 3))
    assert (flipped | same).all()
    assert 0.35 < flipped.mean() < 0.65


def test_nothing_happens_outside_training():
    images = np.random.default_rng(0).uniform(size=(2, 8, 8, 3)).astype("float32")
    layer = image_augmentation((8, 8), crop_padding=2)
    np.testing.assert_array_equal(np.array(layer(images, training=False)), images)


def test_rand_augment_stays_in_range():
    images = np.random.default_rng(0).uniform(size=(4, 8, 8, 3)).astype("float32")
    layer = image_augmentation((8, 8), 0, flip=False, rand_augment=True, seed=3)
    outputs = np.array(layer(images, training=True))
    assert outputs.shape == images.shape
    assert outputs.min() >= 0 and outputs.max() <= 1.0001
    assert not np.allclose(outputs, images)


@pytest.mark.parametrize(("kind", "tolerance"), [("mixup", 1e-4), ("cutmix", 0.03)])
def test_labels_are_mixed_as_the_images_are(kind, tolerance):
    values = np.arange(8, dtype="float32") / 8
    images = np.ones((8, 64, 64, 1), "float32") * values.reshape(8, 1, 1, 1)
    inputs = {"images": images, "labels": np.eye(8, dtype="float32")}
    outputs = image_mixing(kind, alpha=1.0, seed=2)(inputs, training=True)
    labels, mixed = np.array(outputs["labels"]), np.array(outputs["images"])
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-5)
    assert (labels.max(axis=1) < 0.99).any()
    # CutMix rounds its rectangle to whole pixels after it has set the labels.
    np.testing.assert_allclose(
        mixed.mean(axis=(1, 2, 3)), labels @ values, atol=tolerance
    )


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`crop_padding` must be in \[0, 8\), got 8"):
        image_augmentation((8, 9), crop_padding=8)
    with pytest.raises(ValueError, match='`kind` must be "mixup" or "cutmix", got'):
        image_mixing("blend")
