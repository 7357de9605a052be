"""Runs of a fixed number of operations over many subjects, one result folder for each, so that a campaign can go on
where it was interrupted.

A folder holds the result document of a hunt by random walk that goes on after a finding. `host` of its run has the
features that the adapter does not drive, as `lacks`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.isolation.factory import factory_for
from kvproof.check.oracle.level import level_of
from kvproof.check.protocol import features
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.runs.run import host, now, version
from kvproof.check.runs.session import INTERRUPTED, Session
from kvproof.check.runs.store import RESULT, Store
from kvproof.check.subjects import SubjectNotReady, UnknownSubject
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.registry import ROWS, Row
from kvproof.reports.document import read
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Verdict

SECONDS_MAX = 900.0  # for one subject
SHRINK_SECONDS = 2.0  # for one finding: here it is counted, not read
NOT_DRIVEN = "not driven: "  # how a message begins that says why a subject did not run


class Silent:
    """Shows no progress."""

    def begin(self, stage: str, seconds: float, total: int) -> None: ...
    def advance(self, count: int) -> None: ...
    def end(self) -> None: ...
    def say(self, message: str) -> None: ...


def folder_of(root: Path, subject: str) -> Path:
    """The result folder of a subject; its name has no character that a file system may refuse."""
    return root / re.sub(r"[^\w.=-]+", "-", subject).strip("-")


def earlier(folder: Path) -> Result | None:
    """The complete result of an earlier campaign, if the folder has one."""
    path = folder / RESULT
    result = read(path, Result) if path.is_file() else None
    return result if result is not None and result.run.is_complete else None


def drive(subject: str, operations: int, seed: int, folder: Path, fixed: dict[str, Any] | None = None) -> Result:
    """Walk so many operations on a subject, after every finding too. A release that is not here is downloaded.

    fixed: fields of the configuration that every run keeps.

    The result of a subject that cannot be made has no check, and a message that says why. One that was only not ready
    in time is tried again by the next campaign in the folder.
    """
    run = Run(version(), "campaign", subject, seed, host(), now())
    result, store, is_settled = Result(run), Store(folder), True
    try:
        _bring(subject)
        make = factory_for(subject)
        with ExitStack() as closing:
            if (close := getattr(make, "close", None)) is not None:
                closing.callback(close)
            one = make()
            run.host["level"], run.host["lacks"] = level_of(one).name, ", ".join(lacking(capabilities_of(one)))
            saving = Saving(make, subject, seed, store, seconds=SHRINK_SECONDS, fixed=fixed or {})
            stage = walker_stage(one, saving, 100.0, saving.walk(operations), keeps_going=True)
            Session(result, store, [stage], SECONDS_MAX, Silent()).run()
    except (UnknownSubject, EngineError) as error:
        result.messages.append(f"{NOT_DRIVEN}{error}")
        store.open(result)
        is_settled = not isinstance(error, SubjectNotReady)
    if not run.is_complete and any(message.startswith(INTERRUPTED) for message in result.messages):
        raise KeyboardInterrupt
    run.is_complete = is_settled  # a fault of kvproof is a result here: the campaign goes on with the next subject
    store.write_all(result)
    return result


def _bring(subject: str) -> None:
    row, release = row_of(subject)
    if row.engine and release:
        download.add(f"{row.engine}=={release}")


def row_of(subject: str) -> tuple[Row, str]:
    """The row of a subject, and its release or path; empty if it has none."""
    name, _, release = subject.partition("==")
    return next(row for row in ROWS if row.name == name), release


def lacking(can: Capabilities) -> list[str]:
    """The features that a subject with these capabilities does not have, as a message calls them."""
    return [feature.phrase for feature in features.in_config_order() if not feature.can_be_had(can)]


def releases_of(row: Row) -> list[str]:
    """The releases that the row claims, oldest first, of those that the package index has. Raises EngineError."""
    if row.releases is None:
        return []
    first, last = map(download.order_of, row.releases)
    return [v for v in reversed(on_index(row.engine)) if first <= download.order_of(v) <= last]


_on_index: dict[str, list[str]] = {}


def on_index(package: str) -> list[str]:
    """The releases that the package index has, newest first. Raises EngineError."""
    if package not in _on_index:
        command = [sys.executable, "-m", "pip", "index", "versions", package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = re.search(r"^Available versions: (.*)$", done.stdout, flags=re.MULTILINE)
        if found is None:
            raise EngineError(f"the package index did not list the releases of {package}: {done.stderr.strip()[-200:]}")
        _on_index[package] = found[1].split(", ")
    return _on_index[package]


# What a result says -----------------------------------------------------------------------------------------------


def num_operations(result: Result) -> int:
    """The operations of the walk."""
    return max((check.counts.get("operations", 0) for check in result.checks), default=0)


def findings(result: Result) -> list[Check]:
    """The findings, in the order of their properties, each identity once; notes are none."""
    found = {(check.property, check.signature): check for check in result.checks if check.verdict is Verdict.REFUTED}
    return [found[key] for key in sorted(found)]


def fault(result: Result) -> str:
    """Why the subject was not driven, or not to the end, by a fault of kvproof; empty if it was."""
    return "; ".join(result.messages)
