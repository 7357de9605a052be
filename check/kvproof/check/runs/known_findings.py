"""Known findings: those that do not fail a run, each with a reason and a date until which it is excused.

They are listed in the configuration of the repository (`runs/configuration.py`):

    [[known]]
    property = "refcount-exact"
    signature = "fork: *"           # as a report prints it, or printed it formerly; * and ? are any characters
    subject = "vllm-v0==0.6.*"      # default: any
    reason = "fixed upstream in 0.7; we are moving"
    expires = 2027-01-31

A known finding is reported and saved like any other, and does not fail the run. On the day after `expires` it fails
again. An unknown key or property in the file is an error, because it would excuse nothing.
"""

from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kvproof.check.protocol.own_property import is_property
from kvproof.check.runs import configuration as file
from kvproof.check.runs.configuration import FILE, ConfigurationError, find_configuration, read_configuration
from kvproof.reports.identity import Identity
from kvproof.reports.result import KNOWN
from kvproof.spec.text.properties import MEANINGS

NEEDED = ("property", "reason", "expires")
OPTIONAL = ("signature", "subject")
ANY = "*"


@dataclass(frozen=True)
class Known:
    """One entry of the file."""

    property: str
    reason: str
    expires: date
    signature: str = ANY
    subject: str = ANY

    def covers(self, identity: Identity, subject: str) -> bool:
        """Whether the entry matches a finding."""
        is_this = identity.is_covered_by(Identity(self.property, self.signature), fnmatchcase)
        return is_this and fnmatchcase(subject, self.subject)


@dataclass(frozen=True)
class KnownFindings:
    """The entries of a file, and the day on which they are read."""

    entries: tuple[Known, ...] = ()
    today: date = date.min

    def excuse(self, identity: Identity, subject: str) -> str:
        """The reason why a finding does not fail the run; empty if it does."""
        for entry in self.entries:
            if entry.covers(identity, subject) and self.today <= entry.expires:
                return f"{KNOWN} {entry.expires}: {entry.reason}"
        return ""

    def expired(self, identity: Identity, subject: str) -> str:
        """A note for a finding whose entry has expired; empty if it has none."""
        for entry in self.entries:
            if entry.covers(identity, subject) and self.today > entry.expires:
                return f"it was known until {entry.expires} ({entry.reason}): fix it, or renew its entry in {FILE}"
        return ""


def known_findings(path: Path | None, today: date | None = None) -> KnownFindings:
    """The entries of a file; by default of the configuration that is in force in the working folder.

    Raises DocumentError.
    """
    found = find_configuration() if path is None else read_configuration(path)
    if found is None:
        return KnownFindings()
    tables = found.values.get(file.KNOWN, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigurationError(
            f"{found.place(file.KNOWN)}: {file.KNOWN!r} must be a list of tables: write [[{file.KNOWN}]] before "
            "each finding"
        )
    entries = tuple(_entry(found.place(file.KNOWN, number), table) for number, table in enumerate(tables, start=1))
    return KnownFindings(entries, today or date.today())


def _entry(place: str, table: dict[str, Any]) -> Known:
    context = f"{place}: known finding"
    foreign = sorted(table.keys() - {*NEEDED, *OPTIONAL})
    if foreign:
        raise ConfigurationError(
            f"{context}: there is no key {foreign[0]!r}; there are {', '.join((*NEEDED, *OPTIONAL))}"
        )
    missing = [key for key in NEEDED if key not in table]
    if missing:
        raise ConfigurationError(f"{context}: {missing[0]!r} is missing")
    for key, value in table.items():
        if key == "expires":
            if type(value) is not date:
                raise ConfigurationError(
                    f"{context}: expires must be a date, such as 2027-01-31 without quotes; it is {value!r}"
                )
        elif not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{context}: {key} must be a text that is not empty; it is {value!r}")
    if not is_property(table["property"]):
        raise ConfigurationError(
            f"{context}: there is no property {table['property']!r}; there are {', '.join(MEANINGS)}"
        )
    return Known(**table)
