"""Atomic writes of files, private folders, and flushes to the disk."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str, *, durable: bool = False) -> None:
    """Write ``text`` as UTF-8 atomically, and create missing folders. durable: flush it to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        if durable:
            sync(unfinished)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    os.replace(unfinished, path)
    if durable:
        sync(path.parent)


def make_private_folder(folder: Path) -> None:
    """Create a folder for its owner only, with missing parents. An existing one keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not folder.exists():
        folder.mkdir(mode=0o700)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
