"""A model folder that a program builds from a recipe: whole or not at all, never over a folder of others."""

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
    """Keep the folder at ``directory`` if it has the same recipe, else have ``write`` fill it. Returns the path.

    marker: name of the file in a built folder that holds its recipe, whose ``built_by`` is the module that builds.
    write: is given the path of a folder to make. force: replace a built folder.
    Raises FileExistsError for a folder that was not built here (even with ``force``), or of another recipe.
    """

    def is_built() -> bool:
        if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
            return False
        if not (directory / marker).is_file():
            raise FileExistsError(
                f"{directory} exists and was not written by {recipe['built_by']} (it has no {marker}): name another "
                f"folder, or remove it yourself"
            )
        found = json.loads((directory / marker).read_text(encoding="utf-8"))
        if found != recipe and not force:
            raise FileExistsError(
                f"{directory} holds a model built from {found}, wanted {recipe}: build it with --force, or name "
                f"another folder"
            )
        return not force

    if is_built():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    # In the same file system, where a rename is atomic.
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as scratch:
        built = Path(scratch) / "built"
        write(built)
        (built / marker).write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")
        if is_built():  # another process built it meanwhile
            return directory
        if directory.exists():
            os.rename(directory, Path(scratch) / "replaced")
        os.rename(built, directory)
    return directory
