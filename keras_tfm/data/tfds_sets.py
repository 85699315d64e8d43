"""Standard data sets by their TFDS names, through the unchanged `tfds.load`.

Local copies (`data_dir`) are read without a network. What cannot be had ends in a
`DataError` of one line.
"""

import contextlib
import difflib
import logging
import os
import socket
import urllib.parse
import urllib.request

import numpy as np

from keras_tfm.data.errors import DataError


def load_tfds(name, split, data_dir=None, download=True, **kwargs):
    """Load a split: a local copy first, the download only if there is none.

    Args:
        name: str, a TFDS name such as "glue/sst2".
        split: str, a TFDS split such as "train" or "train[:10%]".
        data_dir: str or None, the folder of the local copies; None is TFDS's own.
        download: bool, whether a set without a local copy may be downloaded.
        **kwargs: for `tfds.load`, such as `as_supervised=True`.

    Returns: what `tfds.load` returns, a `tf.data.Dataset` in the plain case.

    Raises:
        DataError: for an unknown name, configuration or split, and for a set without
            local copy that cannot be downloaded.
    """
    import tensorflow_datasets as tfds

    if data_dir is not None and not os.path.isdir(data_dir):
        raise DataError(f"`data_dir` {data_dir} is not a folder.")
    options = {"split": split, "data_dir": data_dir, **kwargs}
    try:
        with _quiet():
            return tfds.load(name, download=False, **options)
    except AssertionError:
        pass  # known, but no local copy
    except ValueError as error:
        raise DataError(_unknown(name, split, data_dir, error)) from error
    missing = f"'{name}' has no local copy in {data_dir or 'the TFDS folder'}"
    if not download:
        raise DataError(f"{missing}.")
    if not _has_network(name, data_dir):
        raise DataError(f"{missing}, and there is no network to download it.")
    try:
        return tfds.load(name, download=True, **options)
    except Exception as error:  # network, disk and missing packages alike
        raise DataError(
            f"{missing} and cannot be downloaded: {_first_line(error)}"
        ) from error


def load_text_classification(name, split, data_dir=None, text_key=None):
    """Load sentences and classes ("glue/sst2", "glue/cola", "imdb_reviews" ...).

    Args:
        name: str, as for `load_tfds`.
        split: str, as for `load_tfds`.
        data_dir: str or None, as for `load_tfds`.
        text_key: str or None, the feature that is the text; None takes the only one.

    Returns: `(texts, labels, class_names)`: list of str, int32 array, list of str.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    keys = [text_key] if text_key else _text_keys(name, info, 1)
    class_names = _class_names(name, info)
    columns = _columns(name, dataset, [*keys, "label"])
    labels = _labels(name, split, columns["label"])
    return columns[keys[0]], labels, class_names


def load_pair_classification(name, split, data_dir=None):
    """Load sentence pairs and classes ("glue/mrpc", "glue/rte", "glue/wnli").

    Args:
        name: str, as for `load_tfds`.
        split: str, as for `load_tfds`.
        data_dir: str or None, as for `load_tfds`.

    Returns: `(pairs, labels, class_names)`: list of (str, str), int32 array, list.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    first, second = _text_keys(name, info, 2)
    class_names = _class_names(name, info)
    columns = _columns(name, dataset, [first, second, "label"])
    labels = _labels(name, split, columns["label"])
    return list(zip(columns[first], columns[second])), labels, class_names


def load_translation(name, split, data_dir=None):
    """Load translation pairs ("multi30k/en-de", "tatoeba_en_zh", "tatoeba/...").

    Args:
        name: str, as for `load_tfds`.
        split: str, as for `load_tfds`.
        data_dir: str or None, as for `load_tfds`.

    Returns: list of (source, target) str, stripped; in the set's own direction.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    keys = info.supervised_keys
    if not keys and "source_sentence" in info.features:
        keys = ("source_sentence", "target_sentence")
    if not keys:
        keys = _text_keys(name, info, 2)
    columns = _columns(name, dataset, list(keys))
    if not isinstance(columns[keys[0]][0], str):
        raise DataError(f"'{name}' is not a set of text pairs.")
    return [tuple(s.strip() for s in pair) for pair in zip(*columns.values())]


def load_text(name, split, data_dir=None):
    """Load a set of plain text ("tiny_shakespeare", "gutenberg_books") as one str.

    Args:
        name: str, as for `load_tfds`.
        split: str, as for `load_tfds`.
        data_dir: str or None, as for `load_tfds`.

    Returns: str, the documents of the split one after the other.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    key = "text" if "text" in info.features else _text_keys(name, info, 1)[0]
    return "\n".join(_columns(name, dataset, [key])[key])


