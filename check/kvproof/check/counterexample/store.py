"""Crash files: a counterexample as a file that anyone can run again, and a regression test beside it.

A file is strict JSON, read back with the same care as it was written: what is broken, foreign or of a newer release is
refused with one message. Replaying is done twice, so that a subject that does not repeat is told apart from one that
is mended.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib import metadata
from pathlib import Path

import msgspec

from kvproof.check.counterexample.frames import replay_frames
from kvproof.check.counterexample.regression_test import path_of_test, regression_test
from kvproof.check.counterexample.steps import describe_steps, steps_of
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.isolation.factory import factory_for
from kvproof.check.oracle.replay import USUAL_CAUSES, ReplayResult, confirm, difference, nondeterministic, repeat
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Config, ManagerSubject, Unsupported
from kvproof.check.subjects.registry import UnknownSubject
from kvproof.reports.atomic import write_atomically
from kvproof.reports.counterexample import Counterexample, page_of
from kvproof.reports.counterexample_page import counterexample_page
from kvproof.reports.document import DocumentError, encode, read, write
from kvproof.reports.result import Check
from kvproof.spec.text.properties import SENTENCES
from kvproof.spec.trace import Operation, Trace
from kvproof.spec.verdict import Verdict

__all__ = [
    "USUAL_CAUSES",
    "CounterexampleError",
    "Replay",
    "ReplayStatus",
    "assert_fixed",
    "confirm",
    "draw",
    "load",
    "make_trace",
    "redraw",
    "refutation",
    "replay",
    "save",
]

HEX_MIN, HEX_MAX = 4, 8
Factory = Callable[[], ManagerSubject]


# Writing ----------------------------------------------------------------------------------------------------------


def make_trace(
    subject: str,
    finding: Finding,
    config: Config,
    operations: Sequence[Operation],
    judge: str,
    seed: int,
    *,
    make: Factory,
    num_operations_before: int = 0,
) -> Trace:
    """The counterexample as data. `make` gives the subject that the steps are told from."""
    shown = {"block_size": config.block_size, "num_gpu_blocks": config.num_gpu_blocks} | config.as_dict()
    listed = msgspec.json.decode(msgspec.json.encode(operations))
    steps = describe_steps(make, config, operations, finding)
    return Trace(
        subject,
        finding.property,
        finding.text,
        msgspec.to_builtins(shown),
        listed,
        judge,
        seed,
        num_operations_before,
        steps,
        _version(),
    )


def _version() -> str:
    try:
        return metadata.version("kvproof")
    except metadata.PackageNotFoundError:
        return ""


def save(folder: Path, trace: Trace, make: Factory | None = None, finding: Finding | None = None) -> Path:
    """Write the trace and its regression test; the path of the trace. Raises OSError.

    The name says what broke and is made from the content: the same counterexample found again is the same file. Where
    `make` gives the subject, the trace is replayed on it for a page besides; `finding` is what it then finds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = _path_for(folder, trace)
    write(path, trace)
    test = regression_test(trace, path, refutation(trace))
    write_atomically(path_of_test(path), test.encode())
    if make is not None:
        draw(path, trace, make, finding)
    return path


def draw(path: Path, trace: Trace, make: Factory, finding: Finding | None = None) -> Path:
    """Replay the trace for its page, and write that beside it; the path of the page. Raises OSError."""
    page = counterexample_page(_counterexample(trace, path), replay_frames(make, trace, path, finding))
    write_atomically(page_of(path), page.encode("utf-8", "backslashreplace"))
    return page_of(path)


def _path_for(folder: Path, trace: Trace) -> Path:
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in trace.property) or "unnamed"
    digits = hashlib.sha256(_content(trace)).hexdigest()
    for length in range(HEX_MIN, HEX_MAX):
        path = folder / f"{name}-{digits[:length]}.json"
        if not path.exists() or _holds(path, trace):
            return path
    return folder / f"{name}-{digits[:HEX_MAX]}.json"


def _content(trace: Trace) -> bytes:
    """What makes it this counterexample and no other: not who found it, and not how it is told."""
    return encode(Trace(trace.subject, trace.property, "", trace.config, trace.operations))


def _holds(path: Path, trace: Trace) -> bool:
    try:
        return _content(load(path)) == _content(trace)
    except CounterexampleError:
        return False


def refutation(trace: Trace, path: Path | None = None) -> str:
    """The counterexample as text, in the order of every report."""
    return _counterexample(trace, path).text()


def _counterexample(trace: Trace, path: Path | None) -> Counterexample:
    check = Check("", trace.judge or "replay", trace.property, Verdict.REFUTED, text=trace.text)
    return Counterexample(check, trace.subject, trace, path)


# Reading ----------------------------------------------------------------------------------------------------------


