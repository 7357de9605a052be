"""The score of a tool as a document: what `kvproof corpus run --json` writes, and the page of findings reads."""

from pathlib import Path
from typing import Literal

import msgspec

from kvproof.reports.document import DocumentError, read_json

SCHEMA_VERSION = 1
Outcome = Literal["found", "missed", "not hunted"]


class SeedSight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A seed saw the record by this search, after so many operations and seconds of processor time."""

    seed: int
    by: str
    num_operations: int
    seconds: float


class RecordScore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of a record; cause: of a miss, or why it was not hunted."""

    id: str
    outcome: Outcome
    cause: str
    sights: list[SeedSight]


class ScoreDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The score of a tool: kvproof, or the command of a program."""

    tool: str
    seeds: list[int]
    effort: str
    records: list[RecordScore]
    schema_version: int = SCHEMA_VERSION


def read_score(path: Path) -> ScoreDocument:
    """Read a score. Raises DocumentError."""
    try:
        found = msgspec.json.decode(read_json(path), type=ScoreDocument)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DocumentError(f"{path} is no score of kvproof corpus run: {error}") from error
    if found.schema_version > SCHEMA_VERSION:
        raise DocumentError(
            f"{path} has schema version {found.schema_version}; this kvproof reads up to {SCHEMA_VERSION}"
        )
    return found
