"""The user's own files: what they give, and the one line each mistake ends in."""

import numpy as np
import pytest

from keras_tfm.data import (
    DataError,
    parse_source,
    read_csv_classification,
    read_image_folder,
    read_text,
    read_tsv_pairs,
)


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        path.write_bytes(data)
        return str(path)

    return write


@pytest.fixture
def image_folder(tmp_path):
    """Two classes with one red and two blue images of different sizes."""
    from PIL import Image

    for name, colour, sizes in (
        ("red", (255, 0, 0), [(4, 4)]),
        ("blue", (0, 0, 255), [(8, 8), (16, 4)]),
    ):
        (tmp_path / name).mkdir()
        for i, size in enumerate(sizes):
            Image.new("RGB", size, colour).save(tmp_path / name / f"{i}.png")
    return tmp_path


def one_line(match):
    return pytest.raises(DataError, match=rf"\A[^\n]*{match}[^\n]*\Z")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("csv:reviews.csv", ("csv", "reviews.csv")),
        ("text:/a/b:c.txt", ("text", "/a/b:c.txt")),
        ("tsv:pairs.tsv", ("tsv", "pairs.tsv")),
        ("folder:images/", ("folder", "images/")),
        ("glue/sst2", ("name", "glue/sst2")),
        ("cifar10:3.0.2", ("name", "cifar10:3.0.2")),
        ("csv", ("name", "csv")),
    ],
)
def test_parse_source(spec, expected):
    assert parse_source(spec) == expected


def test_parse_source_without_a_path():
    with one_line("'csv:' names no file: write csv:PATH"):
        parse_source("csv:")


def test_text(write):
    assert read_text(write("a.txt", "\ufeffone\r\ntwo")) == "one\ntwo"
    assert read_text(write("b.txt", "é".encode("latin-1")), "latin-1") == "é"


def test_text_mistakes(write, tmp_path):
    with one_line("nothing.txt cannot be read: No such file"):
        read_text(str(tmp_path / "nothing.txt"))
    with one_line("cannot be read: Is a directory"):
        read_text(str(tmp_path))
    with one_line("empty.txt is empty"):
        read_text(write("empty.txt", ""))
    with one_line("blank.txt is empty"):
        read_text(write("blank.txt", " \n\n"))
    with one_line("latin.txt is not utf-8 text: byte 3 cannot be read"):
        read_text(write("latin.txt", b"caf\xe9"))


def test_csv(write):
    path = write(
        "reviews.csv",
        'id,label,text\n1,good,"So, it is\nvery ""fine"""\n\n2,bad,awful\n3,good,\n',
    )
    texts, labels, names = read_csv_classification(path)
    assert texts == ['So, it is\nvery "fine"', "awful", ""]
    assert names == ["bad", "good"]
    assert labels.tolist() == [1, 0, 1] and labels.dtype == np.int32


def test_csv_columns_numbers_and_known_classes(write):
    path = write("stars.csv", "review,stars\na,10\nb,9\nc,-1\n")
    columns = {"text_column": "review", "label_column": "stars"}
    _, labels, names = read_csv_classification(path, **columns)
    assert names == ["-1", "9", "10"] and labels.tolist() == [2, 1, 0]
    test = write("test.csv", "review,stars\nd,9\n")
    _, labels, names = read_csv_classification(test, **columns, class_names=names)
    assert labels.tolist() == [1] and names == ["-1", "9", "10"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("text,label\n", "has no rows below its header"),
        (",\n,\n", "has no rows below its header"),
        ("review,stars\na,1\n", "has no column 'text', found: review, stars"),
        ("text,stars\na,1\n", "has no column 'label', found: text, stars"),
        ("text,label\na,x\nb,x\n", "has one class only .'x' in column 'label'"),
        ("text,label\na,x\nb\n", "line 3 has 1 columns, the header has 2"),
        ("text,label\na,x\nb, \n", "line 3 has no label"),
        ('text,label\n"a,x\n', "line 2: unexpected end of data"),
        (b"text,label\n\xff,x\n", "is not utf-8 text"),
    ],
)
def test_csv_mistakes(write, content, message):
    with one_line(message):
        read_csv_classification(write("reviews.csv", content))


def test_csv_unknown_label(write):
    path = write("reviews.csv", "text,label\na,x\nb,z\n")
    with one_line("line 3 has the label 'z', known are: x, y"):
        read_csv_classification(path, class_names=["x", "y"])


def test_tsv(write):
    path = write("pairs.tsv", "one\teins\n\ntwo \t zwei\tthird column\n")
    assert read_tsv_pairs(path) == [("one", "eins"), ("two", "zwei")]
    with one_line("line 2 has no tab"):
        read_tsv_pairs(write("bad.tsv", "one\teins\ntwo zwei\n"))
    with one_line("none.tsv is empty"):
        read_tsv_pairs(write("none.tsv", ""))


def test_image_folder(image_folder):
    images, labels, names = read_image_folder(str(image_folder), (6, 5))
    assert images.shape == (3, 6, 5, 3) and images.dtype == np.uint8
    assert names == ["blue", "red"] and labels.tolist() == [0, 0, 1]
    assert images[2, 3, 3].tolist() == [255, 0, 0]
    grey, _, _ = read_image_folder(str(image_folder), (6, 5), channels=1)
    assert grey.shape == (3, 6, 5, 1)
    assert grey[:, 0, 0, 0].tolist() == [29, 29, 76]  # ITU-R 601 luma


def test_image_folder_mistakes(image_folder, tmp_path):
    with one_line("nowhere is not a folder"):
        read_image_folder(str(tmp_path / "nowhere"), (4, 4))
    (image_folder / "red" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n no image")
    with one_line("broken.png is not a readable image"):
        read_image_folder(str(image_folder), (4, 4))
    whole = (image_folder / "red" / "0.png").read_bytes()
    (image_folder / "red" / "broken.png").write_bytes(whole[:-20])
    with one_line("broken.png is not a readable image"):
        read_image_folder(str(image_folder), (4, 4))
    (image_folder / "green").mkdir()
    with one_line("green has no image"):
        read_image_folder(str(image_folder), (4, 4))


def test_image_folder_with_one_class(image_folder):
    (image_folder / "red" / "0.png").unlink()
    (image_folder / "red").rmdir()
    with one_line("has 1 class sub-folder.s., at least two are needed"):
        read_image_folder(str(image_folder), (4, 4))
