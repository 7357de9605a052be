"""The page of one counterexample: one HTML file without external resources.

The finding comes first: the method and the line, the call, and what is expected beside what is shown. Then comes the
run with one row for each sequence, a bar that selects a step, and the state of that step: tables, blocks, copies; and
the command that repeats it. Without scripts the page lists all steps as text. The page of a run has the same parts.
"""

from dataclasses import replace

from kvproof.reports.counterexample import FindingView
from kvproof.reports.explorer_data import frames_as_json
from kvproof.reports.frames import ReplayFrames
from kvproof.reports.printable import printable
from kvproof.reports.template import render

TEMPLATE = "counterexample_page.html"


def counterexample_page(found: FindingView, replay: ReplayFrames) -> str:
    """Render the page of a counterexample from the frames of its replay."""
    frames = frames_as_json(replay) if replay.frames and not replay.problem else ""
    return render(
        TEMPLATE,
        {},
        one=replace(found, name="finding-1", frames=frames, not_replayed=printable(replay.problem)),
        replay=replay,
        is_repeated=replay.is_refuted and found.check.text.partition("\n")[0] in replay.outcome,
    )
