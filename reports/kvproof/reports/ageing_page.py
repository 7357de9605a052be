"""What a newer release of an engine changes for its subjects, as one page in Markdown."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kvproof.reports.counterexample import FindingView, counterexamples, shortest_first
from kvproof.reports.gate_comment import REPAIRED, Change
from kvproof.reports.markdown import fitted, folded, inline

ROWS_MAX = 60  # of a list
HEAD = "head"  # the folder of the second result


@dataclass
class Aged:
    """A subject in two releases of its engine.

    change: what both hunts show; None if the newer release cannot be judged, and `why` says the reason. played, ran:
    functions that the adapter plays itself, and that the walks ran, and that differ. why_unknown: why it is not known
    which ones ran; empty if it is. defaults: options of the engine with another default.
    """

    subject: str
    before: str
    after: str
    change: Change | None
    why: str = ""
    why_unknown: str = ""
    played: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)


def page(aged: list[Aged], folder: Path) -> str:
    """The page. folder: that has a folder of results for each subject."""
    rows = ["| subject | releases | findings added | repaired | code that the adapter plays | code that ran |"]
    rows += ["|---|---|---|---|---|---|", *map(_row, aged)]
    head = ["# Newer releases of engines", "\n".join(rows)]
    found = [folded(view, others) for one in aged for view, others in _added(one, folder)]
    return fitted(head, found, [part for one in aged for part in _parts(one)])


def _row(one: Aged) -> str:
    added = "cannot be judged" if one.change is None else str(len(one.change.added))
    repaired = "" if one.change is None else str(len(one.change.fates[REPAIRED]))
    ran = "unknown" if one.why_unknown else f"{len(one.ran)} differ"
    return f"| `{one.subject}` | {one.before}, {one.after} | {added} | {repaired} | {len(one.played)} differ | {ran} |"


def _added(one: Aged, folder: Path) -> list[tuple[FindingView, list[FindingView]]]:
    if one.change is None:
        return []
    found = shortest_first(counterexamples(one.change.now, folder / one.subject / HEAD))
    return [(view, others) for view, others in found if view.check.is_failure]


def _parts(one: Aged) -> Iterator[str]:
    yield f"## {inline(one.subject)}: {one.before} and {one.after}"
    yield inline(one.why if one.change is None else one.change.verdict)
    if one.change is not None:
        yield from _list("Added", one.change.added)
        for fate, findings in one.change.fates.items():
            yield from _list(fate, findings)
        yield from _list("Less was judged", one.change.lost)
    yield from _list("The adapter plays these functions of the engine itself, and they differ: read them", one.played)
    if one.why_unknown:
        yield inline(f"Functions that ran: {one.why_unknown}.")
    yield from _list("The walks ran these functions, and they differ", one.ran)
    yield from _list("Options of the engine with another default", one.defaults)


def _list(title: str, rows: list[str]) -> Iterator[str]:
    if rows:
        more = [f"- and {len(rows) - ROWS_MAX} more"] if len(rows) > ROWS_MAX else []
        yield f"**{title}** ({len(rows)})\n\n" + "\n".join([*(f"- {inline(row)}" for row in rows[:ROWS_MAX]), *more])
