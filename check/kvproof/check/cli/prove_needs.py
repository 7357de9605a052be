"""Which invariants each rule and each theorem needed, from the unsat cores of its obligations.

A core is a set of hypotheses that suffices, not the least one: what is not marked was not needed for this proof, what
is marked need not be indispensable. An invariant that nothing needs is claimed for its own sake.
"""

from collections.abc import Iterator

from kvproof.models.proofs.induction import SUITE
from kvproof.models.solvers.solving import Decided
from kvproof.spec.language import COLLECTED

COLUMNS = 5  # invariants in one group


def need_lines(decided: list[Decided]) -> Iterator[tuple[str, str]]:
    """A row for each rule or other subject of the specification, a column for each invariant."""
    names = [claim.name for claim in COLLECTED.invariants]
    rows: dict[str, set[str]] = {}
    for one in decided:
        if one.obligation.suite == SUITE and one.answer.core is not None:
            subject = "what claims read" if one.obligation.subject in names else one.obligation.subject
            rows.setdefault(subject, set()).update(one.core_names())
    if not rows:
        return
    yield "", ""
    yield "Which invariants each needed, in the numbers above: x for those in the unsat cores of its obligations", ""
    width = max(map(len, rows))
    numbers = "".join(f"{number:<{COLUMNS + 1}}" for number in range(1, len(names) + 1, COLUMNS))
    yield f"  {'':{width}}  {numbers.rstrip()}", "dim"
    for row, needed in rows.items():
        cells = ["x" if name in needed else "·" for name in names]
        groups = ["".join(cells[start : start + COLUMNS]) for start in range(0, len(cells), COLUMNS)]
        yield f"  {row:{width}}  {' '.join(groups)}", ""
    unneeded = [name for name in names if not any(name in needed for needed in rows.values())]
    if unneeded:
        yield f"  needed by none of these: {', '.join(unneeded)}", "dim"


def needs(one: Decided) -> str:
    """What the proof of one obligation rests on, in a sentence; nothing if no core was asked for."""
    if one.answer.core is None:
        return ""
    return f"rests on: {', '.join(one.core_names()) or 'nothing'}"
