"""What `kvproof prove` prints: its progress, and the report at the end.

The report has a table of rules and invariants, a line for each other subject, the open obligations, the slowest ones,
the notes and the totals. With `--cores`, a second table shows which invariants each rule needed. An unsat core is a set
of hypotheses that suffices, not the smallest one: a proof does without the invariants outside its core, but those
inside need not be indispensable. An invariant that no proof needs is claimed for its own sake.
"""

import time
from collections import Counter
from collections.abc import Iterator
from types import TracebackType

from rich.status import Status

from kvproof.check.runs.terminal import PLAIN_INTERVAL_SECONDS, Output, say
from kvproof.models.obligation import WELL_DEFINED
from kvproof.models.proofs.induction import SUITE
from kvproof.models.solvers.solving import ProofOutcome
from kvproof.models.suites import BOUNDED
from kvproof.models.vacuity import FIRES, HYPOTHESES, RUNS, SETS, VACUITY, WITH_MODEL
from kvproof.reports.result import Result
from kvproof.spec.language import COLLECTED
from kvproof.spec.verdict import Exit, Verdict

StyledLine = tuple[str, str]  # text and style

SIGNS = {Verdict.PROVED: "+", Verdict.REFUTED: "!", Verdict.UNKNOWN: "?"}
TRIVIAL = "."
NUM_SLOWEST = 5
COLUMNS = 5  # invariants in one group of a table


class ProofProgress:
    """Progress of the prover: one moving line on a terminal, elsewhere a line every few seconds.

    An obligation that is not proved is printed at once.
    """

    def __init__(self, console: Output, judge: str = "prover") -> None:
        self.console, self.judge = console, judge
        self.num_proved = self.num_open = 0
        self.began = self.printed = time.monotonic()
        self.status = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> "ProofProgress":
        if self.status is not None:
            self.status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.status is not None:
            self.status.stop()

    def advance(self, one: ProofOutcome) -> None:
        """Count one more decided obligation."""
        if one.answer.verdict is Verdict.PROVED:
            self.num_proved += 1
        else:
            self.num_open += 1
            say(self.console, f"{one.answer.verdict.value}: {one.obligation.id}", "yellow")
        seconds = time.monotonic() - self.began
        line = f"{self.judge}: {self.num_proved:,} proved, {self.num_open:,} open after {seconds:.0f} s"
        if self.status is not None:
            self.status.update(f"{line}: {one.obligation.subject}")
        elif time.monotonic() - self.printed >= PLAIN_INTERVAL_SECONDS:
            self.printed = time.monotonic()
            say(self.console, line)


def proof_lines(result: Result, outcomes: list[ProofOutcome]) -> Iterator[StyledLine]:
    """The report at the end of a run, without the optional parts of `options`."""
    yield from _rules_by_invariants(outcomes)
    yield from _subjects(outcomes)
    yield from _open_checks(result)
    yield from _slowest(outcomes)
    yield from ((f"note: {message}", "yellow") for message in result.messages)
    yield from _totals(result, outcomes)
    yield from _needed_invariants(outcomes)


def core_text(one: ProofOutcome) -> str:
    """The hypotheses that the proof of one obligation needed; empty if no core was asked for."""
    if one.answer.core is None:
        return ""
    return f"rests on: {', '.join(one.core_names()) or 'nothing'}"


def _rules_by_invariants(outcomes: list[ProofOutcome]) -> Iterator[StyledLine]:
    names = [claim.name for claim in COLLECTED.invariants]
    rules = [rule.__name__ for rule in COLLECTED.rules]
    signs = {
        (one.obligation.subject, one.obligation.claim): TRIVIAL if one.is_trivial else SIGNS[one.answer.verdict]
        for one in outcomes
        if one.obligation.suite == SUITE
    }
    rows = [name for name in ("initial", *rules) if any((name, claim) in signs for claim in names)]
    if not rows:
        return
    yield "", ""
    yield f"Each rule keeps each invariant: + proved, {TRIVIAL} writes nothing it reads, ? unknown, ! refuted", ""
    for row, cells, line in _table({row: [signs.get((row, claim), " ") for claim in names] for row in rows}):
        yield line, "dim" if not row else "" if set(cells) <= {"+", TRIVIAL, " "} else "bold yellow"
    for number, claim in enumerate(COLLECTED.invariants, start=1):
        yield f"  {number:2d} {claim.name}: {claim.property}", "dim"


