"""Compile C once for each source and compiler, keep the library in the user's cache folder, and load it.

The key of a library is the hash of its source, the compiler with its version, and the machine. Beside a library lies
its own hash, which is compared before the library is loaded: one that was cut off or changed is compiled again. So is
one that cannot be loaded, or that was made of another source: each library has a name in it that says its key.

Who can write to a library could run any code, so one is kept and loaded only where it and its folders are the user's
and nobody else can write there. If that is not so, or the folder cannot be written, the library is compiled into a
private temporary folder, for this process only, and a note says why.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvproof.spec.cache_folder import cache_folder, require_private

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=gnu11", "-O3", "-w", "-shared", "-fPIC", "-pthread")
MARK = "kvproof_made_"  # with the key, a name in each library
COMPILE_SECONDS_MAX = 120.0
VERSION_SECONDS_MAX = 10.0


class NoLibrary(Exception):
    """There is no C compiler, or it does not compile the source; the message says what to do."""


@dataclass(frozen=True)
class Loaded:
    """A library; whether it came from the cache; what went wrong with the cache, if anything."""

    library: ctypes.CDLL
    is_cached: bool
    note: str = ""


def folder_of_libraries() -> Path:
    """The folder of compiled libraries. Raises RuntimeError if the user has no home."""
    return cache_folder() / "c_reader"


def load(source: str, seconds: float = COMPILE_SECONDS_MAX) -> Loaded:
    """The library of a source. Raises NoLibrary."""
    compiler = _compiler()
    version = _run([compiler, "--version"], VERSION_SECONDS_MAX)
    made_of = "\0".join([source, MARK, compiler, version, *FLAGS, platform.machine()])
    key = hashlib.sha256(made_of.encode()).hexdigest()[:32]
    mark = f"{MARK}{key}"
    marked = f"{source}\nconst int {mark} = 1;\n"
    note = ""
    try:
        folder = _private_folder()
        path = folder / f"{key}.so"
        if (library := _kept(path, mark)) is not None:
            return Loaded(library, True)
        if path.exists():
            note = f"{path} is not as it was kept, and has been compiled again"
        with tempfile.TemporaryDirectory(dir=folder) as own:
            made = _compiled(marked, compiler, Path(own), seconds)
            library = _opened(made, mark)
            digest = Path(own) / "digest"
            digest.write_text(_digest(made))
            for file, place in ((digest, _digest_of(path)), (made, path)):
                file.chmod(0o600)
                os.replace(file, place)
        return Loaded(library, False, note)
    except (OSError, RuntimeError) as error:
        note = f"nothing is kept in {cache_folder_name()}: {error}"
    try:
        with tempfile.TemporaryDirectory() as own:
            return Loaded(_opened(_compiled(marked, compiler, Path(own), seconds), mark), False, note)
    except OSError as error:
        raise NoLibrary(f"the specification in C cannot be made: {error}") from error


def cache_folder_name() -> str:
    """The name of the cache folder, also where there is no home folder."""
    try:
        return str(folder_of_libraries())
    except RuntimeError:
        return "~/.cache"


def _compiler() -> str:
    named = os.environ.get("CC")
    found = next(filter(None, map(shutil.which, [named] if named else COMPILERS)), None)
    if found is None:
        what = (
            f"the compiler that CC names, {named}, is not there"
            if named
            else f"none of {', '.join(COMPILERS)} is there"
        )
        raise NoLibrary(f"there is no C compiler: {what}; install one, or explore without --reader c")
    return found


def _run(command: list[str], seconds: float) -> str:
    """The output of a command. Raises NoLibrary if it fails or takes longer; nothing that it started is left."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise NoLibrary(f"the C compiler {command[0]} cannot be run: {error}") from error
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise NoLibrary(f"the C compiler {command[0]} has not ended after {seconds:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        lines = [line for line in output.splitlines() if "error" in line] or output.splitlines() or ["no output"]
        raise NoLibrary(f"the C compiler {command[0]} fails with exit code {process.returncode}: {lines[0].strip()}")
    return output


def _compiled(source: str, compiler: str, folder: Path, seconds: float) -> Path:
    text, library = folder / "specification.c", folder / "specification.so"
    text.write_text(source)
    _run([compiler, *FLAGS, "-o", str(library), str(text)], seconds)
    if not library.exists():
        raise NoLibrary(f"the C compiler {compiler} ends without an error and writes nothing")
    return library


def _private_folder() -> Path:
    """The folder of libraries, which is made if it is not there. Raises OSError if others can write to it."""
    folder = folder_of_libraries()
    for one in (folder.parent, folder):
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_private(one)
    return folder


def _kept(path: Path, mark: str) -> ctypes.CDLL | None:
    """The library at a path; None if it is not as it was kept, or cannot be used."""
    try:
        require_private(path)
        return _opened(path, mark) if _digest_of(path).read_text() == _digest(path) else None
    except (OSError, ValueError):
        return None


def _opened(path: Path, mark: str) -> ctypes.CDLL:
    """The library at a path. Raises OSError if it cannot be loaded, or has nothing of that name."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise OSError(f"what the C compiler made cannot be loaded: {error}") from error
    if not hasattr(library, mark):
        raise OSError(f"{path} was made of another source")
    return library


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")
