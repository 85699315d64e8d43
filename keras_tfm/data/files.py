"""The user's own files: text, comma and tab separated tables, folders of images.

Everything that can be wrong with a file ends in a `DataError` of one line.
"""

import csv
import io
import os

import numpy as np

from keras_tfm.data.errors import DataError

FILE_KINDS = ("csv", "text", "tsv", "folder")
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def parse_source(spec):
    """Take a `--dataset` value apart.

    Args:
        spec: str, "csv:reviews.csv", "text:book.txt", "tsv:pairs.tsv", "folder:images"
            or the name of a data set.

    Returns: `(kind, path)`: kind is "csv", "text", "tsv" or "folder" with the path
        behind the colon, or "name" with `spec` itself.

    Raises:
        DataError: if the path behind a known kind is empty.
    """
    kind, colon, path = spec.partition(":")
    if not colon or kind not in FILE_KINDS:
        return "name", spec
    if not path:
        raise DataError(f"'{spec}' names no file: write {kind}:PATH.")
    return kind, path


def read_text(path, encoding="utf-8"):
    """Read a whole text file.

    Args:
        path: str, the file.
        encoding: str, how its characters are written.

    Returns: str, not empty, line ends as a line feed.

    Raises:
        DataError: if the file cannot be read, is empty or has another encoding.
    """
    try:
        with open(path, encoding=encoding, newline=None) as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not {encoding} text: byte {error.start} cannot be read."
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise DataError(f"{path} is empty.")
    return text


def read_csv_classification(
    path, text_column="text", label_column="label", class_names=None
):
    """Read texts and their classes from a comma separated file with a header.

    Labels may be words or numbers. Classes are numbered in sorted order (numbers by
    size), or as `class_names` says, which is how a validation file keeps the
    numbering of its training file.

    Args:
        path: str, the file; rows without a text keep their place as an empty text.
        text_column: str, header of the texts.
        label_column: str, header of the labels.
        class_names: list of str or None.

    Returns: `(texts, labels, class_names)`: list of str, int32 array, list of str.

    Raises:
        DataError: for a missing column, no rows, fewer than two classes or an
            unknown label.
    """
    header, rows = _table(path, ",")
    for column in (text_column, label_column):
        if column not in header:
            raise DataError(
                f"{path} has no column '{column}', found: {', '.join(header)}."
            )
    at = header.index(text_column), header.index(label_column)
    texts = [row[at[0]] for _, row in rows]
    names = [row[at[1]].strip() for _, row in rows]
    for (line, _), name in zip(rows, names):
        if not name:
            raise DataError(f"{path} line {line} has no label.")
    if class_names is None:
        class_names = _sorted_names(set(names))
        if len(class_names) < 2:
            raise DataError(
                f"{path} has one class only ('{class_names[0]}' in column "
                f"'{label_column}'), at least two are needed."
            )
    numbers = {name: number for number, name in enumerate(class_names)}
    for (line, _), name in zip(rows, names):
        if name not in numbers:
            raise DataError(
                f"{path} line {line} has the label '{name}', known are: "
                f"{', '.join(class_names)}."
            )
    labels = np.array([numbers[name] for name in names], "int32")
    return texts, labels, list(class_names)


def read_tsv_pairs(path):
    """Read sentence pairs from a file with two tab separated columns, no header.

    Args:
        path: str, one pair a line: source, tab, target; further columns are ignored.

    Returns: list of (source, target).

    Raises:
        DataError: for an empty file or a line without a tab.
    """
    pairs = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(
                f"{path} line {number} has no tab: expected source TAB target."
            )
        pairs.append((columns[0].strip(), columns[1].strip()))
    return pairs


def read_image_folder(path, image_size, channels=3):
    """Read images from one sub-folder per class.

    Args:
        path: str, the folder; sub-folders are the classes, in sorted order.
        image_size: (height, width), every image is resized to it.
        channels: 1 (grey) or 3 (colour).

    Returns: `(images, labels, class_names)`: uint8 (n, height, width, channels),
        int32 (n,), list of str.

    Raises:
        DataError: if the folder is missing, has fewer than two classes, a class has no
            image, or an image is corrupt.
    """
    if not os.path.isdir(path):
        raise DataError(f"{path} is not a folder.")
    names = sorted(
        name
        for name in os.listdir(path)
        if os.path.isdir(os.path.join(path, name)) and not name.startswith(".")
    )
    if len(names) < 2:
        raise DataError(
            f"{path} has {len(names)} class sub-folder(s), at least two are needed."
        )
    images, labels = [], []
    for label, name in enumerate(names):
        files = _image_files(os.path.join(path, name))
        images += [_image(file, image_size, channels) for file in files]
        labels += [label] * len(files)
    return np.stack(images), np.array(labels, "int32"), names


def _table(path, delimiter):
    """Return the header and the rows, each with its line number."""
    reader = csv.reader(io.StringIO(read_text(path)), delimiter=delimiter, strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if any(row)]
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}.") from error
    if len(rows) < 2:
        raise DataError(f"{path} has no rows below its header.")
    header = [name.strip() for name in rows[0][1]]
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise DataError(
                f"{path} line {line} has {len(row)} columns, "
                f"the header has {len(header)}."
            )
    return header, rows[1:]


def _sorted_names(names):
    if all(name.lstrip("-").isdigit() for name in names):
        return sorted(names, key=int)
    return sorted(names)


def _image_files(folder):
    names = sorted(os.listdir(folder))
    files = [
        os.path.join(folder, name)
        for name in names
        if name.lower().endswith(IMAGE_ENDINGS)
    ]
    if not files:
        raise DataError(f"{folder} has no image ({', '.join(IMAGE_ENDINGS)}).")
    return files


def _image(path, image_size, channels):
    import keras

    try:
        image = keras.utils.load_img(
            path,
            color_mode="grayscale" if channels == 1 else "rgb",
            target_size=tuple(image_size),
            interpolation="bilinear",
        )
        return keras.utils.img_to_array(image, "channels_last", "uint8")
    except Exception as error:  # Pillow raises many kinds for a broken file
        raise DataError(f"{path} is not a readable image.") from error
