"""A run: stages one after the other, each with its part of the time, everything found stored at once.

Every check that a stage will speak of is in the document from the beginning, as `unknown`. Whatever happens then (an
interrupt, a fault of ours, a kill), what was not decided stays unknown, and never looks like success. A disk that is
full on the way is said, and the run goes on: what it finds is still told.
"""

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption
from kvproof.check.runs.store import Store, StoreError
from kvproof.reports.result import Check, Result, WitnessCount
from kvproof.spec.verdict import Exit, Verdict

NOT_RUN = "not run"


class Progress(Protocol):
    """Who is told how far the run is."""

    def begin(self, stage: str, seconds: float) -> None:
        """A stage begins that may take so long."""

    def advance(self, count: int) -> None:
        """The stage has done so much so far."""

    def end(self) -> None:
        """The stage is over."""

    def say(self, message: str) -> None:
        """Something that the user should read now."""


@dataclass
class StageBudget:
    """What a stage is given."""

    seed: int
    seconds: float
    advance: Callable[[int], None]

    def further(self, before: int) -> Callable[[int], None]:
        """Progress of one search after others that have done so much."""
        return lambda count: self.advance(before + count)


StageOutput = Check | WitnessCount


@dataclass
class Stage:
    """One judge on one search.

    share: its part of the time that is left, against the shares of the stages after it. promised: the checks it will
    speak of, undecided, or unsupported for a reason that is known before. run: yields them decided, by id.
    assumptions: what it takes for granted besides what the subject demands.
    """

    name: str
    share: float
    planned_checks: list[Check]
    run: Callable[[StageBudget], Iterable[StageOutput]]
    assumptions: tuple[Assumption, ...] = ()


@dataclass
class Session:
    """Runs stages into a result and its store."""

    result: Result
    store: Store
    stages: list[Stage]
    seconds: float
    progress: Progress
    stops_at_first: bool = False  # a stage that refutes is the last one
    _done: int = field(default=0, init=False)
    _unkept: StoreError | None = field(default=None, init=False)  # why the last write failed

    def run(self) -> Exit:
        """Run every stage; the exit code of the run. Raises StoreError if nothing can be stored from the beginning."""
        begin = time.monotonic()
        self.result.checks = [check for stage in self.stages for check in stage.planned_checks]
        self.store.open(self.result)
        code = None
        try:
            with interruptible():
                code = self._run_stages(begin)
        except KeyboardInterrupt:
            code = Exit.INCONCLUSIVE
            self._note("interrupted: what was not decided until then is unknown")
        except AdapterError as error:
            code = Exit.USAGE
            self._note(f"the adapter of {self.result.run.subject} breaks the protocol: {error}")
        self.result.run.is_complete = code is None
        self.result.run.seconds = round(time.monotonic() - begin, 3)
        self._keep(self.store.write_all)
        found = self.result.exit_code()
        if code is None and self._unkept is not None:
            code = self._unkept.exit_code
        return found if code is None or found is Exit.REFUTED else code

    def _keep(self, write: Callable[[Result], None]) -> None:
        """Write the result, or say why it is not written."""
        try:
            write(self.result)
        except StoreError as error:
            if self._unkept is None:
                self._note(str(error))
            self._unkept = error
        else:
            self._unkept = None

    def _run_stages(self, begin: float) -> Exit | None:
        code = None
        for index, stage in enumerate(self.stages):
            if self.stops_at_first and any(check.is_failure for check in self.result.checks):
                break
            left = max(0.0, self.seconds - (time.monotonic() - begin))
            seconds = left * stage.share / sum(later.share for later in self.stages[index:])
            try:
                self._run_stage(stage, seconds)
            except (KeyboardInterrupt, AdapterError):
                raise
            except BaseException as error:  # a subject may even raise SystemExit
                code = Exit.INTERNAL
                self._report_fault(stage, error)
        return code

    def _run_stage(self, stage: Stage, seconds: float) -> None:
        self._done = 0
        self.progress.begin(stage.name, seconds)
        reason = f"{stage.name} did not finish"
        try:
            for said in stage.run(StageBudget(self.result.run.seed, seconds, self._advance)):
                self._take(said)
            reason = f"{stage.name} said nothing of it"
        except KeyboardInterrupt:
            reason = f"interrupted after {self._done:,}" if self._done else "interrupted"
            raise
        finally:
            for check in stage.planned_checks:
                if check.text == NOT_RUN and check.verdict is Verdict.UNKNOWN:
                    check.text = reason
            self.progress.end()
        self._keep(self.store.write_all)

    def _advance(self, count: int) -> None:
        self._done = count
        self.progress.advance(count)

    def _take(self, said: StageOutput) -> None:
        if isinstance(said, WitnessCount):
            self.result.witnesses.append(said)
            return
        places = {check.id: index for index, check in enumerate(self.result.checks)}
        is_news = said.is_failure and not (said.id in places and self.result.checks[places[said.id]].is_failure)
        if said.id in places:
            self.result.checks[places[said.id]] = said
        else:
            self.result.checks.append(said)
            self._is_told_by(said)
        if is_news:
            self.progress.say(f"refuted: {said.id}: {said.text}")
        self._keep(self.store.write_result)

    def _is_told_by(self, said: Check) -> None:
        """A check that was promised of a property is told by those of its single findings."""
        for check in self.result.checks:
            if said.id.startswith(f"{check.id}/") and check.text == NOT_RUN:
                self.result.checks.remove(check)
                return

    def _report_fault(self, stage: Stage, error: BaseException) -> None:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        try:
            log = str(self.store.write_log("".join(traceback.format_exception(error))))
        except StoreError as unkept:
            log = f"it ({unkept})"
        self._note(f"{stage.name} failed by a fault of kvproof, not of the subject: {what}; please report {log}")

    def _note(self, message: str) -> None:
        self.result.messages.append(message)
        self.progress.say(message)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM, which a CI sends before it kills, interrupt like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
