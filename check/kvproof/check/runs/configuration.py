"""The configuration of a repository: `kvproof.toml`, or the table `[tool.kvproof]` of `pyproject.toml`.

    subject = "tests/adapter.py:Adapter"        # what `kvproof verify` and `kvproof hunt` judge
    effort = "quick"
    seed = 7
    out = "build/kvproof"
    trusted_subjects = ["tests/adapter.py:*"]   # code that a trace may name, see `runs/replay.py`

    [fix]                                       # fields that every run of a hunt keeps, as --fix
    caching = false

    [[known]]                                   # findings that do not fail a run, see `runs/known_findings.py`
    ...

The command line wins over the file. Paths in the file are relative to its folder.

The file is looked for in the working folder, and, in a repository, in each folder above it up to the root of the
repository, which is the folder that holds `.git`; the nearest one counts. In one folder `kvproof.toml` wins. Outside of
a repository only the working folder is looked at. A configuration chooses code (`subject`, `trusted_subjects`), so a
file in a folder above the repository, where anybody may write, is never read. Anybody can also make such a folder look
like a repository. So a file above the working folder is an error if it belongs neither to the user nor to root.

An unknown key is an error, because it would have no effect.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kvproof.check.runs.number_limits import BUDGET_SECONDS_MAX, BUDGET_SECONDS_MIN, SEED_MAX
from kvproof.reports.document import DocumentError, read_bytes
from kvproof.reports.source import repository_root

FILE, PROJECT = Path("kvproof.toml"), Path("pyproject.toml")
TABLE = "tool.kvproof"  # of a pyproject.toml
KNOWN, TRUSTED = "known", "trusted_subjects"
BYTES_MAX = 1 << 20
DOTS_MAX = 2_000_000  # the sum of the squares of the dots in a line: so grow the time and the memory for dotted keys
TABLES_MAX = 60_000  # tables and dots together; each can take a kilobyte while the file is read
ROOT = 0  # the user who may write everywhere

Text = Annotated[str, Meta(pattern=r"\S")]
FixedValue = bool | int | float | str | list[str]


class ConfigurationError(DocumentError):
    """The configuration file cannot be used; the message says why."""


class KnownFinding(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A finding that does not fail a run until a date."""

    property: Annotated[Text, Meta(description="The id of the property that is refuted.")]
    reason: Annotated[Text, Meta(description="Why it is no failure; reports print it.")]
    expires: Annotated[date, Meta(description="The last day on which it is no failure.")]
    signature: Annotated[Text, Meta(description="As a report prints it; * and ? stand for any characters.")] = "*"
    subject: Annotated[Text, Meta(description="The subject; * and ? stand for any characters.")] = "*"


