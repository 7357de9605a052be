"""Common to verify, explore, hunt, device and validate: run the stages, print the report, store the result."""

import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from kvproof.check.hosts.output import print_left_out
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.features import sizes_assumed
from kvproof.check.protocol.manager import Assumption, ManagerSubject
from kvproof.check.runs.effort import BY_BUDGET, Effort
from kvproof.check.runs.errors import fail
from kvproof.check.runs.history import add_to_history
from kvproof.check.runs.json_output import STANDARD_OUTPUT, write_document
from kvproof.check.runs.session import Session, Stage
from kvproof.check.runs.store import RESULT, Store, StoreError, fault_of_kvproof
from kvproof.check.runs.terminal import output, progress_on, say
from kvproof.check.subjects.loading.partial_import import installed_version
from kvproof.check.subjects.registry import outside_table
from kvproof.reports.baseline import BaselineComparison, read_baseline
from kvproof.reports.data_plane_result import DataPlane
from kvproof.reports.document import encode
from kvproof.reports.result import Result, Run
from kvproof.reports.terminal import print_report
from kvproof.spec.verdict import Exit


@dataclass
class RunOptions:
    """The options of a run, validated.

    seconds: its budget, None for no limit. effort: how much its searches do. assumptions, messages: for the report.
    baseline: the result of an earlier run, to compare with. history: the file to which the run adds itself.
    words: further options that decide what the run does, as they are typed. required: the judges that must check
    something.
    """

    command: str
    subject: str
    seed: int
    seconds: float | None
    folder: Path
    json: Path | None
    known: Path | None = None
    contract_fails: bool = False
    effort: Effort = BY_BUDGET
    assumptions: tuple[Assumption, ...] = ()
    messages: tuple[str, ...] = ()
    baseline: Path | None = None
    history: Path | None = None
    words: list[str] = field(default_factory=list)
    required: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.store = Store(self.folder)


def run_stages(
    options: RunOptions,
    stages: list[Stage],
    subject: ManagerSubject | None,
    stops_at_first: bool = False,
    data_plane: DataPlane | None = None,
    environment: Mapping[str, str] | None = None,
) -> Exit:
    """Run the stages, print the report and store the result. The stages fill `data_plane`.

    Raises StoreError if the first write fails. If a later write fails, the report is still printed, and the exit code
    is that of the failed write unless the run refutes.
    """
    console = output()
    assumed = list(options.assumptions)
    assumed += [*subject.assumptions, *sizes_assumed(capabilities_of(subject))] if subject else []
    assumed += [one for stage in stages for one in stage.assumptions]
    run = Run(version(), options.command, options.subject, options.seed, host() | dict(environment or {}), now())
    run.options, run.required = options.words, list(options.required)
    run.assumptions = [f"{one.name}: {one.sentence}" for one in assumed]
    outside = outside_table(options.subject)
    result = Result(run, messages=[*options.messages, *([outside] if outside else [])], data_plane=data_plane)
    run.effort, run.budget_seconds = options.effort.name, options.seconds
    limits = [f"effort {run.effort}"] if run.effort else []
    limits += [] if options.seconds is None else [f"budget {options.seconds:g} s"]
    bounds = ", ".join(limits) or "no time limit"
    seed = f"seed {run.seed}, " if run.has_seed else ""
    say(console, f"kvproof {run.version} {run.command}, subject {run.subject}, {seed}{bounds}")
    for one in options.assumptions:
        say(console, f"assumed: {one.sentence}")
    seconds = math.inf if options.seconds is None else options.seconds
    session = Session(result, options.store, stages, seconds, progress_on(console), stops_at_first)
    if options.baseline is not None:
        session.compare = BaselineComparison(str(options.baseline), read_baseline(options.baseline, options.subject))
    code = session.run()
    if code is Exit.USAGE and session.adapter_error:  # a table in which nothing is decided would bury the reason
        if options.json is not None:
            write_json(result, options.folder, options.json)
        raise fail(session.adapter_error, code)
    print_left_out()
    say(console, "")
    try:
        print_report(result, options.folder, console)
    except Exception as error:
        message = fault_of_kvproof("the printed report", error)
        say(console, f"kvproof: {message}; the result is in {options.folder / RESULT}")
        code = code if code is Exit.REFUTED else Exit.INTERNAL
    try:
        options.store.write_device_page(result)
        if options.json is not None:
            write_json(result, options.folder, options.json)
    except StoreError as error:
        say(console, f"kvproof: {error}")
        code = code if code is Exit.REFUTED else error.exit_code
    add_to_history(options.history, result, code, console)
    return code


def close(result: Result, json: Path | None, code: Exit, unwritten: StoreError | None = None) -> Exit:
    """Write the result document, if `json` names a file, and return the exit code of the run, which is `code`.

    Raises StoreError if that fails, or if an earlier write has failed; its exit code is 1 if the run refutes.
    """
    try:
        if json is not None:
            write_json(result, Path(), json)
    except StoreError as error:
        unwritten = error
    if unwritten is not None:
        raise StoreError(str(unwritten), code if code is Exit.REFUTED else unwritten.exit_code)
    return code


def version() -> str:
    return installed_version("kvproof") or "unknown"


def host() -> dict[str, str]:
    """Facts about this machine that may explain a result."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count() or 1),
    }


def now() -> str:
    """The current time in UTC, in the format of the reports."""
    return datetime.now(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def write_json(result: Result, folder: Path, json: Path) -> None:
    """Write the result document to `json`, with trace paths relative to that file. Raises StoreError."""
    here = Path() if json == STANDARD_OUTPUT else json.parent
    moved = [
        replace(check, trace=check.trace and os.path.relpath(folder / check.trace, here)) for check in result.checks
    ]
    write_document(json, encode(replace(result, checks=moved)))