def load(path: Path) -> Trace:
    """Read a crash file. Raises CounterexampleError."""
    try:
        trace = read(path, Trace)
    except DocumentError as error:
        raise CounterexampleError(str(error)) from None
    if trace.property not in SENTENCES:
        raise CounterexampleError(f"{path} is not a trace of kvproof: there is no property {trace.property!r}")
    config_of(trace, path)
    operations_of(trace, path)
    return trace


class ReplayStatus(Enum):
    """What a replay says."""

    FIXED = "FIXED"  # nothing is refuted any more
    FAILED = "FAILED"  # something still is
    ERROR = "ERROR"  # it could not be replayed

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Replay:
    """What a replay says. `text` is one line, for a failure followed by the whole refutation."""

    status: ReplayStatus
    text: str
    finding: Finding | None = None
    is_misnamed: bool = False  # an error because the file is no crash file, or nothing goes by the subject's name


def replay(path: Path, subject: str | Factory | None = None, isolation: bool | None = None) -> Replay:
    """Run a crash file again, on its own subject or on another one, by name or by what makes it.

    isolation: whether a subject named lives in a process of its own; None for what is not ours.
    """
    try:
        trace = load(path)
        make = _factory(subject if subject is not None else _found_from(path, trace.subject), isolation)
        return _replayed(path, trace, make, subject if isinstance(subject, str) else trace.subject)
    except (CounterexampleError, UnknownSubject) as error:
        return Replay(ReplayStatus.ERROR, str(error), is_misnamed=True)
    except AdapterError as error:
        return Replay(ReplayStatus.ERROR, f"the adapter breaks the protocol: {error}")
    except Unsupported as error:
        return Replay(ReplayStatus.ERROR, f"the subject refuses the configuration of the trace: {error}")
    except AssertionError as error:
        return Replay(ReplayStatus.ERROR, f"a fault of kvproof, not of the subject: {error}")


def redraw(path: Path, subject: str | None = None, isolation: bool | None = None) -> Path:
    """Draw the page of a crash file anew, of its own subject or of another one. Raises CounterexampleError, OSError."""
    trace = load(path)
    name = subject or trace.subject
    make = _factory(subject if subject is not None else _found_from(path, name), isolation)
    return draw(path, replace(trace, subject=name), make)


def _factory(subject: str | Factory, isolation: bool | None) -> Factory:
    return factory_for(subject, isolation) if isinstance(subject, str) else subject


def _found_from(path: Path, subject: str) -> str:
    """`path/to/file.py:factory` is meant from the working folder, or else from a folder above the crash file."""
    file, separator, factory = subject.rpartition(":")
    if separator and file.endswith(".py") and not Path(file).exists():
        for folder in path.resolve().parents:
            if (folder / file).is_file():
                return f"{folder / file}:{factory}"
    return subject


def _replayed(path: Path, trace: Trace, make: Factory, name: str) -> Replay:
    config, operations = config_of(trace, path), operations_of(trace, path)
    first, second = repeat(make, config, operations), repeat(make, config, operations)
    parted = difference(first, second)
    finding = first.finding if parted is None else nondeterministic(parted)
    if finding is None:
        if not first.num_enabled:
            return Replay(
                ReplayStatus.ERROR, f"none of the {len(operations)} operations is possible: nothing was replayed"
            )
        left_out = len(operations) - first.num_enabled
        done = f"{first.num_enabled} operations" + (f" ({left_out} were not possible)" if left_out else "")
        return Replay(ReplayStatus.FIXED, f"{trace.property} holds: {done}, and nothing is refuted")
    verdict = _against(trace, finding)
    return Replay(
        ReplayStatus.FAILED, f"{verdict}\n{_told(path, trace, name, config, operations, first, finding)}", finding
    )


def _against(trace: Trace, finding: Finding) -> str:
    if finding.property == trace.property:
        return f"{trace.property} is still refuted"
    return f"{trace.property} was refuted when the trace was saved; now it is {finding.property}"


def _told(
    path: Path,
    trace: Trace,
    name: str,
    config: Config,
    operations: list[Operation],
    done: ReplayResult,
    finding: Finding,
) -> str:
    length = len(done.steps)
    told = replace(
        trace,
        subject=name,
        property=finding.property,
        text=finding.text,
        operations=trace.operations[:length],
        steps=steps_of(done, config, operations[:length]),
    )
    return refutation(told, path)


def assert_fixed(path: Path, subject: str | Factory | None = None) -> None:
    """Raise AssertionError with the refutation unless it is mended; CounterexampleError if it cannot be replayed."""
    __tracebackhide__ = True
    done = replay(path, subject)
    if done.status is ReplayStatus.FAILED:
        raise AssertionError(done.text)
    if done.status is ReplayStatus.ERROR:
        raise CounterexampleError(done.text)
