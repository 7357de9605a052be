"""A run of `kvproof faults`, whatever the faults are planted in: earlier results, then new ones, then the table.

Each new result is stored as soon as it is known. If the run is interrupted, or the store cannot be written, what was
judged before is printed and written too.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kvproof.audit.cli.fault_store import FaultStore, StoredResult
from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.running import FaultOutcome
from kvproof.check.hosts.interrupt import interruptible
from kvproof.check.runs.run import close, host, now, version
from kvproof.check.runs.store import StoreError
from kvproof.check.runs.terminal import PLAIN_INTERVAL_SECONDS, Output, output, say
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Exit

FAULTS = "faults"


@dataclass(frozen=True)
class FaultSession:
    """What to judge, and how to report it.

    planted_in: the subject of the run, for the result document. headline: the first line, after the version. name: what
    the faults are called, in the plural. judge: gives the results of faults. evidence: what the store keeps of a
    result, or None for a result that is not kept. known: the result that the store has of a fault. remark: a line to
    print at once, or "". place: what the results are sorted by. check: a result as it stands in the document. lines:
    the table, each line with its style.
    """

    planted_in: str
    headline: str
    name: str
    seed: int
    faults: list[Fault]
    store: FaultStore | None
    judge: Callable[[list[Fault]], Iterator[FaultOutcome]]
    evidence: Callable[[FaultOutcome], str | None]
    known: Callable[[Fault, StoredResult], FaultOutcome]
    remark: Callable[[FaultOutcome], str]
    place: Callable[[FaultOutcome], tuple[bool, str]]
    check: Callable[[FaultOutcome], Check]
    lines: Callable[[Result, list[FaultOutcome]], Iterator[tuple[str, str]]]

    def run(self, json: Path | None) -> Exit:
        """Judge the faults, print the table and write the result. Raises StoreError, UsageError."""
        console, run = output(), Run(version(), FAULTS, self.planted_in, self.seed, host(), now())
        result, found = Result(run), list[FaultOutcome]()
        say(console, f"kvproof {run.version} {self.headline}")
        unwritten: StoreError | None = None
        began = time.monotonic()
        try:
            with interruptible():
                self._judge(console, found)
            run.is_complete = True
        except KeyboardInterrupt:
            result.messages.append(f"interrupted: the result has only the {self.name} that were judged before")
        except StoreError as error:
            unwritten = error
        run.seconds = round(time.monotonic() - began, 3)
        found.sort(key=self.place)
        result.checks += map(self.check, found)
        result.count_totals()
        for line, style in self.lines(result, found):
            say(console, line, style)
        code = result.exit_code() if found or run.is_complete or unwritten is not None else Exit.INTERRUPTED
        return close(result, json, code, unwritten)

    def _judge(self, console: Output, found: list[FaultOutcome]) -> None:
        printed = time.monotonic()
        for one in self._results(console):
            found.append(one)
            if remark := self.remark(one):
                say(console, remark, "bold yellow")
            if time.monotonic() - printed >= PLAIN_INTERVAL_SECONDS:
                printed = time.monotonic()
                say(console, f"{FAULTS}: {len(found):,} of {len(self.faults):,} judged")

    def _results(self, console: Output) -> Iterator[FaultOutcome]:
        """The results in the store; then the others, which are added to it."""
        left, num_known = list[Fault](), 0
        for fault in self.faults:
            if self.store is not None and (earlier := self.store.find(repr(fault))) is not None:
                num_known += 1
                yield self.known(fault, earlier)
            else:
                left.append(fault)
        if self.store is not None and num_known:
            say(console, f"{num_known:,} results are in {self.store.file}; {len(left):,} {self.name} are left")
        for one in self.judge(left):
            fault, evidence = one.fault, self.evidence(one)
            if self.store is not None and evidence is not None:
                self.store.add(fault.id, repr(fault), one.by, evidence, one.seconds)
            yield one
