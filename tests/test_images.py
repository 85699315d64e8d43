"""The image pipeline: scaling, order, augmentation only while training."""

import numpy as np
import pytest

from keras_tfm.data import (
    channel_statistics,
    image_augmentation,
    image_dataset,
    image_mixing,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 6, 5, 3), "uint8")
LABELS = np.arange(10) % 4


def collect(dataset):
    images, labels = zip(*((x.numpy(), y.numpy()) for x, y in dataset))
    return np.concatenate(images), np.concatenate(labels)


@pytest.mark.tensorflow
def test_in_order_and_scaled():
    dataset = image_dataset(IMAGES, LABELS, batch_size=4)
    assert dataset.cardinality() == 3
    images, labels = collect(dataset)
    np.testing.assert_allclose(images, IMAGES / 255.0, atol=1e-6)
    np.testing.assert_array_equal(labels, LABELS)
    assert images.dtype == np.float32 and labels.dtype == np.int32


@pytest.mark.tensorflow
def test_mean_std_and_one_hot():
    mean, std = channel_statistics(IMAGES)
    images, labels = collect(
        image_dataset(IMAGES, LABELS, mean=mean, std=std, num_classes=4)
    )
    np.testing.assert_allclose(images.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(images.std((0, 1, 2)), 1, atol=1e-5)
    np.testing.assert_array_equal(labels, np.eye(4)[LABELS])


def test_channel_statistics():
    mean, std = channel_statistics(IMAGES)
    scaled = IMAGES / 255.0
    np.testing.assert_allclose(mean, scaled.mean((0, 1, 2)), rtol=1e-9)
    np.testing.assert_allclose(std, scaled.std((0, 1, 2)), rtol=1e-6)
    assert channel_statistics(np.zeros((2, 3, 3, 1), "uint8")) == ([0.0], [1e-6])


@pytest.mark.tensorflow
def test_training_shuffles_anew():
    dataset = image_dataset(IMAGES, np.arange(10), batch_size=4, training=True)
    orders = [collect(dataset)[1].tolist() for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(10))
    again = image_dataset(IMAGES, np.arange(10), batch_size=4, training=True)
    assert collect(again)[1].tolist() == orders[0]


@pytest.mark.tensorflow
def test_augmentation_only_while_training():
    augment = image_augmentation((6, 5), crop_padding=2)
    plain, _ = collect(image_dataset(IMAGES, LABELS, augment=augment))
    np.testing.assert_allclose(plain, IMAGES / 255.0, atol=1e-6)
    dataset = image_dataset(IMAGES, np.arange(10), augment=augment, training=True)
    first, second = (sort(*collect(dataset)) for _ in range(2))
    assert not np.allclose(first, IMAGES / 255.0)
    assert not np.allclose(first, second)  # other shifts at each pass


def sort(images, labels):
    return images[np.argsort(labels)]


@pytest.mark.tensorflow
def test_mixing_mixes_labels():
    dataset = image_dataset(
        IMAGES, LABELS, training=True, mix=image_mixing("mixup", 1.0), num_classes=4
    )
    images, labels = collect(dataset)
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-5)
    assert ((labels > 0.01) & (labels < 0.99)).any()
    assert images.shape == IMAGES.shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": IMAGES[0]}, r"`images` must be uint8 .* got uint8 \(6, 5, 3\)"),
        ({"images": IMAGES / 255.0}, "`images` must be uint8 .* got float64"),
        ({"labels": LABELS[:3]}, r"`labels` must be as many as .*\(10, .* got 3"),
        ({"images": IMAGES[:0], "labels": []}, "at least one.*got 0"),
        ({"mix": image_mixing("cutmix")}, "`num_classes` must be given with `mix`"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        image_dataset(**{"images": IMAGES, "labels": LABELS, **arguments})
