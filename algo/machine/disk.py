"""A full disk: one error that names the remedy, and nothing half written stays, so that a run can be resumed."""

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


def disk_full(error: BaseException, path: Path | str | None, remedy: str) -> DiskFull | None:
    """The error to report if a full disk, a quota or a limit of a file's size is the cause of ``error``; else None.

    path: what could not be written, if that is known. Libraries drop the error's number: safetensors keeps its text,
    torch neither, so there the free space decides.
    """
    number, cause = None, error
    while cause is not None and number is None:
        code = getattr(cause, "errno", None)
        number = next((each for each in _FULL if code == each or os.strerror(each) in str(cause)), None)
        cause = cause.__cause__ or cause.__context__
    if path is None:
        return None if number is None else DiskFull(f"{os.strerror(number)}. {remedy}")
    existing = next(folder for folder in (Path(path), *Path(path).absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if number is None and free >= _NOTHING_LEFT_BYTES:
        return None
    reason = os.strerror(number or errno.ENOSPC)
    return DiskFull(f"{reason}: {path} could not be written ({free / 2**20:.1f} MiB are free there). {remedy}")


@contextmanager
def remove_on_error(path: Path, remedy: str) -> Iterator[None]:
    """Around code that writes a file or a folder: if it fails, the path and ``path.*`` are removed.

    Raises DiskFull, with the remedy, where the disk is the reason.
    """
    try:
        yield
    except Exception as error:
        found = disk_full(error, path, f"What was written of it has been removed. {remedy}")
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
    """A folder to write to, which gets its name, and replaces one of that name, when it is complete.

    durable: and on the disk. Raises as ``remove_on_error`` does.
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
