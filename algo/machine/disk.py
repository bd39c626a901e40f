"""Handles a full disk: one error with the remedy, without partial files, so that a run can be resumed."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from algo.machine.atomic_files import sync

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOTHING_LEFT_BYTES = 2**20


class DiskFull(OSError):
    """No space for a file; the message names it and the remedy."""


def free_bytes(path: Path) -> int:
    """Free space of the disk for a path, which need not exist."""
    return shutil.disk_usage(next(each for each in (path, *path.absolute().parents) if each.exists())).free


def disk_full(error: BaseException, path: Path | str | None, remedy: str) -> DiskFull | None:
    """The error to report if a full disk, a quota or a file size limit is the cause of ``error``; else None.

    path: of the failed write, if known. safetensors only keeps the error's text and torch not even that, so the free
    space decides.
    """
    number, cause = None, error
    while cause is not None and number is None:
        code = getattr(cause, "errno", None)
        number = next((each for each in _FULL if code == each or os.strerror(each) in str(cause)), None)
        cause = cause.__cause__ or cause.__context__
    if path is None:
        return None if number is None else DiskFull(f"{os.strerror(number)}. {remedy}")
    free = free_bytes(Path(path))
    if number is None and free >= _NOTHING_LEFT_BYTES:
        return None
    reason = os.strerror(number or errno.ENOSPC)
    return DiskFull(f"{reason}: {path} could not be written ({free / 2**20:.1f} MiB are free there). {remedy}")


@contextmanager
def remove_on_error(path: Path, remedy: str) -> Iterator[None]:
    """Remove the path and ``path.*`` if the block that writes it fails.

    Raises DiskFull, with the remedy, for a full disk.
    """
    try:
        yield
    except BaseException as error:  # also Ctrl-C
        text = f"The partial file has been removed. {remedy}"
        found = disk_full(error, path, text) if isinstance(error, Exception) else None
        for each in (path, *path.parent.glob(f"{path.name}.*")):
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)
        if found is None:
            raise
        raise found from error


@contextmanager
def atomic_folder(folder: Path, remedy: str = "Free some space there", *, durable: bool = False) -> Iterator[Path]:
    """A temporary folder that replaces ``folder`` when the block ends.

    durable: flush it to the disk before. Raises as ``remove_on_error``.
    """
    unfinished = folder.with_name(f"unfinished-{folder.name}").absolute()
    with remove_on_error(unfinished, remedy):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        yield unfinished
        for path in [*unfinished.rglob("*"), unfinished] if durable else ():
            sync(path)
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)
    if durable:
        sync(folder.parent)
