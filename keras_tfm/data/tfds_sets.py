"""Standard data sets by their TFDS names, through the unchanged `tfds.load`.

Local copies (`data_dir`) are read without a network. What cannot be had ends in a
`DataError` of one line.
"""

import difflib
import os

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
        return tfds.load(name, download=False, **options)
    except AssertionError:
        pass  # known, but no local copy
    except ValueError as error:
        raise DataError(_unknown(name, split, data_dir, error)) from error
    if download:
        try:
            return tfds.load(name, download=True, **options)
        except Exception as error:  # network, disk and missing packages alike
            raise DataError(
                f"'{name}' has no local copy in {data_dir or 'the TFDS folder'} and "
                f"cannot be downloaded: {_first_line(error)}"
            ) from error
    raise DataError(f"'{name}' has no local copy in {data_dir or 'the TFDS folder'}.")


def load_text_classification(name, split, data_dir=None, text_key=None):
    """Load sentences and classes ("glue/sst2", "glue/cola", "imdb_reviews" ...).

    Args:
        name, split, data_dir: as for `load_tfds`.
        text_key: str or None, the feature that is the text; None takes the only one.

    Returns: `(texts, labels, class_names)`: list of str, int32 array, list of str.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    keys = [text_key] if text_key else _text_keys(name, info, 1)
    columns = _columns(dataset, [*keys, "label"])
    labels = np.array(columns["label"], "int32")
    return columns[keys[0]], labels, list(info.features["label"].names)


def load_pair_classification(name, split, data_dir=None):
    """Load sentence pairs and classes ("glue/mrpc", "glue/rte", "glue/wnli").

    Args:
        name, split, data_dir: as for `load_tfds`.

    Returns: `(pairs, labels, class_names)`: list of (str, str), int32 array, list.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    first, second = _text_keys(name, info, 2)
    columns = _columns(dataset, [first, second, "label"])
    pairs = list(zip(columns[first], columns[second]))
    labels = np.array(columns["label"], "int32")
    return pairs, labels, list(info.features["label"].names)


def load_translation(name, split, data_dir=None):
    """Load translation pairs ("multi30k/en-de", "tatoeba_en_zh", "tatoeba/...").

    Args:
        name, split, data_dir: as for `load_tfds`.

    Returns: list of (source, target) str, stripped; in the set's own direction.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    keys = info.supervised_keys
    if not keys and "source_sentence" in info.features:
        keys = ("source_sentence", "target_sentence")
    if not keys:
        keys = _text_keys(name, info, 2)
    columns = _columns(dataset, list(keys))
    if not isinstance(columns[keys[0]][0], str):
        raise DataError(f"'{name}' is not a set of text pairs.")
    return [tuple(s.strip() for s in pair) for pair in zip(*columns.values())]


def load_text(name, split, data_dir=None):
    """Load a set of plain text ("tiny_shakespeare", "gutenberg_books") as one str.

    Args:
        name, split, data_dir: as for `load_tfds`.

    Returns: str, the documents of the split one after the other.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    key = "text" if "text" in info.features else _text_keys(name, info, 1)[0]
    return "\n".join(_columns(dataset, [key])[key])


def load_images(name, split, data_dir=None):
    """Load labelled images of one size ("cifar10", "mnist" ...).

    Args:
        name, split, data_dir: as for `load_tfds`.

    Returns: `(images, labels, class_names)`: uint8 (n, height, width, channels), int32
        (n,), list of str.
    """
    dataset, info = load_tfds(name, split, data_dir, with_info=True)
    if not {"image", "label"} <= set(info.features):
        raise DataError(f"'{name}' is not a set of labelled images.")
    images, labels = [], []
    for batch in dataset.ragged_batch(512).as_numpy_iterator():
        images.append(np.asarray(batch["image"]))
        labels.append(batch["label"])
    labels = np.concatenate(labels).astype("int32")
    return np.concatenate(images), labels, list(info.features["label"].names)


def _text_keys(name, info, count):
    """Name the text features, refusing a set that has another number of them."""
    import tensorflow_datasets as tfds

    keys = [k for k, f in info.features.items() if isinstance(f, tfds.features.Text)]
    if len(keys) != count:
        raise DataError(
            f"'{name}' has the text features {keys}, expected {count} of them."
        )
    return keys


def _columns(dataset, keys):
    """Read the named features of a whole split into lists."""
    columns = {key: [] for key in keys}
    dataset = dataset.map(lambda example: {key: example[key] for key in keys})
    for batch in dataset.batch(1024).as_numpy_iterator():
        for key in keys:
            columns[key] += batch[key].tolist()
    return {
        key: [v.decode("utf-8") if isinstance(v, bytes) else v for v in values]
        for key, values in columns.items()
    }


def _unknown(name, split, data_dir, error):
    import tensorflow_datasets as tfds

    if "split" in str(error).lower():
        return f"'{name}' has no split '{split}': {_first_line(error)}"
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
    return lines[0] if lines else type(error).__name__
