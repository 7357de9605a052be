"""`kvproof examples`: the examples of the documentation, which the package carries."""

import ast
import shutil
from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.check.runs.shipped_examples import source_folder

LEFTOVERS = shutil.ignore_patterns("__pycache__", ".*")


def examples(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Folder to copy them to; it must be new or empty. Without it, list them."),
    ] = None,
) -> None:
    """Copy the examples of the documentation to a folder, or list them.

    The commands of the documentation work in any folder after `kvproof examples examples`.
    """
    with error_boundary():
        from kvproof.check.runs.terminal import output, say

        source, console = source_folder(), output()
        if folder is None:
            for line in listed(source):
                say(console, line)
            return
        try:
            if folder.exists() and any(folder.iterdir()):
                raise UsageError(f"{folder} is not empty; name a new folder")
            shutil.copytree(source, folder, ignore=LEFTOVERS, dirs_exist_ok=True)
        except OSError as error:
            raise UsageError(f"the examples cannot be written to {folder}: {error.strerror or error}") from error
        files = sum(path.is_file() for path in folder.rglob("*"))
        say(console, f"{files} files are in {folder}. Try:")
        say(console, f"kvproof hunt --subject {folder / 'forty_lines_broken.py'}:Adapter --seed 1 --stop-at-first")


def listed(source: Path) -> list[str]:
    """A line for each program, with its first sentence, and for each folder, with its number of files."""
    entries = sorted(path for path in source.iterdir() if not path.name.startswith((".", "__")))
    width = max(len(path.name) for path in entries) + 1
    return [f"{path.name + '/' * path.is_dir():<{width}}  {_about(path)}" for path in entries]


def _about(path: Path) -> str:
    if path.is_dir():
        return f"{len(list(path.iterdir()))} files"
    text = path.read_text(encoding="utf-8")
    words = ast.get_docstring(ast.parse(text)) if path.suffix == ".py" else text.removeprefix("/* ")
    return (words or "").partition("\n")[0]
