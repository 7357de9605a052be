"""What a proof run says at its end: rule by invariant, each other subject, what is open, the slowest, the totals."""

from collections import Counter
from collections.abc import Iterator

from kvproof.check.cli.prove_vacuity import HYPOTHESES, SETS, VACUITY, WITH_MODEL
from kvproof.models.proofs.induction import SUITE
from kvproof.models.proofs.vacuity import FIRES
from kvproof.models.solvers.solving import Decided
from kvproof.reports.result import Result
from kvproof.spec.language import COLLECTED
from kvproof.spec.verdict import Exit, Verdict

Line = tuple[str, str]  # text and style

SIGNS = {Verdict.PROVED: "+", Verdict.REFUTED: "!", Verdict.UNKNOWN: "?"}
KEPT = "."
SLOWEST = 5
COLUMNS = 5  # invariants in one group of the table


def proof_lines(result: Result, decided: list[Decided]) -> Iterator[Line]:
    """The whole report, but for what was said while it ran."""
    yield from _matrix(decided)
    yield from _subjects(decided)
    yield from _open(result)
    yield from _slowest(decided)
    yield from ((f"note: {message}", "yellow") for message in result.messages)
    yield from _totals(result, decided)


def _matrix(decided: list[Decided]) -> Iterator[Line]:
    names = [claim.name for claim in COLLECTED.invariants]
    rules = [rule.__name__ for rule in COLLECTED.rules]
    signs = {
        (one.obligation.subject, one.obligation.claim): KEPT if one.is_kept else SIGNS[one.answer.verdict]
        for one in decided
        if one.obligation.suite == SUITE
    }
    rows = [name for name in ("initial", *rules) if any((name, claim) in signs for claim in names)]
    if not rows:
        return
    yield "", ""
    yield f"Each rule keeps each invariant: + proved, {KEPT} nothing of it is written, ? unknown, ! refuted", ""
    width = max(map(len, rows))
    numbers = "".join(f"{number:<{COLUMNS + 1}}" for number in range(1, len(names) + 1, COLUMNS))
    yield f"  {'':{width}}  {numbers.rstrip()}", "dim"
    for row in rows:
        cells = [signs.get((row, claim), " ") for claim in names]
        groups = ["".join(cells[start : start + COLUMNS]) for start in range(0, len(cells), COLUMNS)]
        line = f"  {row:{width}}  {' '.join(groups)}".rstrip()
        yield line, "" if set(cells) <= {"+", KEPT, " "} else "bold yellow"
    for number, claim in enumerate(COLLECTED.invariants, start=1):
        yield f"  {number:2d} {claim.name}: {claim.property}", "dim"


def _subjects(decided: list[Decided]) -> Iterator[Line]:
    """What is proved besides: checks, ranges, theorems, and every subject of the other suites."""
    names = {claim.name for claim in COLLECTED.invariants}
    groups: dict[str, list[Decided]] = {}
    for one in decided:
        obligation = one.obligation
        is_rule = obligation.suite == SUITE
        if is_rule and obligation.claim in names:
            kind = "invariants kept"
        elif is_rule and obligation.claim.startswith("check "):
            kind = "checks of rules"
        elif is_rule and obligation.property == "well-defined":
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


def _open(result: Result) -> Iterator[Line]:
    found = [check for check in result.checks if check.verdict in (Verdict.UNKNOWN, Verdict.REFUTED)]
    if found:
        yield "", ""
    for check in found:
        name = check.id.removeprefix(f"prover/{check.property}/")
        first, *rest = [check.text] if check.counterexample is None else ["", *check.text.splitlines()]
        yield f"{check.verdict.value}: {name}{first and ': '}{first}", "bold red" if check.is_failure else "bold yellow"
        yield from ((f"  {line}", "") for line in rest)


def _slowest(decided: list[Decided]) -> Iterator[Line]:
    asked = sorted((one for one in decided if not one.is_kept), key=lambda one: -one.answer.seconds)
    if asked:
        yield "", ""
    for one in asked[:SLOWEST]:
        yield f"slowest {one.answer.seconds:.2f} s, effort {one.answer.effort:,}: {one.obligation.id}", "dim"


def _totals(result: Result, decided: list[Decided]) -> Iterator[Line]:
    counts = Counter(one.answer.verdict for one in decided)
    num_kept = sum(one.is_kept for one in decided)
    num_lints = sum(check.judge == "lint" for check in result.checks)
    num_held = sum(check.judge == "lint" and check.verdict is Verdict.PROVED for check in result.checks)
    yield "", ""
    if num_lints:
        yield f"lints: {num_held} of {num_lints} hold", "" if num_held == num_lints else "bold red"
    yield from _not_vacuous(result)
    verdicts = [f"{counts[verdict]:,} {verdict.value}" for verdict in (Verdict.UNKNOWN, Verdict.REFUTED)]
    seconds = sum(one.answer.seconds for one in decided)
    effort = sum(one.answer.effort for one in decided)
    end = "" if result.run.is_complete else " The run did not finish."
    style = {Exit.OK: "bold green", Exit.REFUTED: "bold red"}.get(result.exit_code(), "bold yellow")
    yield (
        (
            f"{counts[Verdict.PROVED]:,} of {len(decided):,} obligations proved ({num_kept:,} of them as they stand), "
            f"{', '.join(verdicts)}. {result.run.seconds:.1f} s, solver {seconds:.1f} s, effort {effort:,}, "
            f"z3 {result.run.host['z3']}, seed {result.run.seed}.{end}"
        ),
        style,
    )


def _not_vacuous(result: Result) -> Iterator[Line]:
    """That rules fire, and that hypotheses do not contradict each other."""
    fired = [check for check in result.checks if check.judge == VACUITY and check.property == FIRES]
    assumed = [check for check in result.checks if check.judge == VACUITY and check.property == HYPOTHESES]
    said = []
    if fired:
        said.append(f"{sum(check.verdict is Verdict.PROVED for check in fired)} of {len(fired)} rules fire")
    if assumed:
        num_sets, num_models = (sum(check.counts[name] for check in assumed) for name in (SETS, WITH_MODEL))
        said.append(
            f"of {num_sets} sets of hypotheses {num_models} have a model, the solver derives False from none of them"
            if all(check.verdict is not Verdict.REFUTED for check in assumed)
            else f"of {num_sets} sets of hypotheses some contradict themselves"
        )
    is_well = all(check.verdict in (Verdict.PROVED, Verdict.NOT_REFUTED) for check in (*fired, *assumed))
    if said:
        yield f"{'not vacuous' if is_well else 'vacuous'}: {'; '.join(said)}", "" if is_well else "bold red"
