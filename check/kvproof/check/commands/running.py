"""The frame of verify, explore and hunt: settle what was asked, run the stages, print and store what was found."""

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from kvproof.check.commands.output import output, progress_on, say
from kvproof.check.session import Session, Stage
from kvproof.check.store import Store, StoreError, explained
from kvproof.check.subject import ManagerSubject
from kvproof.reports.document import write
from kvproof.reports.terminal import print_report
from kvproof.spec.verdict import Exit, Result, Run

STANDARD_OUTPUT = Path("-")


def run_stages(
    command: str,
    subject: str,
    seed: int,
    seconds: float,
    folder: Path,
    json: Path | None,
    make_stages: Callable[[Store], list[Stage]],
    assumptions: list[str],
) -> Exit:
    """Run the stages, store and print what they found. Raises StoreError."""
    is_json_wanted_alone = json == STANDARD_OUTPUT
    console = output(to_stderr=is_json_wanted_alone)
    if json is not None and not is_json_wanted_alone:
        _require_writable(json)
    store = Store(folder)
    run = Run(version(), command, subject, seed, host(), now(), assumptions=assumptions)
    result = Result(run)
    say(console, f"kvproof {run.version} {command}, subject {subject}, seed {seed}, budget {seconds:g} s")
    session = Session(result, store, make_stages(store), seconds, progress_on(console))
    code = session.run()
    if json is not None:
        _write_json(result, store, json)
    say(console, "")
    print_report(result, folder, console)
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


def assumptions_of(subject: ManagerSubject) -> list[str]:
    """What the judge keeps to because the subject demands it of its caller."""
    return [f"{assumption.name}: {assumption.sentence}" for assumption in subject.assumptions]


def _require_writable(json: Path) -> None:
    """Say now, and not after the run, that the document cannot be written there. Raises StoreError."""
    with explained(json):
        if json.is_dir():
            raise StoreError(f"{json} is a folder; --json needs a file, --out takes a folder", Exit.USAGE)
        json.parent.mkdir(parents=True, exist_ok=True)


def _write_json(result: Result, store: Store, json: Path) -> None:
    folder = Path.cwd() if json == STANDARD_OUTPUT else json.parent
    moved = replace(result, checks=[replace(check, trace=_seen_from(folder, store, check.trace)) for check in result.checks])
    with explained(json):
        write(Path("/dev/stdout") if json == STANDARD_OUTPUT else json, moved)


def _seen_from(folder: Path, store: Store, trace: str | None) -> str | None:
    return None if trace is None else os.path.relpath(store.folder / trace, folder)
