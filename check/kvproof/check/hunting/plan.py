"""The file of a campaign, in TOML: what is searched, and when the campaign ends.

    out = "build/campaign"                # folder of the results, relative to this file

    [limits]
    units = 10_000                        # of all searches together; none by default
    seconds = 28_800                      # of each start of the campaign; none by default

    [[search]]                            # subjects times releases times configurations times seeds times efforts
    subjects = ["vllm-v0"]
    releases = ["0.4.2", "0.5.4"]
    fix = [{ caching = true }, { caching = false }]
    seeds = [1, 2]
    efforts = ["quick"]
    priority = 1                          # searches with a larger one come first

The file chooses code, as a configuration does: run only a file that you trust.
"""

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.arguments import fixed_fields
from kvproof.check.runs.configuration import (
    ConfigurationError,
    FixedValue,
    Text,
    fix_options,
    in_folder,
    place_of,
    read_toml,
)
from kvproof.check.runs.effort import effort_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.number_limits import SEED_MAX

SEARCH, SEARCHES_MAX = "search", 10_000
Fixed = dict[str, FixedValue]


class LimitsTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """When a campaign ends before everything is searched."""

    units: Annotated[int, Meta(ge=1, description="Units of work of all searches together.")] | None = None
    seconds: Annotated[float, Meta(gt=0, description="Time limit of each start of the campaign.")] | None = None


class SearchTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Searches: one for each combination of the lists."""

    subjects: Annotated[list[Text], Meta(min_length=1, description="As --subject of `kvproof hunt` takes them.")]
    releases: Annotated[
        list[Text], Meta(description="Releases of each subject; none for the subjects as they are.")
    ] = []
    fix: Annotated[list[Fixed], Meta(min_length=1, description="Fields that every run of a search keeps.")] = (
        msgspec.field(default_factory=lambda: [{}])
    )
    seeds: Annotated[list[Annotated[int, Meta(ge=0, le=SEED_MAX)]], Meta(min_length=1, description="Seeds.")]
    efforts: Annotated[
        list[str | int], Meta(min_length=1, description="Each is quick, normal, long, or a number of operations.")
    ] = msgspec.field(default_factory=lambda: ["quick"])
    priority: Annotated[int, Meta(description="Searches with a larger priority come first.")] = 0


class CampaignFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of the file of a campaign."""

    out: Annotated[Text, Meta(description="Folder of the results, relative to this file.")] = "campaign"
    limits: LimitsTable = msgspec.field(default_factory=LimitsTable)
    search: Annotated[list[SearchTable], Meta(min_length=1, description="What is searched.")]


@dataclass(frozen=True)
class PlannedSearch:
    """One walk of a campaign: a subject with fixed fields, a seed, and how many operations it does."""

    subject: str
    fixed: dict[str, Any]
    seed: int
    effort: str
    operations: int
    priority: int = 0

    @property
    def key(self) -> str:
        """A text that is the same for equal searches."""
        return repr((self.subject, sorted(self.fixed.items()), self.seed, self.operations, self.effort, self.priority))

    @property
    def title(self) -> str:
        """How messages call the search."""
        fixed = ", ".join(f"{name}={value}" for name, value in self.fixed.items())
        return f"{self.subject}{f' ({fixed})' if fixed else ''}, seed {self.seed}, effort {self.effort}"


@dataclass(frozen=True)
class Plan:
    """A campaign as it was read. searches: without repetitions, those of a larger priority first."""

    folder: Path
    searches: list[PlannedSearch]
    units_max: int | None
    seconds: float | None


