"""A digest of the sources of kvproof: two processes with the same one do a unit of work in the same way."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

CODE = (".py", ".txt", ".json", ".c", ".h")  # the files that can change an answer


@cache
def code_digest() -> str:
    """The digest of the files of kvproof that are imported; the folders in which they are do not matter."""
    return digest_of({Path(one).resolve() for one in import_module("kvproof").__path__})


def digest_of(folders: Iterable[Path]) -> str:
    """The digest of the names, relative to their folder, and contents of the code in these folders."""
    found = sorted(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for name, file in files_of(folders))
    return hashlib.sha256("".join(found).encode()).hexdigest()


def files_of(folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Each file of code in these folders, after its name relative to its folder."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.suffix in CODE and path.is_file():
                yield path.relative_to(folder).as_posix(), path
