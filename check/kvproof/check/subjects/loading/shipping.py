"""The sources of subjects, for machines that lack them: packed once, and unpacked there once, named by their hash.

A subject is made of the folder of an engine's release, or of one Python file; other subjects have no sources to send.
A machine that has the same content in its own place uses that. Otherwise the sources are unpacked into a folder of its
cache, which appears there complete or not at all, and its content is checked.
"""

import hashlib
import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvproof.check.hosts.program import variable
from kvproof.check.hosts.workers import Shipping
from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.loading.download import CACHE, default_cache, find
from kvproof.check.subjects.own import SHIPPED
from kvproof.check.subjects.registry import NAMED

FOLDER = ".shipped"  # in the cache of the engines
LEFT_OUT = "__pycache__"


@dataclass(frozen=True)
class Sources:
    """What a subject is made of. name: of the folder or the file. digest: of its content."""

    subject: str
    name: str
    digest: str

    @property
    def is_file(self) -> bool:
        """Whether the subject is made of a Python file, and not of the release of an engine."""
        return ":" in self.subject


def place_of(subject: str) -> Path | None:
    """Where the sources of a subject are on this machine; None if it has none, or they are not here."""
    where, colon, _ = subject.rpartition(":")
    if colon:
        return Path(where).resolve() if where.endswith(".py") and Path(where).is_file() else None
    name, _, release = subject.partition("==")
    row = NAMED.get(name)
    if row is None or not row.engine:
        return None
    with suppress(EngineError):
        return find(row.engine, release or row.default_release)
    return None


def sources_of(subject: str) -> Sources | None:
    """The sources of a subject on this machine; None if it has none, or they are not here."""
    place = place_of(subject)
    return None if place is None else Sources(subject, place.name, digest_of(place))


@cache
def digest_of(place: Path) -> str:
    """The digest of the names and contents of a folder's files, or of one file."""
    lines = sorted(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for name, file in _files_of(place))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _files_of(place: Path) -> Iterator[tuple[str, Path]]:
    """Each file with its name below the folder in which the place is."""
    for file in [place] if place.is_file() else place.rglob("*"):
        if file.is_file() and LEFT_OUT not in file.parts:
            yield file.relative_to(place.parent).as_posix(), file


def packed(place: Path) -> bytes:
    """The files of a folder, or one file, as one archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in _files_of(place):
            archive.writestr(name, file.read_bytes())
    return data.getvalue()


@contextmanager
def at_hand(sources: Sources | None, archive: Callable[[], bytes]) -> Iterator[None]:
    """Within the block, the subject is made of these sources. archive: brings them, if this machine lacks them.

    Raises OSError if they cannot be unpacked, for example on a full disk.
    """
    if sources is None or sources_of(sources.subject) == sources:
        yield
        return
    folder = unpacked(sources, archive, default_cache() / FOLDER)
    where = sources.subject.rpartition(":")[0]
    name, value = (SHIPPED, f"{where}\n{folder / sources.name}") if sources.is_file else (CACHE, str(folder))
    with variable(name, value):
        yield


def unpacked(sources: Sources, archive: Callable[[], bytes], within: Path) -> Path:
    """The folder that holds the sources, unpacked at the first call. Raises OSError."""
    target = within / sources.digest
    if (target / sources.name).exists():
        return target
    within.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".incoming-", dir=within))
    try:
        with zipfile.ZipFile(io.BytesIO(archive())) as files:
            files.extractall(scratch)
        if digest_of(scratch / sources.name) != sources.digest:
            raise OSError(f"what arrived of {sources.name} is not what was sent")
        with suppress(OSError):  # another worker of this machine was first
            scratch.rename(target)
        return target
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


SHIPPING = Shipping(place_of, sources_of, packed, at_hand)  # of the subjects that units need
