import os
import stat
import subprocess
import sys

import pytest

from keras_tfm.export.staging import staged_file, staged_folder


def test_file_appears_complete(tmp_path):
    path = tmp_path / "new" / "model.tflite"
    with staged_file(path) as file:
        file.write_bytes(b"12")
        assert not path.exists()
    assert path.read_bytes() == b"12"
    assert os.listdir(path.parent) == ["model.tflite"]


def test_failed_file_keeps_the_old_one(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), staged_file(path) as file:
        file.write_bytes(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.tflite"]


def test_folder_appears_complete_and_readable(tmp_path):
    path = tmp_path / "new" / "saved"
    with staged_folder(path, "marker") as folder:
        (folder / "marker").write_text("1")
        assert not path.exists()
    assert os.listdir(path.parent) == ["saved"]
    assert (path / "marker").read_text() == "1"
    plain = tmp_path / "plain"
    plain.mkdir()
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, plain)]
    assert modes[0] == modes[1]  # others may read it as they may any new folder


def test_folder_is_replaced_only_when_done(tmp_path):
    path = tmp_path / "saved"
    for text in ("1", "2"):
        with staged_folder(path, "marker") as folder:
            (folder / "marker").write_text(text)
            (folder / text).touch()
    assert sorted(os.listdir(path)) == ["2", "marker"]
    with pytest.raises(RuntimeError), staged_folder(path, "marker") as folder:
        (folder / "marker").write_text("3")
        raise RuntimeError
    assert (path / "marker").read_text() == "2"
    assert os.listdir(tmp_path) == ["saved"]


def test_a_folder_of_other_files_is_never_replaced(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="holds marker.*holds other files"):
        with staged_folder(tmp_path, "marker"):
            pass
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_file_and_folder_do_not_take_each_others_place(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="must be a folder, got the file"):
        with staged_folder(tmp_path / "file", "marker"):
            pass
    with pytest.raises(ValueError, match="must be a file, got the folder"):
        with staged_file(tmp_path):
            pass


def test_error_names_the_target(tmp_path):
    path = tmp_path / "model.tflite"
    with pytest.raises(OSError, match=f"Could not write {path}: No space left"):
        with staged_file(path):
            raise OSError(28, "No space left on device", "some temporary file")
    assert not os.listdir(tmp_path)


def test_a_limit_on_file_size_is_met_cleanly(tmp_path):
    """The system refuses to write more than 1 kB, as a full disk would."""
    script = """
import resource, sys
from keras_tfm.export.staging import staged_file
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
try:
    with staged_file(sys.argv[1]) as file:
        file.write_bytes(b"0" * 4096)
except OSError as error:
    print(error)
"""
    path = tmp_path / "model.tflite"
    root = os.path.dirname(os.path.dirname(__file__))
    result = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
    )
    assert f"Could not write {path}: File too large" in result.stdout
    assert not os.listdir(tmp_path)
