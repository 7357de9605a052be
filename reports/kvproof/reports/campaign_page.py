"""The page of a campaign, `index.html`: what was found, each with its run, and how far each search came."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from kvproof.reports.counterexample import FindingView
from kvproof.reports.counterexample_page import frames_beside
from kvproof.reports.document import DocumentError, inside, read
from kvproof.reports.printable import cut, printable
from kvproof.reports.result import Check
from kvproof.reports.run_page import BADGES, COLOURS, FRAMES_BYTES_MAX
from kvproof.reports.summary import number
from kvproof.reports.template import render
from kvproof.spec.trace import Trace
from kvproof.spec.verdict import Exit

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


def campaign_page(
    searches: Sequence[CampaignSearch],
    findings: Sequence[tuple[CampaignSearch, Check]],
    messages: Sequence[str],
    exit_code: Exit,
    folder: Path,
) -> str:
    """Render the page. findings: each with its search. folder: where their traces are."""
    views, left = [], FRAMES_BYTES_MAX
    for index, (search, check) in enumerate(sorted(findings, key=lambda one: bool(one[1].excused)), 1):
        view = _view(f"finding-{index}", search.subject, check, folder, left)
        left -= len(view.frames)
        views.append(view)
    operations = sum(one.operations for one in searches)
    return render(
        TEMPLATE,
        {},
        colour=COLOURS.get(exit_code, "open"),
        badge=BADGES.get(exit_code, "inconclusive"),
        sentence=f"{number(len(searches), 'search', 'searches')}, {number(operations, 'operation', 'operations')}, "
        f"{number(sum(not check.excused for _, check in findings), 'finding', 'findings')}",
        views=views,
        rows=[
            (
                printable(one.subject),
                printable(", ".join(f"{name}={value}" for name, value in one.fixed.items())) or "–",
                one,
                printable(cut(one.reason)),
                sum(search.subject == one.subject for search, _ in findings),
            )
            for one in searches
        ],
        messages=[printable(cut(one)) for one in messages],
    )


def _view(name: str, subject: str, check: Check, folder: Path, frames_max: int) -> FindingView:
    """A finding with its run, if the run is there and fits."""
    found = FindingView(check, subject, name=name)
    if check.trace is None:
        return found
    try:
        found.path = inside(folder, check.trace)
        found.trace = read(found.path, Trace)
    except DocumentError as error:
        found.not_replayed = printable(str(error))
        return found
    frames = frames_beside(found.path) or ""
    found.frames = frames if len(frames) <= frames_max else ""
    return found
