"""The page of a campaign, `index.html`: what was found, each with its run, and how far each search came."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kvproof.reports.counterexample import FindingView
from kvproof.reports.document import DocumentError, inside, read
from kvproof.reports.evidence import Reported, refuted
from kvproof.reports.explorer_data import frames_beside
from kvproof.reports.printable import cut, printable
from kvproof.reports.result import Check
from kvproof.reports.run_page import BADGES, COLOURS, FRAMES_BYTES_MAX
from kvproof.reports.summary import number
from kvproof.reports.template import render
from kvproof.spec.trace import Trace
from kvproof.spec.verdict import Exit, Verdict

TEMPLATE = "campaign_page.html"


class CampaignSearch(Protocol):
    """A search as a row of the page. reason: why it was not searched, or empty."""

    subject: str
    fixed: dict[str, Any]
    seed: int
    effort: str
    planned: int
    operations: int
    runs: int
    rules: int
    reason: str


class CampaignFinding(Protocol):
    """A finding of a campaign; its fields are those of a check."""

    subject: str
    property: str
    signature: str
    text: str
    trace: str | None
    excused: str
    judge: str


def campaign_page(
    searches: Sequence[CampaignSearch],
    findings: Sequence[CampaignFinding],
    messages: Sequence[str],
    exit_code: Exit,
    folder: Path,
) -> str:
    """Render the page. folder: where the traces of the findings are."""
    views, left = [], FRAMES_BYTES_MAX
    for index, one in enumerate(sorted(findings, key=lambda found: bool(found.excused)), 1):
        view = _view(f"finding-{index}", one, folder, left)
        left -= len(view.frames)
        views.append(view)
    operations = sum(one.operations for one in searches)
    return render(
        TEMPLATE,
        {},
        colour=COLOURS.get(exit_code, "open"),
        badge=BADGES.get(exit_code, "inconclusive"),
        sentence=f"{number(len(searches), 'search', 'searches')}, {number(operations, 'operation', 'operations')}, "
        f"{number(sum(not one.excused for one in findings), 'finding', 'findings')}",
        views=views,
        rows=[
            (
                printable(one.subject),
                printable(", ".join(f"{name}={value}" for name, value in one.fixed.items())) or "–",
                one,
                printable(cut(one.reason)),
                sum(found.subject == one.subject for found in findings),
            )
            for one in searches
        ],
        messages=[printable(cut(one)) for one in messages],
    )


def _view(name: str, one: CampaignFinding, folder: Path, frames_max: int) -> FindingView:
    """A finding with its run, if the run is there and fits."""
    check = Check(
        f"{one.judge}/{one.property}/{one.subject}",
        one.judge,
        one.property,
        Verdict.UNKNOWN,
        trace=one.trace,
        signature=one.signature,
        excused=one.excused,
    )
    found = FindingView(refuted(check, Reported(one.text, one.judge)), one.subject, name=name)
    if one.trace is None:
        return found
    try:
        found.path = inside(folder, one.trace)
        found.trace = read(found.path, Trace)
    except DocumentError as error:
        found.not_replayed = printable(str(error))
        return found
    frames = frames_beside(found.path) or ""
    found.frames = frames if len(frames) <= frames_max else ""
    return found
