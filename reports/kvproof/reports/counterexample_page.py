"""The page of one counterexample: one HTML file without external resources.

The finding comes first, then an overview with one row for each sequence and one column for each step, then a slider
that selects a step. Below it are the tables of that step, entry by entry, and the blocks with their refcounts. Cells in
which the subject differs from the specification are marked. Without scripts the page lists all steps.
"""

from typing import NamedTuple

from kvproof.reports.counterexample import Counterexample
from kvproof.reports.frames import Block, Frame, Lane, ReplayFrames
from kvproof.reports.template import render

TEMPLATE = "counterexample_page.html"
HUE_STEP = 47  # degrees between blocks that follow each other


class Cell(NamedTuple):
    """One sequence at one step, in the overview."""

    text: str
    differs: bool
    is_changed: bool


def counterexample_page(found: Counterexample, replay: ReplayFrames) -> str:
    """Render the page of a counterexample from the frames of its replay."""
    filters = {"hue": lambda block: block * HUE_STEP % 360, "block": lambda block: block_name(block, replay)}
    return render(
        TEMPLATE,
        filters,
        found=found,
        replay=replay,
        overview=overview(replay),
        devices=devices(replay),
        last=len(replay.frames) - 1,
        is_repeated=replay.is_refuted and found.check.text.partition("\n")[0] in replay.outcome,
        is_marked=bool(replay.frames) and replay.frames[-1].is_marked,
    )


def block_name(block: int, replay: ReplayFrames) -> str:
    """The name of a block in the steps: its id, or `host N` for a host block."""
    return f"host {block - replay.num_gpu_blocks}" if block >= replay.num_gpu_blocks else str(block)


def overview(replay: ReplayFrames) -> list[tuple[str, list[Cell]]]:
    """For each lane, its name and one cell for each frame."""
    names = dict.fromkeys(lane.name for frame in replay.frames for lane in frame.lanes)
    rows = []
    for name in names:
        cells: list[Cell] = []
        for frame in replay.frames:
            lane = next((lane for lane in frame.lanes if lane.name == name), None)
            text = "" if lane is None else _in_short(lane, replay)
            cells.append(Cell(text, lane is not None and lane.differs, bool(cells) and text != cells[-1].text))
        rows.append((name, cells))
    return rows


def _in_short(lane: Lane, replay: ReplayFrames) -> str:
    blocks = ["·" if entry.block is None else block_name(entry.block, replay) for entry in lane.entries]
    return ", ".join(blocks) or lane.status


def devices(replay: ReplayFrames) -> list[tuple[str, list[list[Block]]]]:
    """For each device, its name and its blocks in each frame. Blocks that no frame lists are left out."""
    found = []
    listed = sorted({block.id for frame in replay.frames for block in frame.blocks})
    pools = replay.frames[0].pools if replay.frames else ()
    limits = (
        (pools[0].name if pools else "GPU", 0, replay.num_gpu_blocks),
        ("host", replay.num_gpu_blocks, replay.num_gpu_blocks + replay.num_host_blocks),
    )
    for name, first, end in limits:
        ids = [id for id in listed if first <= id < end]
        if ids:
            found.append((name, [_blocks(frame, ids) for frame in replay.frames]))
    return found


def _blocks(frame: Frame, ids: list[int]) -> list[Block]:
    there = {block.id: block for block in frame.blocks}
    return [there.get(id, Block(id)) for id in ids]
