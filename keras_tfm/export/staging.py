"""Write a file or folder completely or not at all."""

import contextlib
import os
import pathlib
import shutil
import uuid


@contextlib.contextmanager
def staged_folder(path, marker):
    """Give an empty sibling folder that takes the place of `path` at the end.

    If the body raises (a full disk, Ctrl-C), the sibling is removed and what was
    at `path` before stays. A folder at `path` is replaced only if it is empty or
    holds `marker`, so that a mistyped path never deletes somebody's files.

    Args:
        path: str or path, the folder to write.
        marker: str, name of a file that every folder of this kind holds.

    Yields: `pathlib.Path` of the sibling, an existing empty folder.

    Raises:
        ValueError: `path` is a file, or a folder of another kind.
        OSError: it could not be written; names `path`.
    """
    path = pathlib.Path(path).absolute()
    if path.is_dir():
        if any(path.iterdir()) and not (path / marker).exists():
            raise ValueError(
                f"`path` must be a new folder or one that holds {marker}, got {path}, "
                "which holds other files."
            )
    elif path.exists():
        raise ValueError(f"`path` must be a folder, got the file {path}.")
    with _stage(path) as temporary:
        temporary.mkdir(parents=True)
        yield temporary
        _replace(path, temporary)


@contextlib.contextmanager
def staged_file(path):
    """Give a sibling file name that takes the place of `path` at the end.

    Args:
        path: str or path, the file to write.

    Yields: `pathlib.Path` of the sibling, to be written by the body.

    Raises:
        ValueError: `path` is a folder.
        OSError: it could not be written; names `path`.
    """
    path = pathlib.Path(path).absolute()
    if path.is_dir():
        raise ValueError(f"`path` must be a file, got the folder {path}.")
    with _stage(path) as temporary:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)


def _replace(path, temporary):
    """Move a folder to `path`, whose former content goes once that is done."""
    if not path.exists():
        temporary.rename(path)
        return
    old = _sibling(path)
    path.rename(old)
    try:
        temporary.rename(path)
    except OSError:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sibling(path):
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")


@contextlib.contextmanager
def _stage(path):
    """Remove the sibling whatever happens, name `path` in an `OSError`."""
    temporary = _sibling(path)
    try:
        yield temporary
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise OSError(error.errno, f"Could not write {path}: {reason}") from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
