"""The page of a counterexample, and the frames of a replay as its data: JSON that is safe within a `script` element.

A page shows texts of a subject, which may hold anything. So no character of the JSON can end or open an element, and
characters that act on a reader (`kvproof.reports.printable`) are written as escapes before they come in.

Of the blocks, each frame has only those that changed since the frame before. The page of a run takes the frames from
the pages of its counterexamples, because it is rendered without the subject.

The page of one counterexample is one HTML file without external resources. The finding comes first: the method and the
line, the call, and what is expected beside what is shown. Then comes the run with one row for each sequence, a bar that
selects a step, and the state of that step: tables, blocks, copies; and the command that repeats it. Without scripts the
page lists all steps as text. The page of a run has the same parts.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from kvproof.reports.counterexample import FindingView, page_of
from kvproof.reports.document import DocumentError, encodable, read_bytes
from kvproof.reports.frames import Block, ReplayFrames
from kvproof.reports.printable import cut, printable
from kvproof.reports.template import render

BYTES_MAX = 30 << 20  # of a page that is read back
BEGIN, END = b'<script type="application/json" class="frames">', b"</script>"  # of the element with the frames
IN_A_SCRIPT = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})

TEMPLATE = "counterexample_page.html"


def frames_as_json(replay: ReplayFrames) -> str:
    """The frames as JSON, safe within a `script` element."""
    data = msgspec.to_builtins(replay)
    before: dict[int, Any] = {}
    for frame in data["frames"]:
        now = {block[0]: block for block in frame["blocks"]}
        gone = [tuple(Block(number)) for number in before if number not in now]
        frame["blocks"] = [block for number, block in now.items() if before.get(number) != block] + gone
        before = now
    return msgspec.json.encode(_shown(encodable(data))).decode().translate(IN_A_SCRIPT)


def frames_beside(trace: Path) -> str | None:
    """The frames of the page beside a trace, as JSON; None if there is no page, or it is none of kvproof."""
    try:
        _, _, rest = read_bytes(page_of(trace), BYTES_MAX).partition(BEGIN)
        element, end, _ = rest.partition(END)
        data = msgspec.json.decode(element, type=ReplayFrames) if end else None
    except (DocumentError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if data is None or not data.frames:
        return None
    return msgspec.json.encode(_shown(msgspec.to_builtins(data))).decode().translate(IN_A_SCRIPT)


def _shown(value: Any) -> Any:
    """A JSON value with every text as it may be shown."""
    if isinstance(value, str):
        return printable(cut(value))
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return value


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