def load_images(name, split, data_dir=None):
    """Load labelled images of one size ("cifar10", "mnist" ...).

    Args:
        name: str, as for `load_tfds`.
        split: str, as for `load_tfds`.
        data_dir: str or None, as for `load_tfds`.

    Returns: `(images, labels, class_names)`: uint8 (n, height, width, channels), int32
        (n,), list of str.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    if not {"image", "label"} <= set(info.features):
        raise DataError(f"'{name}' is not a set of labelled images.")
    images, labels = [], []
    if None in info.features["image"].shape:
        raise DataError(
            f"The images of '{name}' differ in size: {info.features['image'].shape}."
        )
    for batch in _batches(name, dataset.batch(512)):
        images.append(batch["image"])
        labels.append(batch["label"])
    labels = _labels(name, split, np.concatenate(labels))
    return np.concatenate(images), labels, _class_names(name, info)


def _text_keys(name, info, count):
    """Name the text features, refusing a set that has another number of them."""
    import tensorflow_datasets as tfds

    keys = [k for k, f in info.features.items() if isinstance(f, tfds.features.Text)]
    if len(keys) != count:
        raise DataError(
            f"'{name}' has the text features {keys}, expected {count} of them."
        )
    return keys


def _class_names(name, info):
    """Name the classes, refusing a set whose label is no class."""
    if "label" not in info.features or not hasattr(info.features["label"], "names"):
        raise DataError(f"'{name}' has no feature 'label' with classes.")
    return list(info.features["label"].names)


def _labels(name, split, labels):
    """Refuse the -1 of a test split whose labels are kept back (all of GLUE's)."""
    labels = np.asarray(labels, "int32")
    if (labels < 0).any():
        raise DataError(f"The split '{split}' of '{name}' has no labels (they are -1).")
    return labels


def _batches(name, dataset):
    """Iterate over NumPy batches; a broken file ends in one line."""
    import tensorflow as tf

    try:
        yield from dataset.as_numpy_iterator()
    except tf.errors.OpError as error:
        raise DataError(
            f"'{name}' cannot be read: {_first_line(error.message)}"
        ) from error


def _columns(name, dataset, keys):
    """Read the named features of a whole split into lists."""
    columns = {key: [] for key in keys}
    dataset = dataset.map(lambda example: {key: example[key] for key in keys})
    for batch in _batches(name, dataset.batch(1024)):
        for key in keys:
            columns[key] += batch[key].tolist()
    return {
        key: [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
        for key, values in columns.items()
    }


@contextlib.contextmanager
def _quiet():
    """Hold back TFDS's warning that there is no local copy: the error says so."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _has_network(name, data_dir):
    """Ask for an address before a download that would retry for minutes."""
    import tensorflow_datasets as tfds

    if urllib.request.getproxies():
        return True  # names are looked up elsewhere
    with _quiet():
        homepage = tfds.builder(name, data_dir=data_dir).info.homepage
    for host in (urllib.parse.urlparse(homepage).hostname, "www.tensorflow.org"):
        try:
            if host and socket.getaddrinfo(host, 443):
                return True
        except OSError:
            continue
    return False


def _unknown(name, split, data_dir, error):
    import tensorflow_datasets as tfds

    if "split" in str(error).lower():
        return _first_line(error).replace("Unknown split", f"'{name}' has no split")
    known = set(tfds.list_builders(with_community_datasets=False))
    if data_dir is not None:
        known |= {folder.name for folder in os.scandir(data_dir) if folder.is_dir()}
    set_name, _, config = name.partition("/")
    if config and set_name in known:
        return f"Data set '{set_name}' has no configuration '{config}'."
    near = difflib.get_close_matches(set_name, sorted(known), n=3)
    hint = f"near names: {', '.join(near)}" if near else "no near name"
    return f"Unknown data set '{name}' ({hint})."


def _first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
