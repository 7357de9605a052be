"""Run the stages in order, each with a share of the budget, and write every result to disk as soon as it is known.

Each check that a stage plans is in the result document from the start, as `unknown`. If an interrupt, a fault of
kvproof or a kill ends the run, the undecided checks stay unknown and never look like success. If the disk becomes
full, the run reports it, goes on, and prints its findings.

The speed of a run is its operations per second of processor time: of this process, and of every process that it
started. The time on the clock also contains what other
programs of the machine used.
"""

import math
import os
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from kvproof.check.hosts.interrupt import interruptible
from kvproof.check.hosts.time_limit import GRACE_SECONDS, OutOfTime, calls_end_at
from kvproof.check.protocol.fault_attribution import lack_of
from kvproof.check.protocol.finding import AdapterError, OutsideTable
from kvproof.check.protocol.manager import Assumption
from kvproof.check.runs.code_reached import code_reached
from kvproof.check.runs.store import Store, StoreError, fault_of_kvproof
from kvproof.check.search.result import UNLIMITED, Lines, lines_of_both
from kvproof.check.subjects import UnknownSubject
from kvproof.reports.counterexample import REPEAT, FindingView
from kvproof.reports.printable import cut
from kvproof.reports.result import Check, Difference, Refusals, Result, WitnessCount
from kvproof.spec.verdict import Exit, Verdict

TASKS_MAX = 4096  # looked at; a subject may start processes without end

NOT_RUN = "not run"
BEYOND_SECONDS = 4.0  # after its budget, for a run to save what it has found
INTERRUPTED = "interrupted"


def processor_seconds() -> float:
    """The processor time in seconds so far, of this process, its ended children, and its living descendants.

    The living ones count only where there is /proc (Linux). Source: proc(5), /proc/pid/stat, values 14 to 17.
    """
    own = os.times()
    living = sum(_ticks_of(pid) for pid in _descendants())
    return own.user + own.system + own.children_user + own.children_system + living / os.sysconf("SC_CLK_TCK")


def _descendants() -> list[str]:
    """The ids of the living descendants of this process; none without /proc."""
    found: list[str] = []
    left = ["self"]
    while left and len(found) < TASKS_MAX:
        with suppress(OSError):  # the process has ended
            for task in Path("/proc", left.pop(), "task").iterdir():
                children = (task / "children").read_text().split()
                found += children
                left += children
    return found


def _ticks_of(pid: str) -> int:
    """What a process and its ended children have used, in ticks of the clock; 0 if it has ended."""
    with suppress(OSError, ValueError, IndexError):
        values = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()  # from the third value on
        return sum(int(value) for value in values[11:15])
    return 0


class Progress(Protocol):
    """Displays the progress of a run."""

    def begin(self, stage: str, seconds: float, total: int) -> None:
        """A stage begins. seconds: its budget. total: how many operations or cases it will do; 0 if not known."""

    def advance(self, count: int) -> None:
        """The stage has done `count` operations, states or cases so far."""

    def end(self) -> None:
        """The stage has ended."""

    def say(self, message: str) -> None:
        """Show a message that the user should read now."""


@dataclass
class StageBudget:
    """The seed and the time of a stage, and its progress callback. seconds: infinite in a run without a budget.

    run_ends: when the budget of the whole run is over, as a time of `time.monotonic`. notes: what the report says about
    the stage in addition to its checks.
    """

    seed: int
    seconds: float
    advance: Callable[[int], None]
    run_ends: float = math.inf
    stopped: str = ""  # what the time limit left undone; empty if it ended nothing
    notes: list[str] = field(default_factory=list)

    def within_the_run(self) -> AbstractContextManager[None]:
        """Within the block, work that has no time limit of its own raises OutOfTime soon after the end of the run."""
        return calls_end_at(self.run_ends + GRACE_SECONDS)

    def further(self, before: int) -> Callable[[int], None]:
        """The progress callback of a search that starts after others have done `before` units of work."""
        return lambda count: self.advance(before + count)

    def stopped_after(self, done: int, planned: int, unit: str) -> str:
        """Record that the time limit ended the work, and return the sentence about it."""
        of = f" of {planned:,}" if done < planned < UNLIMITED else ""
        self.stopped = f"stopped by --budget after {done:,}{of} {unit}"
        return self.stopped


