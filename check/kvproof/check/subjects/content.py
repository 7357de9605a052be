"""A digest of the code that a subject is made of, so that a result that was kept is used for the same code only.

A release is known by its name, and a checkout by its files. Code of the user may import any other. So it counts which
Python files there are, of which size and from when, in the folder of the subject's file, in the working folder and in
the folders that are searched for modules and hold no installed packages, and what is installed in which version.
Where that cannot be known (a program behind a pipe, a folder of very many files), nothing that was kept is used: the
digest is another one each time.
"""

import hashlib
import os
import secrets
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from kvproof.check.subjects.own import PIPE
from kvproof.check.subjects.registry import content_of_checkout

SUFFIXES = (".py", ".so", ".pyd")
FOLDERS_MAX = 4_000
LEFT_OUT = frozenset({"__pycache__", "site-packages", "node_modules", "crashes"})  # a hunt writes into the last one


class _TooMany(Exception):
    """There are more folders than can be looked through."""


def content_of(name: str) -> str:
    """The digest of a subject; empty if its name says all."""
    place, separator, _ = name.rpartition(":")
    if name.startswith(PIPE):
        return secrets.token_hex(16)
    if not separator:
        return content_of_checkout(name)
    try:
        own = Path(place).read_bytes() if place.endswith(".py") else b""
        seen = sorted({one for root in _roots(place) for one in _files(root)})
        packages = installed()
    except (OSError, _TooMany):
        return secrets.token_hex(16)
    return hashlib.sha256(own + msgspec.json.encode([seen, packages])).hexdigest()


def installed() -> list[tuple[str, str]]:
    """What is installed in which version. Raises OSError."""
    folders = filter(os.path.isdir, map(os.path.abspath, sys.path))
    return _installed(tuple((one, os.stat(one).st_mtime_ns) for one in folders))


@cache
def _installed(searched: tuple[tuple[str, int], ...]) -> list[tuple[str, str]]:
    """What is installed in which version. searched: the folders, and when a file was last added to each or removed."""
    return sorted((about["Name"] or "", about["Version"] or "") for about in (one.metadata for one in distributions()))


def _roots(place: str) -> set[Path]:
    """The folders that the code of the user may be in."""
    installed = {Path(one).resolve() for one in (sys.prefix, sys.base_prefix)}
    searched = {Path(one).resolve() for one in sys.path if Path(one).is_dir()}
    own = {Path.cwd()} | ({Path(place).resolve().parent} if place.endswith(".py") else set())
    return own | {one for one in searched if not any(one.is_relative_to(folder) for folder in installed)}


def _files(root: Path) -> Iterator[tuple[str, int, int]]:
    """The files of code below a folder: path, bytes, and time of the last change in nanoseconds."""
    for number, (folder, folders, names) in enumerate(os.walk(root)):
        if number == FOLDERS_MAX:
            raise _TooMany
        folders[:] = [
            one
            for one in folders
            if one not in LEFT_OUT
            and not one.startswith(".")
            and not os.path.exists(os.path.join(folder, one, "pyvenv.cfg"))
        ]
        for name in names:
            if name.endswith(SUFFIXES):
                path = os.path.join(folder, name)
                about = os.stat(path)
                yield path, about.st_size, about.st_mtime_ns
