"""scikit-learn's handwritten digits: 1,797 real images that need no download."""

import numpy as np

from keras_tfm.data.splits import split_indices


def load_digits(test_fraction=0.2, seed=0):
    """Load the 8 x 8 grey digits that come with scikit-learn.

    Args:
        test_fraction: float, the share of every class held out for testing.
        seed: int, decides the split.

    Returns: `(x_train, y_train), (x_test, y_test)`: images uint8 (n, 8, 8, 1) with
        values 0 to 255, labels int32 (n,) from 0 to 9.

    References: Alpaydin and Kaynak 1998, UCI "Optical Recognition of Handwritten
        Digits", test part.
    """
    from sklearn import datasets

    data = datasets.load_digits()
    images = np.rint(data.images * (255 / 16)).astype("uint8")[..., np.newaxis]
    labels = data.target.astype("int32")
    train, test = split_indices(len(labels), test_fraction, seed, labels)
    return (images[train], labels[train]), (images[test], labels[test])
