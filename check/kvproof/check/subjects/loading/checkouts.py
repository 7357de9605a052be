"""Checkouts: folders with the sources of an engine that are judged in place of a release.

The name of a subject is `NAME==PATH` then, or `NAME==RELEASE@PATH`, which says as which release the adapter drives it.
Without the release, the checkout says it itself: in its metadata, in the file in which its build writes the version, or
in `__version__`. No code of the checkout runs for this.

A path begins with a dot, a tilde or a slash, or has a slash, so that no release is taken for one. What a checkout holds
changes, so nothing that is kept may be found by its name alone: `digest_of` is the digest of its Python files.

`kvproof engines add PATH` gives a checkout the name of a release of its own, RELEASE+checkout: a link in the folder of
the releases.
"""

import hashlib
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kvproof.check.subjects.loading import EngineError, download

AT = "@"
REGISTERED = "+checkout"  # ends the release of a checkout that has a link
ROOTS = ("", "src", "python")  # where an engine keeps its package
VERSION_FILES = ("_version.py", "version.py", "__init__.py")
VERSION = re.compile(r"""^(?:__)?version(?:__)?\b[^"'\n]*=\s*["']([0-9][A-Za-z0-9.!+_-]*)["']""", re.MULTILINE)
OF_PROJECT = re.compile(r"""^\[project\]$.*?^version\s*=\s*["']([0-9][^"']*)["']""", re.MULTILINE | re.DOTALL)


class Checkout(NamedTuple):
    """A folder of an engine. root: the folder in which its package is. release: as which its adapter drives it."""

    engine: str
    release: str
    root: Path


def is_path(text: str) -> bool:
    """Whether what stands after `==` is a path, with or without a release before it."""
    _, path = path_in(text)
    return "/" in path or path.startswith((".", "~"))


def path_in(text: str) -> tuple[str, str]:
    """The release, empty if there is none, and the path."""
    release, separator, path = text.partition(AT)
    return (release, path) if separator and re.fullmatch(r"[A-Za-z0-9.!+_-]+", release) else ("", text)


def names_checkout(text: str) -> bool:
    """Whether what stands after `==` names a checkout, by its path or as it is registered."""
    return is_path(text) or _is_registered(text)


def _is_registered(text: str) -> bool:
    return text.endswith(REGISTERED) and not is_path(text)


def checkout(engine: str, text: str, cache: Path | None = None) -> Checkout:
    """The checkout of an engine that `text` names. Raises EngineError."""
    if _is_registered(text):
        return Checkout(engine, text.removesuffix(REGISTERED), download.find(engine, text, cache).resolve())
    release, path = path_in(text)
    root = root_of(engine, path)
    release = release or release_of(engine, Path(path).expanduser(), root)
    if not release:
        raise EngineError(f"{path} does not say which release of {engine} it is; name one that it is like with --like")
    return Checkout(engine, release, root)


def register(path: str, like: str | None = None, cache: Path | None = None) -> tuple[str, Path]:
    """Give a checkout a name among the releases. Returns this name, and the folder of its package. Raises EngineError.

    like: the release that it is like, if it does not say which it is.
    """
    _require_folder(path)
    engines = [name for name in download.KNOWN if _has_package(name, path)]
    if not engines:
        known = (f"{one.package}/{module}" for one in download.KNOWN.values() for module in one.modules)
        raise EngineError(
            f"{path} holds no engine that kvproof knows; one of these files must be in it: {', '.join(known)}"
        )
    if len(engines) > 1:
        raise EngineError(f"{path} holds {' and '.join(engines)}: name the folder of one of them")
    found = checkout(engines[0], f"{like}{AT}{path}" if like else path)
    version = found.release.partition("+")[0] + REGISTERED
    name, version = download.parse(f"{found.engine}=={version}")
    link = (cache or download.default_cache()) / f"{name}-{version}"
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(found.root)
    except OSError as error:
        raise EngineError(
            f"{link} cannot be written ({error.strerror or error}); set KVPROOF_CACHE to a folder that can"
        ) from error
    if link.resolve() != found.root:
        raise EngineError(f"{name}=={version} is the checkout {link.resolve()} already; remove {link} first")
    return f"{name}=={version}", found.root


def _has_package(engine: str, path: str) -> bool:
    return any(download.usable(download.KNOWN[engine], Path(path).expanduser() / root) for root in ROOTS)


def root_of(engine: str, path: str) -> Path:
    """The folder of a checkout in which the package of the engine is. Raises EngineError."""
    folder, known = Path(path).expanduser(), download.KNOWN[engine]
    _require_folder(path)
    for name in ROOTS:
        if download.usable(known, folder / name):
            return (folder / name).resolve()
    files = ", ".join(f"{known.package}/{module}" for module in known.modules)
    raise EngineError(f"{path} is no checkout of {engine}: it has none of {files}")


def _require_folder(path: str) -> None:
    try:
        is_there = Path(path).expanduser().is_dir()
    except OSError as error:  # of a name that no file can have
        raise EngineError(f"{path} cannot be a folder: {error.strerror}") from error
    if not is_there:
        raise EngineError(f"there is no folder {path}")


def release_of(engine: str, folder: Path, root: Path) -> str:
    """The release that a checkout says it is; empty if it says none. root: the folder in it that has the package."""
    folders = dict.fromkeys((folder, root))
    for folder in folders:
        if said := download.version_of(folder):
            return said
    for name in VERSION_FILES:
        if said := _found(VERSION, root / download.KNOWN[engine].package / name):
            return said
    return next(filter(None, (_found(OF_PROJECT, folder / "pyproject.toml") for folder in folders)), "")


def _found(pattern: re.Pattern[str], file: Path) -> str:
    try:
        found = pattern.search(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def without_folders(name: str) -> str:
    """The name of a subject as it is saved: of an absolute path of a checkout only the last folder is kept.

    What is saved is shared, and does not say where the folders of its user lie.
    """
    known, separator, text = name.partition("==")
    if ":" in known or not separator or not is_path(text):
        return name
    release, path = path_in(text)
    if not Path(path).expanduser().is_absolute():
        return name
    return f"{known}=={f'{release}{AT}' if release else ''}./{Path(path).expanduser().resolve().name}"


@cache
def digest_of(folder: Path) -> str:
    """The digest of the Python files of a checkout, as they are when this process first asks. Hidden folders are not
    read."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        name = file.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts):
            with suppress(OSError):
                digest.update(name.as_posix().encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
