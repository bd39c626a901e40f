"""A disk that is full: said in a line, and what was half written is removed, so that one can go on."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TEXTS = tuple(map(os.strerror, _FULL[:2]))
"""What libraries say that hand on no number: safetensors, Ray of an error in another process."""

_NOTHING_LEFT_BYTES = 2**20


class DiskFull(OSError):
    """Something could not be written for want of space; the message names it and the remedy."""


def says_disk_full(error: BaseException) -> bool:
    """Whether an error, or what it comes from, is that of a full disk, a quota or a limit of a file's size."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            return True
        if any(text in str(seen) for text in _TEXTS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def disk_full(error: BaseException, path: Path | str | None, remedy: str) -> DiskFull:
    """The error that a person is told. path: what could not be written, if that is known."""
    reason = next((text for text in map(os.strerror, _FULL) if text in str(error)), os.strerror(errno.ENOSPC))
    what = "" if path is None else f": {path} could not be written{_room(Path(path))}"
    return DiskFull(f"{reason}{what}. {remedy}")


@contextmanager
def whole_or_removed(path: Path, remedy: str) -> Iterator[None]:
    """Around what writes a file or a folder: if that fails, nothing of it stays.

    Raises DiskFull, with the remedy, where the disk is the reason, whatever the library said that noticed.
    """
    try:
        yield
    except Exception as error:
        # torch only says that it could not write, and no longer why.
        is_full = says_disk_full(error) or _free_bytes(path) < _NOTHING_LEFT_BYTES
        told = disk_full(error, path, f"What was written of it has been removed. {remedy}") if is_full else None
        _remove(path)
        if told is None or isinstance(error, DiskFull):
            raise
        raise told from error


def _remove(path: Path) -> None:
    for each in (path, *path.parent.glob(f"{path.name}.*")):  # as path.partial, before it gets its name
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def _free_bytes(path: Path) -> int:
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(there).free


def _room(path: Path) -> str:
    free = _free_bytes(path)
    return f" ({free / 2**20:.1f} MiB are free there)"
