"""A folder that a program builds from a recipe, whole or not at all, and never over what others wrote."""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def folder_parser(
    module: str, description: str, example: str, parents: Sequence[argparse.ArgumentParser] = ()
) -> argparse.ArgumentParser:
    """The command line that programs have in common which write such a folder. example: of a folder."""
    description = f"{description} An existing one is kept."
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description, parents=parents)
    parser.add_argument("directory", type=Path, metavar="DIR", help=f"folder to write, e.g. {example}")
    parser.add_argument("--force", action="store_true", help="build anew over an earlier one in DIR")
    return parser


def build_folder(
    directory: Path, marker: str, recipe: Mapping[str, Any], write: Callable[[Path], None], *, force: bool = False
) -> Path:
    """Have ``write`` fill a new folder, which then appears as ``directory``; or keep the one of the same recipe there.

    marker: name of the file that tells a folder of ours and holds its recipe, whose ``built_by`` is the module that
    builds. write: is given the path of a folder to make. force: build anew over an earlier one of ours.

    Returns the path. Raises FileExistsError when the folder is not one of ours (never overwritten, not even with
    ``force``), or one of another recipe and ``force`` is not set.
    """
    if _is_reusable(directory, marker, recipe, force):
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target: a rename is only atomic within one file system.
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as scratch:
        built = Path(scratch) / "built"
        write(built)
        (built / marker).write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")
        if _is_reusable(directory, marker, recipe, force):  # another process built it meanwhile
            return directory
        if directory.exists():
            os.rename(directory, Path(scratch) / "replaced")
        os.rename(built, directory)
    return directory


def _is_reusable(directory: Path, marker: str, recipe: Mapping[str, Any], force: bool) -> bool:
    """Whether ``directory`` can stay as it is; FileExistsError when it must not be written."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    module = recipe["built_by"]
    if not (directory / marker).is_file():
        raise FileExistsError(
            f"{directory} exists and was not written by {module} (it has no {marker}): name another folder, or remove "
            f"it yourself"
        )
    if force:
        return False
    found = json.loads((directory / marker).read_text(encoding="utf-8"))
    if found != recipe:
        raise FileExistsError(
            f"{directory} holds a model built from {found}, wanted {recipe}: build it anew with --force, or name "
            f"another folder"
        )
    return True
