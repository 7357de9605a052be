"""The run of `kvproof faults`: judge the faults, count them by rule, step or kind, and write the result document."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from kvproof.audit.cli.fault_store import FaultStore
from kvproof.audit.cli.faults_session import FAULTS, FaultSession
from kvproof.audit.faults.catalogue import by_hand, code_faults, machinery
from kvproof.audit.faults.edits import Fault
from kvproof.audit.faults.running import FaultOutcome, judge_all
from kvproof.audit.mutation.mutation_score import ALIVE, COLUMNS, JUDGES, judged
from kvproof.audit.mutation.operators import RULES, SYSTEMS, changes, deletions, is_mutant, row_of
from kvproof.audit.mutation.weakenings import weakenings
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.errors import UsageError
from kvproof.reports.evidence import MissedFault, refuted
from kvproof.reports.result import Check, Result
from kvproof.spec.store.machine import STORES
from kvproof.spec.verdict import Exit, Verdict

NOTICED = "every-fault-noticed"


@dataclass(frozen=True)
class FaultRequest:
    """What the user asked for.

    only: names or patterns of rules, steps, kinds or faults; empty for all. out: the file to which results are written
    as soon as they are known. is_resumed: whether the results of an earlier run in it are used again.
    """

    judges: tuple[str, ...]
    only: tuple[str, ...]
    deletions_only: bool
    workers: str
    json: Path | None
    out: Path | None = None
    is_resumed: bool = False

    def faults(self) -> list[Fault]:
        """The selected faults. Raises UsageError if a pattern selects none."""
        every: list[Fault] = [*deletions()]
        if not self.deletions_only:
            every += [*changes(), *weakenings(), *by_hand(), *machinery(), *code_faults()]
        every += deletions(STORES.name)
        if not self.deletions_only:
            every += [*changes(STORES.name), *weakenings(STORES.name)]
        for pattern in self.only:
            if not any(_is_selected(one, pattern) for one in every):
                known = sorted({*(row_of(suite, RULES) for suite in SYSTEMS), *(one.row for one in every)})
                raise UsageError(f"no rule, step or kind of fault is named {pattern}{did_you_mean(pattern, known)}")
        return [one for one in every if not self.only or any(_is_selected(one, pattern) for pattern in self.only)]


def _place(fault: Fault) -> tuple[bool, str]:
    """The place of a fault in the result: mutants first, by their whole statements."""
    edit = fault.plant[0]
    return not is_mutant(fault), f"{fault.row}: {edit.old} -> {edit.new or 'nothing'}" if is_mutant(fault) else fault.id


def _is_selected(fault: Fault, pattern: str) -> bool:
    return fnmatchcase(fault.row, pattern) or fnmatchcase(fault.kind if is_mutant(fault) else fault.id, pattern)


def run_faults(request: FaultRequest) -> Exit:
    """Judge the selected mutants, print the table and write the result. Raises StoreError, UsageError."""
    mutants, store = request.faults(), None
    if request.out is not None:
        store = FaultStore.opened(request.out, {"judges": request.judges}, request.is_resumed)
    session = FaultSession(
        planted_in="the specification",
        headline=f"faults, {len(mutants):,} mutants, judged by {', '.join(request.judges)}",
        name="mutants",
        seed=0,
        faults=mutants,
        store=store,
        judge=lambda left: judge_all(request.workers, partial(judged, judges=request.judges), left),
        evidence=lambda one: one.text,
        known=lambda fault, one: FaultOutcome(fault, one.by, one.evidence, one.seconds),
        remark=lambda one: f"alive: {one.fault.id}" if one.by == ALIVE else "",
        place=lambda one: _place(one.fault),
        check=_check,
        lines=_lines,
    )
    return session.run(request.json)


def _check(one: FaultOutcome) -> Check:
    text = f"{one.by}: {one.text}" if one.text else one.by
    seconds = round(one.seconds, 3)
    check = Check(f"{FAULTS}/{one.fault.id}", FAULTS, NOTICED, Verdict.NOT_REFUTED, seconds, text=text)
    return refuted(check, MissedFault(text, one.fault.id)) if one.by == ALIVE else check


def _lines(result: Result, found: list[FaultOutcome]) -> Iterator[tuple[str, str]]:
    """The kill matrix: one row for each rule or step, and for each other kind of fault; one column for each judge."""
    rows: dict[str, Counter[str]] = {}
    for one in sorted(found, key=lambda one: (not is_mutant(one.fault), one.fault.row)):
        rows.setdefault(one.fault.row, Counter())[one.by] += 1
    width = max((len(name) for name in (*rows, "all")), default=3)
    yield "", ""
    yield f"{'':{width}}  mutants  {'  '.join(COLUMNS)}", "dim"
    total: Counter[str] = sum(rows.values(), Counter())
    for name, counts in (*rows.items(), ("all", total)):
        cells = "  ".join(f"{counts[column] or '·':>{len(column)}}" for column in COLUMNS)
        yield f"{name:{width}}  {counts.total():7}  {cells}", "bold yellow" if counts[ALIVE] else ""
    yield "", ""
    yield from ((f"note: {message}", "yellow") for message in result.messages)
    num_killed = sum(total[column] for column in JUDGES)
    num_others = total.total() - num_killed - total[ALIVE]
    yield (
        f"{total.total():,} mutants: {num_killed:,} killed, {num_others:,} equivalent, {total[ALIVE]:,} alive. "
        f"{result.run.seconds:.1f} s.",
        "bold red" if total[ALIVE] else "bold green",
    )