def _needed_invariants(outcomes: list[ProofOutcome]) -> Iterator[StyledLine]:
    names = [claim.name for claim in COLLECTED.invariants]
    needed: dict[str, set[str]] = {}
    for one in outcomes:
        if one.obligation.suite == SUITE and one.answer.core is not None:
            subject = "subscripts of claims" if one.obligation.subject in names else one.obligation.subject
            needed.setdefault(subject, set()).update(one.core_names())
    if not needed:
        return
    yield "", ""
    yield "Invariants that the proofs needed, numbered as above: x for those in the unsat cores of a subject", ""
    rows = {row: ["x" if name in core else "·" for name in names] for row, core in needed.items()}
    for row, _, line in _table(rows):
        yield line, "" if row else "dim"
    unneeded = [name for name in names if not any(name in core for core in needed.values())]
    if unneeded:
        yield f"  needed by none of these: {', '.join(unneeded)}", "dim"


def _table(rows: dict[str, list[str]]) -> Iterator[tuple[str, list[str], str]]:
    """The lines of a table with a column for each invariant: name of the row (empty for the head), cells, line."""
    width = max(map(len, rows))
    num_columns = max(map(len, rows.values()))
    numbers = "".join(f"{number:<{COLUMNS + 1}}" for number in range(1, num_columns + 1, COLUMNS))
    yield "", [], f"  {'':{width}}  {numbers.rstrip()}"
    for row, cells in rows.items():
        groups = ["".join(cells[start : start + COLUMNS]) for start in range(0, len(cells), COLUMNS)]
        yield row, cells, f"  {row:{width}}  {' '.join(groups)}".rstrip()


def _subjects(outcomes: list[ProofOutcome]) -> Iterator[StyledLine]:
    """One line for each subject; the rules of the specification are grouped by the kind of their obligations."""
    names = {claim.name for claim in COLLECTED.invariants}
    groups: dict[str, list[ProofOutcome]] = {}
    for one in outcomes:
        obligation = one.obligation
        is_rule = obligation.suite == SUITE
        if is_rule and obligation.claim in names:
            kind = "invariants kept"
        elif is_rule and obligation.claim.startswith("check "):
            kind = "checks of rules"
        elif is_rule and obligation.property == WELL_DEFINED:
            kind = "everything read is in range"
        else:
            kind = obligation.subject
        groups.setdefault(f"{obligation.suite}/{kind}", []).append(one)
    yield "", ""
    for name, group in groups.items():
        num_proved = sum(one.answer.verdict is Verdict.PROVED for one in group)
        seconds = sum(one.answer.seconds for one in group)
        is_whole = num_proved == len(group)
        yield f"{name}: {num_proved:,} of {len(group):,} proved, {seconds:.1f} s", "" if is_whole else "bold yellow"


def _open_checks(result: Result) -> Iterator[StyledLine]:
    found = [check for check in result.checks if check.verdict in (Verdict.UNKNOWN, Verdict.REFUTED)]
    if found:
        yield "", ""
    for check in found:
        name = check.id.removeprefix(f"prover/{check.property}/")
        first, *rest = [check.text] if check.counterexample is None else ["", *check.text.splitlines()]
        yield f"{check.verdict.value}: {name}{first and ': '}{first}", "bold red" if check.is_failure else "bold yellow"
        yield from ((f"  {line}", "") for line in rest)


def _slowest(outcomes: list[ProofOutcome]) -> Iterator[StyledLine]:
    asked = sorted((one for one in outcomes if not one.is_trivial), key=lambda one: -one.answer.seconds)
    if asked:
        yield "", ""
    for one in asked[:NUM_SLOWEST]:
        yield f"slowest {one.answer.seconds:.2f} s, effort {one.answer.effort:,}: {one.obligation.id}", "dim"


