"""The frame of verify, explore and hunt: settle what was asked, run the stages, print and store what was found."""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from kvproof.check.commands.output import output, progress_on, say
from kvproof.check.commands.saving import SHORTEN_SECONDS_MAX, SHORTEN_SECONDS_MIN, Saving
from kvproof.check.known import known_findings
from kvproof.check.session import Session, Stage
from kvproof.check.store import Store, StoreError, explained
from kvproof.check.subject import ManagerSubject
from kvproof.reports.document import encode, write
from kvproof.reports.terminal import print_report
from kvproof.spec.data_plane_report import DataPlane
from kvproof.spec.verdict import Exit, Result, Run

STANDARD_OUTPUT = Path("-")
WITHOUT_LIMIT_SECONDS = 1e9


@dataclass
class Request:
    """What the user asked for, settled. seconds: None for no limit."""

    command: str
    subject: str
    seed: int
    seconds: float | None
    folder: Path
    json: Path | None
    known: Path | None = None
    contract_fails: bool = False

    def saving(self, make: Callable[[], ManagerSubject]) -> Saving:
        """How counterexamples of this run are saved. Raises KnownFileError."""
        known = known_findings(self.known)
        seconds = SHORTEN_SECONDS_MAX
        if self.seconds is not None:
            seconds = min(seconds, max(SHORTEN_SECONDS_MIN, self.seconds / 2))
        return Saving(make, self.subject, self.seed, self.store, known, self.contract_fails, seconds)

    @property
    def store(self) -> Store:
        """The folder of the run."""
        return Store(self.folder)


def run_stages(
    request: Request,
    stages: list[Stage],
    subject: ManagerSubject | None,
    stops_at_first: bool = False,
    data_plane: DataPlane | None = None,
    environment: Mapping[str, str] | None = None,
) -> Exit:
    """Run the stages, store and print what they found; `data_plane` is filled by them. Raises StoreError."""
    console = output(to_stderr=request.json == STANDARD_OUTPUT)
    if request.json is not None and request.json != STANDARD_OUTPUT:
        require_writable(request.json)
    assumed = [*(subject.assumptions if subject else ()), *(one for stage in stages for one in stage.assumptions)]
    run = Run(version(), request.command, request.subject, request.seed, host() | dict(environment or {}), now())
    run.assumptions = [f"{one.name}: {one.sentence}" for one in assumed]
    result = Result(run, data_plane=data_plane)
    budget = "no time limit" if request.seconds is None else f"budget {request.seconds:g} s"
    say(console, f"kvproof {run.version} {run.command}, subject {run.subject}, seed {run.seed}, {budget}")
    seconds = WITHOUT_LIMIT_SECONDS if request.seconds is None else request.seconds
    code = Session(result, request.store, stages, seconds, progress_on(console), stops_at_first).run()
    request.store.write_device_page(result)
    if request.json is not None:
        write_json(result, request.folder, request.json)
    say(console, "")
    print_report(result, request.folder, console)
    return code


def version() -> str:
    """The release of kvproof that runs."""
    try:
        return metadata.version("kvproof")
    except metadata.PackageNotFoundError:
        return "unknown"


def host() -> dict[str, str]:
    """What of this machine may explain a result."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count() or 1),
    }


def now() -> str:
    """The time, as a report writes it."""
    return datetime.now(timezone.utc).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def require_writable(json: Path) -> None:
    """Say now, and not after the run, that the document cannot be written there. Raises StoreError."""
    with explained(json):
        if json.is_dir():
            raise StoreError(f"{json} is a folder; --json needs a file, --out takes a folder", Exit.USAGE)
        json.parent.mkdir(parents=True, exist_ok=True)


def write_json(result: Result, folder: Path, json: Path) -> None:
    """The same document, its traces named as seen from where it lies."""
    here = Path() if json == STANDARD_OUTPUT else json.parent
    moved = [
        replace(check, trace=check.trace and os.path.relpath(folder / check.trace, here)) for check in result.checks
    ]
    document = replace(result, checks=moved)
    if json == STANDARD_OUTPUT:
        sys.stdout.buffer.write(encode(document))
        sys.stdout.flush()
        return
    with explained(json):
        write(json, document)