def read_plan(path: Path) -> Plan:
    """Read the file of a campaign. Raises DocumentError if it cannot be used; the message names the line."""
    text, found = read_toml(path)
    _require_known_keys(path, text, found)
    tables = found.get(SEARCH)
    for number, table in enumerate(tables if isinstance(tables, list) else [], start=1):
        _converted(path, text, table, SearchTable, f"{SEARCH}.", number)
    if "limits" in found:
        _converted(path, text, found["limits"], LimitsTable, "limits.", 1)
    file: CampaignFile = _converted(path, text, found, CampaignFile, "", 1)
    searches: list[PlannedSearch] = []
    for number, table in enumerate(file.search, start=1):
        try:
            searches += _searches(table, path.parent, SEARCHES_MAX - len(searches))
        except UsageError as error:
            place = _place(path, text, f"{SEARCH}.{error.option.partition('.')[0]}", number)
            raise ConfigurationError(f"{place}: {str(error).replace('--fix: ', 'fix: ')}") from error
    searches = list({one.key: one for one in searches}.values())
    searches.sort(key=lambda one: -one.priority)
    return Plan(path.parent / file.out, searches, file.limits.units, file.limits.seconds)


def _require_known_keys(path: Path, text: str, found: Any) -> None:
    for prefix, tables, kind in (
        ("", [found], CampaignFile),
        ("limits.", [found.get("limits", {})], LimitsTable),
        (f"{SEARCH}.", found.get(SEARCH, []), SearchTable),
    ):
        for number, table in enumerate(tables if isinstance(tables, list) else [], start=1):
            for key in table if isinstance(table, dict) else ():
                if key not in kind.__struct_fields__:
                    known = kind.__struct_fields__
                    raise ConfigurationError(
                        f"{_place(path, text, prefix + key, number)}: there is no key {prefix + key!r}"
                        f"{did_you_mean(key, known)}; the keys are {', '.join(known)}"
                    )


def _converted(path: Path, text: str, table: Any, kind: Any, prefix: str, number: int) -> Any:
    """The table as a value of this type. Raises ConfigurationError with the line of the key that is wrong."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        name = prefix + where.lstrip(".").partition("`")[0].partition("[")[0].partition(".")[0]
        name = name.rstrip(".")
        place = _place(path, text, name, number) if name else str(path)
        raise ConfigurationError(f"{place}: {f'{name}: ' if name else ''}{message}") from None


def _place(path: Path, text: str, name: str, number: int) -> str:
    """The file and line of a key, which is in table number so many of its name, if it is in a search."""
    table, _, key = name.rpartition(".")
    if SEARCH not in (table, name):
        return place_of(path, text, name)
    header = place_of(path, text, SEARCH, number)
    line = header.rpartition(":")[2]
    if not table or not line.isdigit():
        return header
    for offset, content in enumerate(text.splitlines()[int(line) :], start=1):
        if re.match(r"\s*\[\[?\s*[\w.]+\s*\]", content):
            break
        if re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", content):
            return f"{path}:{int(line) + offset}"
    return header


def _searches(table: SearchTable, folder: Path, num_max: int) -> list[PlannedSearch]:
    """The searches of one table, at most so many. Raises UsageError with the key as its option."""
    names = [in_folder(name, folder) for name in table.subjects]
    num = len(names) * len(table.fix) * len(table.seeds) * len(table.efforts) * max(1, len(table.releases))
    if num > num_max:
        raise UsageError(f"a campaign has at most {SEARCHES_MAX:,} searches; write several files", "subjects")
    configurations = [fixed_fields(fix_options(fixed)) for fixed in table.fix]
    if table.releases:
        names = [f"{name}=={release}" for name, release in product(names, table.releases)]
    found = []
    for name, fixed, seed, effort in product(names, configurations, table.seeds, table.efforts):
        try:
            chosen = effort_of(str(effort), None, name)
        except UsageError as error:
            raise UsageError(str(error).replace("--effort is", "an effort is"), "efforts") from error
        found.append(PlannedSearch(name, fixed, seed, chosen.name, chosen.operations, table.priority))
    return found


def schema_text() -> str:
    """The JSON schema of the file of a campaign, for editors and other tools."""
    (reference,), components = msgspec.json.schema_components([CampaignFile], ref_template="#/$defs/{name}")
    title = {"title": "A campaign of kvproof", "$schema": "https://json-schema.org/draft/2020-12/schema"}
    data = msgspec.json.encode(title | reference | {"$defs": components})
    return msgspec.json.format(data, indent=2).decode() + "\n"
