"""The run of `kvproof faults`: judge the faults, count them by rule, step or kind, and write the result document."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kvproof.check.runs.arguments import did_you_mean
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.fault_store import FaultStore
from kvproof.check.runs.run import close, host, now, version
from kvproof.check.runs.session import interruptible
from kvproof.check.runs.store import StoreError
from kvproof.check.runs.terminal import PLAIN_INTERVAL_SECONDS, Output, output, say
from kvproof.check.search.exhaustive.mutation_score import ALIVE, COLUMNS, JUDGES, Fault, MutantResult, judge_all
from kvproof.models.mutation.handmade import handmade
from kvproof.models.mutation.machinery import PLANTS
from kvproof.models.mutation.operators import Mutant, changes, deletions
from kvproof.models.mutation.weakenings import weakenings
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Exit, Verdict

FAULTS, NOTICED = "faults", "every-fault-noticed"
RULES = "rules"  # the kind of the mutants of rules and steps


@dataclass(frozen=True)
class FaultRequest:
    """What the user asked for.

    only: names or patterns of rules, steps, kinds or faults; empty for all. out: the file to which results are written
    as soon as they are known. is_resumed: whether the results of an earlier run in it are used again.
    """

    judges: tuple[str, ...]
    only: tuple[str, ...]
    deletions_only: bool
    num_processes: int
    json: Path | None
    out: Path | None = None
    is_resumed: bool = False

    def faults(self) -> list[Fault]:
        """The selected faults. Raises UsageError if a pattern selects none."""
        every: list[Fault] = [*deletions()]
        if not self.deletions_only:
            every += [*changes(), *weakenings(), *handmade(), *PLANTS]
        for pattern in self.only:
            if not any(_is_selected(one, pattern) for one in every):
                known = sorted({RULES, *map(_row, every)})
                raise UsageError(f"no rule, step or kind of fault is named {pattern}{did_you_mean(pattern, known)}")
        return [one for one in every if not self.only or any(_is_selected(one, pattern) for pattern in self.only)]


def _row(fault: Fault) -> str:
    """The row of the table that a fault is counted in: its rule or step, or its kind."""
    return fault.function if isinstance(fault, Mutant) else fault.kind


def _place(fault: Fault) -> tuple[bool, str]:
    """The place of a fault in the result: mutants first."""
    return (False, str(fault)) if isinstance(fault, Mutant) else (True, fault.id)


def _is_selected(fault: Fault, pattern: str) -> bool:
    name = RULES if isinstance(fault, Mutant) else fault.id
    return fnmatchcase(_row(fault), pattern) or fnmatchcase(name, pattern)


def run_faults(request: FaultRequest) -> Exit:
    """Judge the selected mutants, print the table and write the result. Raises StoreError, UsageError."""
    console = output()
    mutants = request.faults()
    store = None
    if request.out is not None:
        store = FaultStore.opened(request.out, {"judges": request.judges}, request.is_resumed)
    run = Run(version(), FAULTS, "the specification", 0, host(), now())
    result = Result(run)
    say(console, f"kvproof {run.version} faults, {len(mutants):,} mutants, judged by {', '.join(request.judges)}")
    found: list[MutantResult] = []
    unwritten: StoreError | None = None
    began = time.monotonic()
    try:
        with interruptible():
            _judge(request, mutants, store, console, found)
        run.is_complete = True
    except KeyboardInterrupt:
        result.messages.append("interrupted: the result has only the mutants that were judged before")
    except StoreError as error:
        unwritten = error
    run.seconds = round(time.monotonic() - began, 3)
    result.checks += [_check(one) for one in sorted(found, key=lambda one: _place(one.mutant))]
    result.count_totals()
    for line, style in _lines(result, found):
        say(console, line, style)
    code = result.exit_code() if found or run.is_complete or unwritten is not None else Exit.INTERRUPTED
    return close(result, request.json, code, unwritten)


def _judge(
    request: FaultRequest, mutants: list[Fault], store: FaultStore | None, console: Output, found: list[MutantResult]
) -> None:
    printed = time.monotonic()
    for one in _results(request, mutants, store, console):
        found.append(one)
        if one.by == ALIVE:
            say(console, f"alive: {one.mutant.id}", "bold yellow")
        if time.monotonic() - printed >= PLAIN_INTERVAL_SECONDS:
            printed = time.monotonic()
            say(console, f"faults: {len(found):,} of {len(mutants):,} judged")


def _results(
    request: FaultRequest, mutants: list[Fault], store: FaultStore | None, console: Output
) -> Iterator[MutantResult]:
    """The results in the store; then the others, which are added to it."""
    earlier = [] if store is None else [(fault, one) for fault in mutants if (one := store.find(repr(fault)))]
    for fault, one in earlier:
        yield MutantResult(fault, one.by, one.evidence, one.seconds)
    left = [fault for fault in mutants if store is None or store.find(repr(fault)) is None]
    if earlier:
        say(console, f"{len(earlier):,} results are in {request.out}; {len(left):,} mutants are left")
    for result in judge_all(left, request.judges, request.num_processes):
        if store is not None:
            store.add(result.mutant.id, repr(result.mutant), result.by, result.evidence, result.seconds)
        yield result


def _check(one: MutantResult) -> Check:
    verdict = Verdict.REFUTED if one.by == ALIVE else Verdict.NOT_REFUTED
    text = f"{one.by}: {one.evidence}" if one.evidence else one.by
    return Check(f"{FAULTS}/{one.mutant.id}", FAULTS, NOTICED, verdict, round(one.seconds, 3), text=text)


def _lines(result: Result, found: list[MutantResult]) -> Iterator[tuple[str, str]]:
    """The kill matrix: one row for each rule or step, and for each other kind of fault; one column for each judge."""
    rows: dict[str, Counter[str]] = {}
    for one in sorted(found, key=lambda one: (not isinstance(one.mutant, Mutant), _row(one.mutant))):
        rows.setdefault(_row(one.mutant), Counter())[one.by] += 1
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
