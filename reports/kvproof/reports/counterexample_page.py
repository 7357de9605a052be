"""The page of one counterexample: one HTML file without external resources.

The finding comes first: the method and the line, the call, and what is expected beside what is shown. Then comes the
run with one row for each sequence, a bar that selects a step, and the state of that step: tables, blocks, copies; and
the command that repeats it. Without scripts the page lists all steps as text. The page of a run has the same parts.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from kvproof.reports.counterexample import Counterexample
from kvproof.reports.explorer_data import frames_as_json
from kvproof.reports.frames import ReplayFrames
from kvproof.reports.printable import cut, printable
from kvproof.reports.template import render
from kvproof.spec.text.properties import MEANINGS, Meaning
from kvproof.spec.trace import is_about_an_answer

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = "counterexample_page.html"
SIDES = re.compile(r"^\s*expected: (.*?)\s{3,}observed: (.*)$")
CALL_ENDS = re.compile(r"\s{3,}|\n")  # in the text of a step; what the subject did follows


class FindingView(NamedTuple):
    """A finding as a page shows it.

    file, line: of the method. frames: JSON for the script. problem: of the replay. others: the same fault, found in
    other ways.
    """

    name: str  # in links
    found: Counterexample
    call: str  # the last step; empty if it is not known
    difference: str  # what is wrong, without the call
    is_about_an_answer: bool
    method: str
    file: str
    line: int
    raised: list[str]
    expected: str
    observed: str
    meaning: Meaning | None
    frames: "Markup | None"
    problem: str = ""
    others: tuple[Counterexample, ...] = ()
    why_not_drawn: str = ""  # on the page of a run


def finding_view(name: str, found: Counterexample, frames: str | None, problem: str = "") -> FindingView:
    """A finding for the template. frames: from `frames_as_json`."""
    from markupsafe import Markup

    first, *rest = printable(cut(found.check.text)).splitlines() or [""]
    sides = next((match for line in rest if (match := SIDES.match(line))), None)
    place = None if found.trace is None else found.trace.method
    call = printable(CALL_ENDS.split(found.steps[-1], maxsplit=1)[0]) if found.steps else ""
    return FindingView(
        name,
        found,
        call,
        first.removeprefix(f"{call}: "),
        found.trace is not None and is_about_an_answer(found.trace),
        printable(place.function) if place else "",
        printable(place.file) if place else "",
        place.line if place else 0,
        list(map(printable, found.innermost)) if place else [],
        sides[1] if sides else "",
        sides[2] if sides else "",
        MEANINGS.get(found.check.property),
        Markup(frames) if frames else None,
        printable(problem),
    )


def counterexample_page(found: Counterexample, replay: ReplayFrames) -> str:
    """Render the page of a counterexample from the frames of its replay."""
    frames = frames_as_json(replay) if replay.frames and not replay.problem else None
    return render(
        TEMPLATE,
        {},
        one=finding_view("finding-1", found, frames, replay.problem),
        replay=replay,
        is_repeated=replay.is_refuted and found.check.text.partition("\n")[0] in replay.outcome,
    )