@dataclass(frozen=True)
class RanLines:
    """The lines of the subject's code that ran in so many operations."""

    num_operations: int
    lines: Lines = field(compare=False)  # as in a `SearchResult`


StageOutput = Check | WitnessCount | Refusals | RanLines


@dataclass
class Stage:
    """One judge on one search.

    share: its weight when the remaining time is divided between this stage and the later ones. planned_checks: the
    checks that it will decide, as unknown, or as unsupported with the reason. run: yields each of them decided, by
    id. assumptions: what this stage assumes in addition to the subject's own assumptions. total: how many operations or
    cases it does at most; 0 if that is not known before.
    """

    name: str
    share: float
    planned_checks: list[Check]
    run: Callable[[StageBudget], Iterable[StageOutput]]
    assumptions: tuple[Assumption, ...] = ()
    total: int = 0


def left_out(judge: str, checks: list[Check], reason: str) -> Stage:
    """The stage of a judge that does not run: each of its checks is unsupported for this reason."""
    return Stage(judge, 0, [replace(check, verdict=Verdict.UNSUPPORTED, text=reason) for check in checks], lambda _: ())


@dataclass
class Session:
    """Runs the stages; collects their output in the result and writes it to the store."""

    result: Result
    store: Store
    stages: list[Stage]
    seconds: float
    progress: Progress
    stops_at_first: bool = False  # no stage runs after one that refutes
    compare: Callable[[Result], Difference | None] = lambda result: None  # with a baseline, when the run has ended
    adapter_error: str = field(default="", init=False)  # what ended the run, if the adapter is wrong
    _done: int = field(default=0, init=False)
    _ran: RanLines = field(default=RanLines(0, {}), init=False)
    _write_error: StoreError | None = field(default=None, init=False)  # of the last write, if it failed

    def run(self) -> Exit:
        """Run every stage and return the exit code of the run. Raises StoreError if the first write fails."""
        begin, processor_begin = time.monotonic(), processor_seconds()
        self.result.checks = [check for stage in self.stages for check in stage.planned_checks]
        self.store.open(self.result)
        code = None
        try:
            with interruptible(), calls_end_at(begin + self.seconds + BEYOND_SECONDS):
                code = self._run_stages(begin)
        except KeyboardInterrupt as error:
            code = Exit.INCONCLUSIVE
            for one in error.args:  # the check of a finding that was being shrunk or saved
                self._take(one)
            self._note(f"{INTERRUPTED}: the checks that were not decided are unknown")
        except AdapterError as error:
            code = Exit.USAGE
            is_own = not isinstance(error, OutsideTable)
            lead = f"the adapter of {self.result.run.subject} breaks the protocol: " if is_own else ""
            self.adapter_error = f"{lead}{error}"
            self.result.messages.append(self.adapter_error)
        except UnknownSubject as error:
            code = Exit.INCONCLUSIVE if error.is_busy else Exit.USAGE
            self.adapter_error = f"the subject could be made when the run began, and cannot any more: {error}"
            self.result.messages.append(self.adapter_error)
        self.result.run.is_complete = code is None
        self.result.run.seconds = round(time.monotonic() - begin, 3)
        self.result.run.processor_seconds = round(processor_seconds() - processor_begin, 3)
        self.result.difference = self.compare(self.result)
        self._write(self.store.write_all)
        found = self.result.exit_code()
        if code is None and self._write_error is not None:
            code = self._write_error.exit_code
        return found if code is None or found is Exit.REFUTED else code

    def _write(self, write: Callable[[Result], None]) -> None:
        """Write the result; on failure note the reason once, and go on."""
        try:
            write(self.result)
            self._write_error = None
        except Exception as error:
            known = error if isinstance(error, StoreError) else StoreError(fault_of_kvproof("a write", error))
            if self._write_error is None:
                self._note(str(known))
            self._write_error = known

    def _run_stages(self, begin: float) -> Exit | None:
        code, ends = None, begin + self.seconds
        for index, stage in enumerate(self.stages):
            if self.stops_at_first and any(check.is_failure for check in self.result.checks):
                break
            left = max(0.0, ends - time.monotonic())
            share = stage.share / (sum(later.share for later in self.stages[index:]) or 1.0)
            seconds = left * share if math.isfinite(left) else left
            try:
                title = f"{stage.name} ({index + 1} of {len(self.stages)})"
                self._run_stage(stage, StageBudget(self.result.run.seed, seconds, self._advance, ends), title)
            except (KeyboardInterrupt, AdapterError, UnknownSubject):
                raise
            except BaseException as error:  # a subject may even raise SystemExit
                code = Exit.INTERNAL
                self._report_fault(stage, error)
        return code

    def _run_stage(self, stage: Stage, budget: StageBudget, title: str) -> None:
        self._done = 0
        self.progress.begin(title, budget.seconds, stage.total)
        reason = f"{stage.name} did not finish"
        try:
            for output in stage.run(budget):
                self._take(output)
            reason = f"{stage.name} did not decide it"
        except OutOfTime:
            reason = budget.stopped = "stopped by --budget"
        except KeyboardInterrupt:
            reason = f"{INTERRUPTED} after {self._done:,}" if self._done else INTERRUPTED
            raise
        finally:
            for check in stage.planned_checks:
                if check.text == NOT_RUN and check.verdict is Verdict.UNKNOWN:
                    check.text = reason
            self.progress.end()
            notes = [budget.stopped, *budget.notes] if budget.stopped else budget.notes
            self.result.messages += [f"{stage.name}: {note}" for note in notes]
        self._write(self.store.write_all)

    def _advance(self, count: int) -> None:
        self._done = count
        self.progress.advance(count)

    def _take(self, output: StageOutput) -> None:
        if isinstance(output, WitnessCount):
            self.result.witnesses.append(output)
            return
        if isinstance(output, Refusals):
            self.result.refusals.append(output)
            return
        if isinstance(output, RanLines):
            self._ran = RanLines(
                self._ran.num_operations + output.num_operations, lines_of_both(self._ran.lines, output.lines)
            )
            self.result.code = code_reached(self._ran.lines, self._ran.num_operations, self.result.run.subject)
            return
        places = {check.id: index for index, check in enumerate(self.result.checks)}
        was_failure = output.id in places and self.result.checks[places[output.id]].is_failure
        if output.id in places:
            self.result.checks[places[output.id]] = output
        else:
            self.result.checks.append(output)
            self._drop_placeholder(output)
        if output.is_failure and not was_failure and not self._was_reported(output):
            self.progress.say(self._news(output))
        self._write(self.store.write_result)

    def _was_reported(self, check: Check) -> bool:
        """Whether the same fault was found before, in another scope or by another judge."""
        others = (one for one in self.result.checks if one.is_failure and one.id != check.id and check.signature)
        return any(check.identity.is_covered_by(one.identity) for one in others)

    def _news(self, check: Check) -> str:
        """What a finding that was just made says, and the command that repeats it."""
        path = None if check.trace is None else self.store.folder / check.trace
        repeat = FindingView(check, self.result.run.subject, path=path).replay
        first, *further = cut(f"refuted: {check.id}: {check.text}").splitlines()
        lines = [first, *(f"  {line}" for line in further), *([] if repeat is None else [f"  {REPEAT} {repeat}"])]
        return "\n".join(lines)

    def _drop_placeholder(self, finding: Check) -> None:
        """Drop the placeholder check of a property once it has checks for individual findings."""
        for check in self.result.checks:
            if finding.id.startswith(f"{check.id}/") and check.text == NOT_RUN:
                self.result.checks.remove(check)
                return

    def _report_fault(self, stage: Stage, error: BaseException) -> None:
        if lack_of(error):
            self._note(fault_of_kvproof(stage.name, error))
            return
        try:
            log = str(self.store.write_log("".join(traceback.format_exception(error))))
        except StoreError as unwritten:
            log = f"it ({unwritten})"
        self._note(f"{fault_of_kvproof(stage.name, error)}; please report {log}")

    def _note(self, message: str) -> None:
        self.result.messages.append(message)
        self.progress.say(message)
