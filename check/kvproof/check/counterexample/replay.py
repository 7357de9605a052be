"""Replay a counterexample on a subject: it still fails, it is fixed, or it cannot be replayed.

The replay is done twice, so that a subject that does not repeat itself is not taken for one that is fixed.
"""

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from kvproof.check.counterexample.steps import steps_of
from kvproof.check.counterexample.store import Factory, refutation
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.oracle.replay import ReplayResult, nondeterministic, replay_twice
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.spec.trace import Operation, Trace


class ReplayStatus(Enum):
    """The outcome of a replay."""

    FIXED = "FIXED"  # nothing is refuted any more
    FAILED = "FAILED"  # something still is
    ERROR = "ERROR"  # it could not be replayed

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Replay:
    """The outcome of a replay. `text` is one line, for a failure followed by the whole refutation."""

    status: ReplayStatus
    text: str
    finding: Finding | None = None
    is_misnamed: bool = False  # an error because the file is no counterexample, or no subject has the name


def replay_trace(path: Path, trace: Trace, make: Factory, name: str) -> Replay:
    """Replay the trace of a file on a subject of this name. Raises CounterexampleError, Unsupported, AdapterError."""
    config, operations = config_of(trace, path), operations_of(trace, path)
    done, parted = replay_twice(make, config, operations)
    finding = done.finding if parted is None else nondeterministic(parted)
    if finding is None and not done.num_enabled:
        text = f"none of the {len(operations)} operations is possible: nothing was replayed"
        return Replay(ReplayStatus.ERROR, text)
    if finding is None:
        num_skipped = len(operations) - done.num_enabled
        count = f"{done.num_enabled} operations" + (f" ({num_skipped} were not possible)" if num_skipped else "")
        return Replay(ReplayStatus.FIXED, f"{trace.property} holds: {count}, and nothing is refuted")
    if finding.property == trace.property:
        verdict = f"{trace.property} is still refuted"
    else:
        verdict = f"{trace.property} was refuted when the trace was saved; now it is {finding.property}"
    again = _refuted_again(trace, name, config, operations, done, finding)
    return Replay(ReplayStatus.FAILED, f"{verdict}\n{refutation(again, path)}", finding)


def _refuted_again(
    trace: Trace, name: str, config: Config, operations: list[Operation], done: ReplayResult, finding: Finding
) -> Trace:
    """The trace as it goes on this subject, up to the operation that refutes."""
    length = len(done.steps)
    return replace(
        trace,
        subject=name,
        property=finding.property,
        text=finding.text,
        operations=trace.operations[:length],
        steps=steps_of(done, config, operations[:length]),
    )
