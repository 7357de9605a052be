"""A record of the corpus: one real fault of an engine, in a TOML file of its own.

A record says where the fault is and what a user sees of it, in which releases a run has shown it and in which the same
run has not, and how anybody can see it: by a saved run (`trace`, which `kvproof replay` runs) or by a script that needs
the engine alone. What is known by reading only is in the story. A default hunt is not asked to find everything:
`missed` says why it does not.

The name of the file is the id of the record: the engine, then a few words for what goes wrong.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.configuration import ConfigurationError, place_of, read_toml
from kvproof.check.runs.errors import UsageError
from kvproof.check.subjects.loading.download import order_of

CLASSES = {
    "reference-counts": "a leak, a block that is freed twice, or one that is freed while it is used",
    "prefix-keys": "two contents have one key, or one content has two",
    "prefix-cache": "a hit of what was not computed or was evicted, or a hit that is lost",
    "eviction": "what is evicted, and in which order",
    "windows-and-hybrids": "sliding windows, several groups of KV, and states beside attention",
    "copy-and-swap": "copy on write, forks, and swaps between device and host",
    "admission": "a question that is answered wrongly, or a refusal without need",
    "scheduling": "order, budgets and progress of requests",
    "transfers": "loads and sends of connectors: late, failed, or reported twice",
    "stores": "KV in host memory, on disks and in remote tiers",
    "drafts-and-steps-ahead": "speculative decoding, and steps that are scheduled before the last one is over",
    "encoders": "images, and the blocks of cross-attention",
    "events": "what a pool reports to routers",
}
LINK = re.compile(r"[\w.-]+/[\w.-]+#\d+")
ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

Text = Annotated[str, Meta(min_length=1)]
TraceName = Annotated[str, Meta(pattern=r"^[a-z0-9-]*$")]  # neither leads out of its folder
ScriptName = Annotated[str, Meta(pattern=r"^([a-z0-9_]+\.py)?$")]
State = Literal["unreported", "reported", "repaired"]
FoundBy = Literal["hunt", "run", "reading", "report"]
Cause = Literal["no subject", "not driven", "not drawn", "not judged", "excluded", "too rare"]


class Missed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a default hunt does not find the fault."""

    cause: Cause
    text: Text


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a maintainer of the engine needs to know, without a word of kvproof."""

    title: Text
    expected: Text
    observed: Text
    cause: Text
    suggestion: Text


class FaultRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A real fault.

    engine: a package, or owner/name of a repository without releases. alias: its name in documents. fault_class: one of
    CLASSES. place: file and function. bad, good: releases (or commits), oldest first, in which a run has shown it or
    not. links: owner/name#number of issues and pull requests. property_id, subject: of kvproof; empty if there is none.
    trace: a file of `traces` without its ending. script: a file of `reproductions`. loaded_by: the subject that imports
    the release for the script, if it is not `subject`.
    """

    engine: Text
    alias: str = ""
    fault_class: str = msgspec.field(name="class")
    mechanism: Text
    harm: Text
    place: Text
    bad: Annotated[list[Text], Meta(min_length=1)]
    good: list[Text]
    links: list[str]
    state: State
    found_by: FoundBy
    property_id: str = msgspec.field(name="property")
    subject: str
    trace: TraceName
    script: ScriptName
    loaded_by: str = ""
    story: Text
    missed: Missed | None = None
    report: Report | None = None
    id: str = ""

    @property
    def has_releases(self) -> bool:
        """Whether the engine has releases on a package index; otherwise `bad` and `good` are commits."""
        return "/" not in self.engine

    @property
    def releases(self) -> str:
        """In which releases the fault was shown, in words."""
        if not self.has_releases or len(self.bad) == 1:
            return ", ".join(self.bad)
        return f"{self.bad[0]} to {self.bad[-1]}"

    @property
    def newest(self) -> str:
        """The subject in the newest release that has the fault."""
        return f"{self.subject}=={self.bad[-1]}"

    @property
    def gone_in(self) -> str:
        """The oldest release after all bad ones in which the same run did not show it; empty if none is known."""
        if not self.has_releases:
            return self.good[0] if self.good else ""
        last = max(map(order_of, self.bad))
        return next((one for one in self.good if order_of(one) > last), "")

    @property
    def without(self) -> str:
        """A release without the fault, to compare with: `gone_in`, else an older one; empty if none is known."""
        return self.gone_in or (self.good[-1] if self.good else "")

    def affects(self, release: str) -> str | None:
        """Whether a release has the fault, in words; None if it was shown that it has not, or lies outside.

        Between two releases that were run alike, a release that was not run is taken to be like them.
        """
        if not self.has_releases:
            return None
        if release in self.bad:
            return "shown"
        place, bad, good = order_of(release), list(map(order_of, self.bad)), list(map(order_of, self.good))
        if release in self.good or place < min(bad):
            return None
        if place < max(bad):
            is_parted = any(min(bad) < one < max(bad) for one in good)
            return "not run" if is_parted else "shown before and after it"
        return None if any(max(bad) < one <= place for one in good) else "newer than those that were run"


