"""The drawings of docs/index.md and docs/why.md: `python -m docs.generate.diagrams` writes them to docs/pictures.

A drawing has its own white ground with a margin, so it looks the same on a light page, on a dark one and on paper. The
findings are rows of boxes, written as those of `property_pictures`.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from docs.generate.property_pictures import KINDS, Row

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
MARGIN, LINE, GAP, CHARACTER, PADDING = 24, 30, 12, 7.9, 10
INK, GREY, WRONG, RIGHT = "#1b1f24", "#6a737d", "#c24a00", "#00866a"
STROKES = {"": (INK, 1), "wrong": (WRONG, 2), "right": (RIGHT, 2), "free": (GREY, 1)}

FINDINGS: dict[str, tuple[str, tuple[Row, ...]]] = {
    "finding-adapter": (
        "vLLM 0.11.1 to 0.30.0: one name of an adapter, two sets of weights",
        (
            ("1. request 1, adapter 'law' (id 1)", "A B  computed: block 0"),
            ("2. the key of block 0", "A B, 'law'"),
            ("3. 'law' is loaded again", "~other weights, id 2"),
            ("4. request 2, adapter 'law' (id 2)", "A B  !hits block 0"),
            ("it reads", "!KV of the old weights"),
        ),
    ),
    "finding-page-twice": (
        "LMCache 0.5.2 to 0.5.6: a page comes back twice",
        (
            ("1. the last reader is done", "page 7: count 1 → 0"),
            ("free pages", "~7"),
            ("2. one count down too many", "page 7: count 0 → -1, set to 0"),
            ("free pages", "~7  !7"),
            ("3. two allocations", "page 7 for A  !page 7 for B"),
        ),
    ),
    "finding-lease": (
        "vLLM 0.26.0 to 0.33.0 with NIXL: a read that outlives its lease",
        (
            ("1. prefill holds for 30 s", "block 3: KV of prompt P"),
            ("2. decode begins to read", "block 3"),
            ("3. the lease ends", "~block 3 is free"),
            ("4. prefill computes", "block 3: KV of prompt Q"),
            ("5. the read is over", "!decode answers with the KV of Q"),
        ),
    ),
}


class Box(NamedTuple):
    """A box of the drawing of how it works: its corner, its size, and its lines, the first of which is its head."""

    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...]
    kind: str = ""


BOXES = (
    Box(24, 24, 212, 92, ("calls", "random walks, small scopes,", "Hypothesis; shrinking")),
    Box(24, 156, 212, 92, ("specification", "small rules, proved by Z3", "for every size")),
    Box(276, 24, 184, 92, ("adapter", "about ten one-line", "calls; decides nothing")),
    Box(500, 24, 236, 92, ("your manager", "or an engine's, a scheduler,", "a store, a pair of engines")),
    Box(
        276,
        156,
        460,
        92,
        ("judge", "after each call: do rules of the specification explain", "the answer, the tables and the bytes?"),
    ),
    Box(276, 288, 222, 92, ("yes: the next call", "not refuted by N operations", "exhausted in small scopes"), "right"),
    Box(514, 288, 222, 92, ("no: a finding", "shortest run, page,", "regression test, exit code 1"), "wrong"),
)
ARROWS = (
    (236, 70, 276, 70),
    (460, 70, 500, 70),
    (618, 116, 618, 156),
    (236, 202, 276, 202),
    (387, 248, 387, 288),
    (625, 248, 625, 288),
)


def how_it_works() -> str:
    """Calls, adapter, manager, judge and specification, and what comes out."""
    parts = [part for box in BOXES for part in _box_of_lines(box)]
    parts += [f'<path d="M{x} {y}L{u} {v}" stroke="{INK}" marker-end="url(#end)"/>' for x, y, u, v in ARROWS]
    return _drawing("How kvproof works", 760, 404, parts)


def finding(name: str) -> str:
    """The rows of a finding, one below the other."""
    title, rows = FINDINGS[name]
    parts = [_text(MARGIN, MARGIN + 14, title, weight=700)]
    left = MARGIN + max(len(label) for label, _ in rows) * CHARACTER + GAP
    width = MARGIN + len(title) * CHARACTER
    for number, (label, boxes) in enumerate(rows, 1):
        y, x = MARGIN + number * (LINE + GAP), left
        parts.append(_text(MARGIN, y + 20, label))
        for box in boxes.split("  "):
            kind = KINDS.get(box[0], "")
            text = box[1:] if kind else box
            size = len(text) * CHARACTER + 2 * PADDING
            parts += [_rectangle(x, y, size, LINE, kind), _text(x + PADDING, y + 20, text, kind)]
            x += size + GAP
        width = max(width, x)
    return _drawing(title, round(width + MARGIN), round(2 * MARGIN + (len(rows) + 1) * (LINE + GAP) - GAP), parts)


def _box_of_lines(box: Box) -> Iterator[str]:
    yield _rectangle(box.x, box.y, box.width, box.height, box.kind)
    head, *lines = box.lines
    yield _text(box.x + PADDING, box.y + 26, head, box.kind, weight=700)
    for number, line in enumerate(lines):
        yield _text(box.x + PADDING, box.y + 52 + 22 * number, line, size=12)


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    colour, stroke = STROKES[kind]
    dashes = ' stroke-dasharray="4 3"' if kind == "free" else ""
    corner, size = f'x="{x:.0f}" y="{y:.0f}"', f'width="{width:.0f}" height="{height:.0f}"'
    return f'<rect {corner} {size} rx="5" fill="none" stroke="{colour}" stroke-width="{stroke}"{dashes}/>'


def _text(x: float, y: float, text: str, kind: str = "", weight: int = 400, size: int = 13) -> str:
    colour, weight = STROKES[kind][0], 700 if kind == "wrong" else weight
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}"'
    return f'<text {place} font-weight="{weight}" fill="{colour}">{escape(text, quote=False)}</text>'


def _drawing(title: str, width: int, height: int, parts: list[str]) -> str:
    marker = (
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
    )
    ground = f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d0d7de"/>'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace"><title>{escape(title)}</title>'
    )
    return "\n".join([head, marker, ground, *parts, "</svg>\n"])


def drawings() -> dict[str, str]:
    """The drawings, by the name of their file."""
    return {"how-it-works.svg": how_it_works()} | {f"{name}.svg": finding(name) for name in FINDINGS}


if __name__ == "__main__":
    for file, drawing in drawings().items():
        (FOLDER / file).write_text(drawing, encoding="utf-8")