class Configuration(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of `kvproof.toml` and of `[tool.kvproof]`."""

    subject: (
        Annotated[
            Text, Meta(description="A name of `kvproof subjects`, or file.py:factory, module:factory or pipe:command.")
        ]
        | UnsetType
    ) = UNSET
    effort: (
        Annotated[str | int, Meta(description="How much a run does: quick, normal, long, or a number of operations.")]
        | UnsetType
    ) = UNSET
    judges: (
        Annotated[list[Text], Meta(description="Judges of `verify`, such as explorer and walker; default: all.")]
        | UnsetType
    ) = UNSET
    require: (
        Annotated[list[Text], Meta(description="Judges of `verify` that must check something; default: none.")]
        | UnsetType
    ) = UNSET
    baseline: (
        Annotated[Text, Meta(description="Earlier result, relative to this file, that no run may be worse than.")]
        | UnsetType
    ) = UNSET
    budget: (
        Annotated[
            float, Meta(ge=BUDGET_SECONDS_MIN, le=BUDGET_SECONDS_MAX, description="Time limit of a run, in seconds.")
        ]
        | UnsetType
    ) = UNSET
    seed: (
        Annotated[int, Meta(ge=0, le=SEED_MAX, description="Seed of a run; drawn at random by default.")] | UnsetType
    ) = UNSET
    fix: (
        Annotated[dict[str, FixedValue], Meta(description="Fields of the configuration that every run keeps.")]
        | UnsetType
    ) = UNSET
    out: Annotated[Text, Meta(description="Folder for the result, relative to this file.")] | UnsetType = UNSET
    history: (
        Annotated[Text, Meta(description="File, relative to this file, to which every run adds itself.")] | UnsetType
    ) = UNSET
    known: (
        Annotated[list[KnownFinding], Meta(description="Findings that do not fail a run, each until a date.")]
        | UnsetType
    ) = UNSET
    trusted_subjects: (
        Annotated[list[Text], Meta(description="Code that a trace may name; * and ? stand for any characters.")]
        | UnsetType
    ) = UNSET


KEYS = Configuration.__struct_fields__
PATHS = ("out", "baseline", "history")  # keys whose value is a path


@dataclass(frozen=True)
class ConfigurationFile:
    """A configuration that was read. values: its keys, all of which exist; [[known]] is not checked further."""

    path: Path
    values: dict[str, Any]
    text: str

    @property
    def folder(self) -> Path:
        """The folder to which the paths in the file are relative."""
        return self.path.parent

    def place(self, key: str, position: int = 1) -> str:
        """The file and the line of a key, such as `kvproof.toml:3`, as `place_of` finds it."""
        return place_of(self.path, self.text, key, position)

    @cached_property
    def options(self) -> dict[str, Any]:
        """The keys that are options of commands, as values of these options. Raises ConfigurationError."""
        plain = {key: value for key, value in self.values.items() if key not in (KNOWN, TRUSTED)}
        for key, value in plain.items():
            try:
                msgspec.convert({key: value}, Configuration)
            except msgspec.ValidationError as error:
                message = str(error).partition(" - at")[0]
                meaning = schema()["$defs"][Configuration.__name__]["properties"][key]["description"]
                raise ConfigurationError(f"{self.place(key)}: {key}: {message}. {meaning}") from None
        for key in plain.keys() & set(PATHS):
            plain[key] = str(self.folder / plain[key])
        if "effort" in plain:
            plain["effort"] = str(plain["effort"])
        if "subject" in plain:
            plain["subject"] = in_folder(plain["subject"], self.folder)
        if "fix" in plain:
            plain["fix"] = fix_options(plain["fix"])
        return plain


def in_folder(name: str, *folders: Path) -> str:
    """The name of a subject, with the path of its Python file taken from the first of the folders that has it."""
    file, separator, factory = name.rpartition(":")
    if separator and file.endswith(".py"):
        for folder in folders:
            if (folder / file).is_file():
                return f"{folder / file}:{factory}"
    return name


def fix_options(fixed: dict[str, FixedValue]) -> list[str]:
    """Fixed fields as --fix takes them."""
    return [f"{name}={_as_text(value)}" for name, value in fixed.items()]


def _as_text(value: FixedValue) -> str:
    """A fixed value as --fix takes it."""
    return ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def place_of(path: Path, text: str, key: str, position: int = 1) -> str:
    """The file and the line of a key of the configuration, or of the table in which it is; else only the file.

    key: a top-level one, or one of a table in it, as `fix.caching`. position: of several tables [[key]], which one.
    """
    base, header = (TABLE, "") if path.name == PROJECT.name else ("", "")
    whole = f"{base}.{key}".lstrip(".")
    for number, line in enumerate(text.splitlines(), start=1):
        if found := re.match(r"\[{1,2}([\w.\"' \t-]+)\]{1,2}\s*(?:#|$)", line.strip()):
            header = "".join(found[1].split())
            position -= header == whole
        elif found := re.match(r"""\s*["']?([\w-]+)["']?\s*[=.]""", line):
            position -= f"{header}.{found[1]}".lstrip(".") == whole
        if position == 0:
            return f"{path}:{number}"
    table, dot, _ = key.rpartition(".")
    return place_of(path, text, table) if dot else str(path)


# Reading ----------------------------------------------------------------------------------------------------------


def read_toml(path: Path) -> tuple[str, Any]:
    """The text of a TOML file that anybody may have written, and what it says. Raises DocumentError."""
    data = read_bytes(path, BYTES_MAX)
    try:
        text = data.decode("utf-8")
        lines = text.split("\n")
        dots = [line.count(".") for line in lines]
        if sum(number**2 for number in dots) > DOTS_MAX:
            place = f"{path}:{dots.index(max(dots)) + 1}"
            raise ConfigurationError(f"{place}: there are too many dots for the keys of TOML")
        if sum(dots) + sum(line.lstrip().startswith("[") for line in lines) > TABLES_MAX:
            raise ConfigurationError(f"{path} has more than {TABLES_MAX:,} tables and dots")
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: what is not TOML, not UTF-8, or a number too long
        raise ConfigurationError(f"{path} is not TOML: {error}") from error


def read_configuration(path: Path) -> ConfigurationFile:
    """Read a file, of whose keys only the names are checked. Raises DocumentError, or its ConfigurationError."""
    text, found = read_toml(path)
    if path.name == PROJECT.name:
        tools = found.get("tool", {})
        found = tools.get("kvproof", {}) if isinstance(tools, dict) else {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: {TABLE} must be a table")
    for key in found:
        if key not in KEYS:
            from kvproof.check.protocol.suggestion import did_you_mean

            suggestion = did_you_mean(key, KEYS)
            raise ConfigurationError(
                f"{place_of(path, text, key)}: there is no key {key!r}{suggestion}; the keys are {', '.join(KEYS)}"
            )
    return ConfigurationFile(path, found, text)


def find_configuration(folder: Path = Path()) -> ConfigurationFile | None:
    """The configuration in force in a folder; None if there is none. Raises DocumentError."""
    for place in _places(folder):
        found, project = None, place / PROJECT
        if (place / FILE).exists():
            found = read_configuration(place / FILE)
        elif project.is_file() and b"kvproof" in read_bytes(project, BYTES_MAX):
            found = read_configuration(project)
            if not found.values:
                found = None
        if found is not None:
            if place != folder:
                _require_own(found.path)
            return found
    return None


def _require_own(path: Path) -> None:
    """Raise ConfigurationError if the file, or the link to it, belongs to a user who is neither this one nor root."""
    if hasattr(os, "getuid") and path.lstat().st_uid not in (ROOT, os.getuid()):
        raise ConfigurationError(
            f"{path} belongs to another user, and a configuration chooses code; run kvproof in the folder "
            f"{path.parent} if you trust it"
        )


def _places(folder: Path) -> Iterator[Path]:
    """The folder, and those above it in its repository, nearest first."""
    yield folder
    whole, root = folder.resolve(), repository_root(folder)
    for number, place in enumerate(() if root is None or root == whole else whole.parents, start=1):
        yield place if folder.is_absolute() else folder / Path(*[os.pardir] * number)
        if place == root:
            return


def trusted_subjects(found: ConfigurationFile | None) -> tuple[str, ...]:
    """The patterns under `trusted_subjects`. Raises ConfigurationError."""
    patterns = [] if found is None else found.values.get(TRUSTED, [])
    if not isinstance(patterns, list) or not all(isinstance(one, str) and one for one in patterns):
        where = "" if found is None else f"{found.place(TRUSTED)}: "
        raise ConfigurationError(f'{where}{TRUSTED} must be a list of texts, such as ["tests/adapter.py:*"]')
    return tuple(patterns)


# The published schema ---------------------------------------------------------------------------------------------

SCHEMA_FILE = Path(__file__).with_name("configuration.schema.json")


def schema() -> dict[str, Any]:
    """The JSON schema of the configuration, for editors and other tools."""
    (reference,), components = msgspec.json.schema_components([Configuration], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of kvproof: kvproof.toml, or [tool.kvproof] of pyproject.toml",
        **reference,
        "$defs": components,
    }


def schema_text() -> str:
    """The content of the published schema file."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
