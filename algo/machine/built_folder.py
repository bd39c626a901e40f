"""Builds a model folder atomically from a recipe, without overwriting foreign folders."""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from algo.machine.disk import remove_on_error


def folder_parser(
    module: str, description: str, example: str, parents: Sequence[argparse.ArgumentParser] = ()
) -> argparse.ArgumentParser:
    """The common command line of programs that build such a folder. example: of a folder."""
    description = f"{description} An existing one is kept."
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description, parents=parents)
    parser.add_argument("directory", type=Path, metavar="DIR", help=f"folder to write, e.g. {example}")
    parser.add_argument("--force", action="store_true", help="rebuild an existing model in DIR")
    return parser


def build_folder(
    directory: Path, marker: str, recipe: Mapping[str, Any], write: Callable[[Path], None], *, force: bool = False
) -> Path:
    """Build the folder by ``write``, unless it exists with the same recipe. Returns the path.

    marker: name of the file with the recipe in a built folder; its ``built_by`` is the building module.
    write: creates the folder at the given path. force: replace a built folder.
    Raises FileExistsError for a folder that was not built here (even with ``force``), or from another recipe.
    """

    def is_built() -> bool:
        if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
            return False
        if not (directory / marker).is_file():
            raise FileExistsError(
                f"{directory} exists and was not written by {recipe['built_by']} (it has no {marker}): name another "
                f"folder, or remove it"
            )
        try:
            found = json.loads((directory / marker).read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != recipe and not force:
            raise FileExistsError(
                f"{directory} has a model built from {found}, not from {recipe}: rebuild it with --force, or name "
                f"another folder"
            )
        return not force

    if is_built():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    # In the same file system, for an atomic rename.
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as scratch:
        built = Path(scratch) / "built"
        with remove_on_error(built, "Free some space there."):
            write(built)
            (built / marker).write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")
        if is_built():  # another process built it meanwhile
            return directory
        if directory.exists():
            os.rename(directory, Path(scratch) / "replaced")
        os.rename(built, directory)
    return directory
