"""A full disk: reported in a line, and what was half written is removed, so that a run can be resumed."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOTHING_LEFT_BYTES = 2**20


class DiskFull(OSError):
    """Something could not be written for want of space; the message names it and the remedy."""


def disk_full(error: BaseException, path: Path | str | None, remedy: str) -> DiskFull | None:
    """The error to report if a full disk, a quota or a limit of a file's size is behind ``error``; else None.

    path: what could not be written, if that is known. Libraries drop the error's number: safetensors keeps its text, of
    torch only the disk that is full tells.
    """
    seen: BaseException | None = error
    number = None
    while seen is not None and number is None:
        number = seen.errno if isinstance(seen, OSError) and seen.errno in _FULL else None
        number = number or next((each for each in _FULL if os.strerror(each) in str(seen)), None)
        seen = seen.__cause__ or seen.__context__
    if path is None:
        return None if number is None else DiskFull(f"{os.strerror(number)}. {remedy}")
    there = next(folder for folder in (Path(path), *Path(path).absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if number is None and free >= _NOTHING_LEFT_BYTES:
        return None
    reason = os.strerror(number or errno.ENOSPC)
    return DiskFull(f"{reason}: {path} could not be written ({free / 2**20:.1f} MiB are free there). {remedy}")


@contextmanager
def whole_or_removed(path: Path, remedy: str) -> Iterator[None]:
    """Around what writes a file or a folder: if that fails, nothing of it stays.

    Raises DiskFull, with the remedy, where the disk is the reason.
    """
    try:
        yield
    except Exception as error:
        found = disk_full(error, path, f"What was written of it has been removed. {remedy}")
        for each in (path, *path.parent.glob(f"{path.name}.*")):  # as path.partial, before it gets its name
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)
        if found is None or isinstance(error, DiskFull):
            raise
        raise found from error
