"""Code of the engines that kvproof's adapters play themselves, and where it is another one than they were written for.

An adapter takes the place of the engine's loop, of its worker, or of the scheduler around a block manager. When those
lines change, the adapter goes on calling as before, and what a run then shows may not be true of the engine. So there
is a table for each engine: the functions, the subjects that play them, and of each function a digest of its lines with
the first release that has them. An empty digest says that the release has no such function.

    python -m kvproof.check.subjects.replaced vllm    # write the digests of the downloaded releases again
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kvproof.check.subjects.loading.download import order_of
from kvproof.check.subjects.loading.functions import functions_in

FOLDER = Path(__file__).parent
NAMED_MAX = 3  # functions in a message


class Replaced(NamedTuple):
    """A function of an engine that adapters play. file: within a release. digests: by the first release that has it."""

    file: str
    name: str
    subjects: list[str]
    digests: dict[str, str]

    def expected(self, release: str) -> str:
        """The digest in a release, or in the newest of the table before it; empty if it is not there."""
        known = [one for one in self.digests if order_of(one) <= order_of(release)]
        return self.digests[max(known, key=order_of)] if known else ""


class Table(NamedTuple):
    """options: patterns of the files in whose classes the options of the engine stand. replaced: the functions."""

    options: list[str]
    replaced: list[Replaced]


@cache
def table_of(engine: str) -> Table:
    """The table of an engine."""
    read = tomllib.loads((FOLDER / f"{engine}.toml").read_text(encoding="utf-8"))
    options = read.pop("options")
    rows = ((file, name, row) for file, names in read.items() for name, row in names.items())
    return Table(options, [Replaced(file, name, row["subjects"], row["digests"]) for file, name, row in rows])


def played_by(engine: str, subject: str) -> list[Replaced]:
    """The functions that the adapter of a subject plays."""
    return [one for one in table_of(engine).replaced if subject in one.subjects]


def changed(engine: str, subject: str, like: str, folder: Path) -> Iterator[str]:
    """The functions that an adapter plays and that are others in `folder` than in the release `like`, with the place.

    subject: its name, without a release. Raises SyntaxError, ValueError, OSError.
    """
    for one in played_by(engine, subject):
        found = functions_in(folder / one.file).get(one.name)
        if (found.digest if found else "") != one.expected(like):
            yield f"{one.name} ({one.file}:{found.line})" if found else f"{one.name} ({one.file}), which is not there"


def sentence(engine: str, subject: str, like: str, folder: Path) -> str:
    """What of it has changed, for a message; empty if the table has nothing about the subject."""
    if not played_by(engine, subject):
        return ""
    try:
        found = [*changed(engine, subject, like, folder)]
    except (SyntaxError, ValueError, OSError) as error:
        return f"what its adapter plays of the engine cannot be compared with {like}: {error}"
    if not found:
        return f"what its adapter plays of the engine is as in {like}"
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    named = ", ".join(found[:NAMED_MAX])
    return f"its adapter plays code of the engine that is not as in {like}, so read what has changed: {named}{more}"
