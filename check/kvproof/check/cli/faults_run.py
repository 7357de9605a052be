"""The run of `kvproof faults`: mutants are judged, counted by rule and step, and written as a result document."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.run import host, now, version, write_json
from kvproof.check.runs.session import interruptible
from kvproof.check.runs.subject_lookup import did_you_mean
from kvproof.check.runs.terminal import PLAIN_INTERVAL_SECONDS, Output, output, say
from kvproof.check.search.exhaustive.mutation_score import ALIVE, COLUMNS, Judged, judge_all
from kvproof.models.mutation.operators import Mutant, changes, deletions
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Exit, Verdict

FAULTS, NOTICED = "faults", "every-fault-noticed"


@dataclass(frozen=True)
class Faulting:
    """What the user asked for. only: patterns of names of rules and steps; empty for all."""

    judges: tuple[str, ...]
    only: tuple[str, ...]
    deletions_only: bool
    num_processes: int
    json: Path | None

    def mutants(self) -> list[Mutant]:
        """Those asked for. Raises UsageError if there are none."""
        every = [*deletions(), *(() if self.deletions_only else changes())]
        wanted = [one for one in every if not self.only or any(fnmatchcase(one.function, name) for name in self.only)]
        if not wanted:
            known = sorted({one.function for one in every})
            raise UsageError(f"no rule or step is named {self.only[0]}{did_you_mean(self.only[0], known)}")
        return wanted


def run_faults(faulting: Faulting) -> Exit:
    """Judge every mutant asked for, print and store it. Raises StoreError, UsageError."""
    console = output()
    mutants = faulting.mutants()
    run = Run(version(), FAULTS, "the specification", 0, host(), now())
    result = Result(run)
    say(console, f"kvproof {run.version} faults, {len(mutants):,} mutants, judged by {', '.join(faulting.judges)}")
    found: list[Judged] = []
    began = time.monotonic()
    try:
        with interruptible():
            _judge(faulting, mutants, console, found)
        run.is_complete = True
    except KeyboardInterrupt:
        result.messages.append("interrupted: what was not judged until then does not stand here")
    run.seconds = round(time.monotonic() - began, 3)
    result.checks += [_check(one) for one in sorted(found, key=lambda one: str(one.mutant))]
    result.count_totals()
    if faulting.json is not None:
        write_json(result, Path(), faulting.json)
    for line, style in _lines(result, found):
        say(console, line, style)
    return result.exit_code()


def _judge(faulting: Faulting, mutants: list[Mutant], console: Output, found: list[Judged]) -> None:
    spoke = time.monotonic()
    for one in judge_all(mutants, faulting.judges, faulting.num_processes):
        found.append(one)
        if one.by == ALIVE:
            say(console, f"alive: {one.mutant.id}", "bold yellow")
        if time.monotonic() - spoke >= PLAIN_INTERVAL_SECONDS:
            spoke = time.monotonic()
            say(console, f"faults: {len(found):,} of {len(mutants):,} judged")


def _check(one: Judged) -> Check:
    verdict = Verdict.REFUTED if one.by == ALIVE else Verdict.NOT_REFUTED
    text = f"{one.by}: {one.evidence}" if one.evidence else one.by
    return Check(f"{FAULTS}/{one.mutant.id}", FAULTS, NOTICED, verdict, round(one.seconds, 3), text=text)


def _lines(result: Result, found: list[Judged]) -> Iterator[tuple[str, str]]:
    """The kill matrix: rules and steps by who noticed."""
    rows: dict[str, Counter[str]] = {}
    for one in sorted(found, key=lambda one: one.mutant.function):
        rows.setdefault(one.mutant.function, Counter())[one.by] += 1
    width = max((len(name) for name in (*rows, "all")), default=3)
    yield "", ""
    yield f"{'':{width}}  mutants  {'  '.join(COLUMNS)}", "dim"
    total: Counter[str] = sum(rows.values(), Counter())
    for name, counts in (*rows.items(), ("all", total)):
        cells = "  ".join(f"{counts[column] or '·':>{len(column)}}" for column in COLUMNS)
        yield f"{name:{width}}  {counts.total():7}  {cells}", "bold yellow" if counts[ALIVE] else ""
    yield "", ""
    yield from ((f"note: {message}", "yellow") for message in result.messages)
    num_killed = sum(total[column] for column in ("prover", "explorer"))
    num_others = total.total() - num_killed - total[ALIVE]
    yield (
        f"{total.total():,} mutants: {num_killed:,} killed, {num_others:,} the same rule, {total[ALIVE]:,} alive. "
        f"{result.run.seconds:.1f} s.",
        "bold red" if total[ALIVE] else "bold green",
    )
