"""What a change adds, repairs and leaves, as lines for a terminal and as a comment for the page of a pull request."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvproof.reports.counterexample import counterexamples, shortest_first
from kvproof.reports.markdown import fitted, folded, inline
from kvproof.reports.result import Result
from kvproof.reports.summary import number, sentence
from kvproof.spec.verdict import Exit

ADDED = "new finding: "
REPAIRED, LEFT, OPEN = "Repaired", "Left as it was", "Not met again, and not shown to be repaired"
GOOD, BAD, UNDECIDED = "✅", "❌", "⚠️"


@dataclass(frozen=True)
class Change:
    """A change between two states that are called `base` and `head`.

    words: options that both hunts had. now: the result of the second, which has the first as its baseline. fates: the
    findings of the base, by what became of them: REPAIRED, LEFT or OPEN.
    """

    subject: str
    base: str
    head: str
    words: list[str]
    now: Result
    fates: dict[str, list[str]]

    @property
    def added(self) -> list[str]:
        """The findings that the base does not have."""
        return [one.removeprefix(ADDED) for one in self._worse if one.startswith(ADDED)]

    @property
    def lost(self) -> list[str]:
        """What was judged or reached in the base and not any more; nothing if a finding ended searches early."""
        return [] if self.added else [one for one in self._worse if not one.startswith(ADDED)]

    @property
    def verdict(self) -> str:
        """One sentence: what the change does."""
        adds = number(len(self.added), "finding", "findings")
        counts = f"it repairs {len(self.fates[REPAIRED])} and leaves {len(self.fates[LEFT])}"
        if self.fates[OPEN]:
            counts += f", and {len(self.fates[OPEN])} were not met again"
        if self.added:
            return f"{self.head} adds {adds} to {self.base}; {counts}."
        if self.now.exit_code() is Exit.OK:
            return f"{self.head} adds no finding to {self.base}; {counts}."
        return f"{self.head} adds no finding to {self.base}, and not all was judged; {counts}."

    @property
    def _worse(self) -> list[str]:
        return [] if self.now.difference is None else self.now.difference.worse


def lines(change: Change) -> Iterator[tuple[str, str]]:
    """The change for a terminal: lines, each with a style."""
    yield from ((f"  added: {one}", "red") for one in change.added)
    for fate, style in ((REPAIRED, "green"), (LEFT, "dim"), (OPEN, "yellow")):
        yield from ((f"  {fate.lower()}: {one}", style) for one in change.fates[fate])
    yield from ((f"  {one}", "yellow") for one in change.lost)
    yield change.verdict, ""


def comment(change: Change, folder: Path) -> str:
    """The change as Markdown. folder: of the result of the head."""
    code = change.now.exit_code()
    mark = BAD if change.added else GOOD if code is Exit.OK else UNDECIDED
    head = [f"## kvproof gate: {inline(change.subject)}", f"{mark} **{inline(change.verdict)}**"]
    if not change.added and code is not Exit.OK:
        head.append(inline(sentence(change.now)))
    found = shortest_first(counterexamples(change.now, folder))
    added = [folded(one, others) for one, others in found if one.check.is_failure]
    parts = [*change.fates.items(), ("Less was judged", change.lost)]
    tail = [f"**{title}**\n\n" + "\n".join(f"- {inline(one)}" for one in rows) for title, rows in parts if rows]
    tail.append(f"Both states were hunted with `{shlex.join(change.words)}`.")
    return fitted(head, added, tail)