def schema_text() -> str:
    """The JSON schema of the file of a record, for editors and other tools."""
    (reference,), components = msgspec.json.schema_components([FaultRecord], ref_template="#/$defs/{name}")
    del components[FaultRecord.__name__]["properties"]["id"]  # it is the name of the file
    components[FaultRecord.__name__]["properties"]["class"]["enum"] = [*CLASSES]
    title = {"title": "A record of the corpus", "$schema": "https://json-schema.org/draft/2020-12/schema"}
    data = msgspec.json.encode(title | reference | {"$defs": components})
    return msgspec.json.format(data, indent=2).decode() + "\n"


def read(path: Path) -> FaultRecord:
    """Read a record. Raises ConfigurationError, which names the file, and the line of a wrong key."""
    text, found = read_toml(path)
    keys = msgspec.structs.fields(FaultRecord)
    names = {one.encode_name for one in keys} - {"id"}
    for key in found:
        if key not in names:
            raise ConfigurationError(
                f"{place_of(path, text, key)}: there is no key {key!r}{did_you_mean(key, names)}; "
                f"the keys are {', '.join(one.encode_name for one in keys if one.name != 'id')}"
            )
    try:
        return msgspec.convert(found | {"id": path.stem}, FaultRecord)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        key = where.partition("`")[0].partition("[")[0].partition(".")[0]
        place = place_of(path, text, key) if key else str(path)
        raise ConfigurationError(f"{place}: {f'{key}: ' if key else ''}{message}") from None


def read_all(folder: Path) -> list[FaultRecord]:
    """The records of a folder, in the order of their ids. Raises ConfigurationError, and UsageError if it has none."""
    found = [read(path) for path in sorted(folder.glob("*.toml"))]
    if not found:
        raise UsageError(f"{folder} has no records (files that end in .toml)")
    return found


def selected(
    faults: list[FaultRecord], ids: list[str], engine: str | None, fault_class: str | None
) -> list[FaultRecord]:
    """The records with these ids or aliases, of this engine and this class. Raises UsageError if one names nothing."""
    names: dict[str, Any] = {name: one for one in faults for name in (one.id, one.alias) if name}
    for name in ids:
        if name not in names:
            raise UsageError(f"no record is named {name}{did_you_mean(name, names)}; `kvproof corpus list` lists them")
    engines, classes = {one.engine for one in faults}, set(CLASSES)
    for kind, given, known in (("engine", engine, engines), ("class", fault_class, classes)):
        if given is not None and given not in known:
            raise UsageError(
                f"no record is of the {kind} {given}{did_you_mean(given, known)}; {kind} is one of "
                f"{', '.join(sorted(known))}",
                kind,
            )
    return [
        one
        for one in faults
        if (not ids or one.id in ids or one.alias in ids)
        and engine in (None, one.engine)
        and fault_class in (None, one.fault_class)
    ]