def _totals(result: Result, outcomes: list[ProofOutcome]) -> Iterator[StyledLine]:
    lints = [check.verdict is Verdict.PROVED for check in result.checks if check.judge == "lint"]
    yield "", ""
    if lints:
        yield f"lints: {sum(lints)} of {len(lints)} hold", "" if all(lints) else "bold red"
    for check in result.checks:
        if check.judge == "pin":
            yield f"pinned: {check.counts['differences'] or 'no'} differences", "bold red" if check.is_failure else ""
            if not check.is_decided:
                yield f"  another text than the specification is proved, so they are no failure: {check.text}", "yellow"
    yield from _vacuity(result)
    end = "" if result.run.is_complete else " The run did not finish."
    style = {Exit.OK: "bold green", Exit.REFUTED: "bold red"}.get(result.exit_code(), "bold yellow")
    solver = f"z3 {result.run.host['z3']}, seed {result.run.seed}"
    if not outcomes:
        checked = "No obligation was selected." if result.checks else "Nothing was checked: --only selects nothing."
        checked = checked if result.run.is_complete else "No obligation was decided."
        yield f"{checked} {result.run.seconds:.1f} s, {solver}.{end}", style
        return
    verdicts = Counter(one.answer.verdict for one in outcomes)
    others = ", ".join(f"{verdicts[verdict]:,} {verdict.value}" for verdict in (Verdict.UNKNOWN, Verdict.REFUTED))
    num_cached = sum(one.is_cached for one in outcomes)
    cached = f", {num_cached:,} by cached answers" if num_cached else ""
    seconds = sum(one.answer.seconds for one in outcomes if not one.is_cached)
    effort = sum(one.answer.effort for one in outcomes)
    yield (
        f"{_proved(outcomes)} ({sum(one.is_trivial for one in outcomes):,} of them as they stand{cached}), {others}. "
        f"{result.run.seconds:.1f} s, solver {seconds:.1f} s, effort {effort:,}, {solver}.{end}",
        style,
    )


def _proved(outcomes: list[ProofOutcome]) -> str:
    """How many obligations are proved for every size, and how many of each bounded suite."""
    suites = ["", *BOUNDED]
    found = Counter(one.obligation.suite if one.obligation.suite in BOUNDED else "" for one in outcomes)
    proved = Counter(
        one.obligation.suite if one.obligation.suite in BOUNDED else ""
        for one in outcomes
        if one.answer.verdict is Verdict.PROVED
    )
    return ", and ".join(
        f"{proved[suite]:,} of {found[suite]:,} obligations proved for {BOUNDED.get(suite, 'every size')}"
        for suite in suites
        if found[suite]
    )


def _vacuity(result: Result) -> Iterator[StyledLine]:
    """Whether rules fire, contracts run, and hypotheses have models."""
    fired = [check for check in result.checks if check.judge == VACUITY and check.property == FIRES]
    runs = [check for check in result.checks if check.judge == VACUITY and check.property == RUNS]
    assumed = [check for check in result.checks if check.judge == VACUITY and check.property == HYPOTHESES]
    parts = []
    if fired:
        parts.append(f"{sum(check.verdict is Verdict.PROVED for check in fired)} of {len(fired)} rules fire")
    if runs:
        parts.append(
            f"{sum(check.verdict is Verdict.PROVED for check in runs)} of {len(runs)} contracts run to their end"
        )
    if assumed:
        num_sets, num_models = (sum(check.counts[name] for check in assumed) for name in (SETS, WITH_MODEL))
        if any(check.verdict is Verdict.REFUTED for check in assumed):
            parts.append(f"of {num_sets} sets of hypotheses some contradict themselves")
        else:
            rest = "" if num_models == num_sets else ", the solver derives False from none of the others"
            parts.append(f"{num_models} of {num_sets} sets of hypotheses have a model{rest}")
    is_good = all(check.verdict in (Verdict.PROVED, Verdict.NOT_REFUTED) for check in (*fired, *runs, *assumed))
    if parts:
        yield f"{'not vacuous' if is_good else 'vacuous'}: {'; '.join(parts)}", "" if is_good else "bold red"
