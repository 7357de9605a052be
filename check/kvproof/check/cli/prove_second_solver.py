"""What a second solver says of every obligation, as checks of their own beside those of the first.

A proof counts twice only if both give it. Where they contradict each other one of them is wrong, and nobody knows
which: that is no proof but a refutation of the run, whatever the first has said.
"""

from collections import Counter
from collections.abc import Iterator

from kvproof.check.cli.prove_progress import ProofProgress
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.terminal import Output
from kvproof.models.proofs.instances import where_denied, where_next_fired
from kvproof.models.solvers import second_solver
from kvproof.models.solvers.solving import Decided, Settings
from kvproof.models.solvers.workers import decide_all
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

JUDGE = "second-solver"
DISAGREE = "the solvers contradict each other, so one of them is wrong: Z3 has {first}, cvc5 {second}"
SAID = {Verdict.PROVED: "proved it", Verdict.REFUTED: "a model in which the goal is false"}


def require_second_solver() -> None:
    """Raises UsageError if there is none."""
    if not second_solver.is_installed():
        raise UsageError("--second-solver asks cvc5, which is not installed: pip install 'kvproof[second-solver]'")


def second_opinions(
    decided: list[Decided], settings: Settings, num_processes: int, console: Output
) -> Iterator[tuple[Decided, Check]]:
    """Ask cvc5 all that Z3 was asked; what is kept word for word was asked of nobody."""
    first = {one.obligation.id: one for one in decided if not one.is_kept}
    again = (where_next_fired(where_denied(one.obligation)) for one in first.values())
    with ProofProgress(console, "second solver") as progress:
        for one in decide_all(again, settings, num_processes, second_solver.ask):
            check = opinion(first[one.obligation.id], one)
            progress.advance(one)
            yield one, check


def opinion(first: Decided, second: Decided) -> Check:
    """What the second answer is worth beside the first."""
    obligation, answer = second.obligation, second.answer
    verdict, text = answer.verdict, ""
    if {first.answer.verdict, verdict} == {Verdict.PROVED, Verdict.REFUTED}:
        text = DISAGREE.format(first=SAID[first.answer.verdict], second=SAID[verdict])
        verdict = Verdict.REFUTED
    elif verdict is Verdict.REFUTED:
        verdict, text = Verdict.UNKNOWN, "it has a model in which the goal is false, and Z3 no proof"
    elif verdict is Verdict.UNKNOWN:
        text = answer.reason or "the solver gave up"
    id = f"{JUDGE}/{obligation.property}/{obligation.id}"
    counts = {"hypotheses": len(obligation.hypotheses), "effort": answer.effort}
    return Check(id, JUDGE, obligation.property, verdict, round(answer.seconds, 4), counts, text)


def opinion_lines(checks: list[Check], answers: list[Decided]) -> Iterator[tuple[str, str]]:
    """How often it agrees, and its slowest answer; disagreements stand with what is open."""
    asked = [check for check in checks if check.judge == JUDGE]
    if not asked:
        return
    counts = Counter(check.verdict for check in asked)
    seconds = sum(one.answer.seconds for one in answers)
    effort = sum(one.answer.effort for one in answers)
    slowest = max(answers, key=lambda one: one.answer.effort)
    others = ", ".join(f"{counts[verdict]:,} {verdict.value}" for verdict in (Verdict.UNKNOWN, Verdict.REFUTED))
    style = "" if counts[Verdict.PROVED] == len(asked) else "bold yellow"
    yield f"most effort of the second solver, {slowest.answer.effort:,}: {slowest.obligation.id}", "dim"
    yield (
        f"second solver: {counts[Verdict.PROVED]:,} of {len(asked):,} proved again by cvc5 {second_solver.version()}, "
        f"{others}; {seconds:.1f} s, effort {effort:,}",
        style,
    )
