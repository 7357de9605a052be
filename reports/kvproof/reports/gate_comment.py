"""What a change adds, repairs and leaves, as lines for a terminal and as a comment for the page of a pull request."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kvproof.reports.counterexample import counterexamples, ranges, shortest_first
from kvproof.reports.markdown import fitted, folded, inline
from kvproof.reports.result import Result
from kvproof.reports.summary import number, sentence
from kvproof.spec.verdict import Exit

ADDED = "new finding: "
REPAIRED, LEFT, OPEN = "Repaired", "Left as it was", "Not met again, and not shown to be repaired"
GOOD, BAD, UNDECIDED = "✅", "❌", "⚠️"
NOT_LOOKED_AT = "Not looked at"
NAMED_MAX = 20  # places of a change, in a comment


@dataclass(frozen=True)
class Change:
    """A change between two states that are called `base` and `head`.

    words: options that both hunts had. now: the result of the second, which has the first as its baseline. fates: the
    findings of the base, by what became of each: REPAIRED, LEFT or OPEN. changed: the lines of each file that differ,
    by its path from the root of the repository.
    """

    subject: str
    base: str
    head: str
    words: list[str]
    now: Result
    fates: dict[str, list[str]]
    changed: dict[str, list[int]] = field(default_factory=dict)

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
        if self.is_unseen and not self.added:
            return (
                f"No walk of {self.subject} entered a file that {self.head} changes: this says nothing of the change."
            )
        counts = f"it repairs {len(self.fates[REPAIRED])} and leaves {len(self.fates[LEFT])}"
        if self.fates[OPEN]:
            counts += f", and {len(self.fates[OPEN])} were not met again"
        if self.added:
            return f"{self.head} adds {adds} to {self.base}; {counts}."
        if self.now.exit_code() is Exit.OK:
            return f"{self.head} adds no finding to {self.base}; {counts}."
        return f"{self.head} adds no finding to {self.base}, and not all was judged; {counts}."

    @property
    def not_looked_at(self) -> list[str]:
        """The changed lines that no walk of the second hunt ran, in words; nothing if which lines ran is not known."""
        code = self.now.code
        if code is None or code.why_unknown:
            return []
        found = []
        for name, changed in self.changed.items():
            files = [one for one in code.files if _is_same(one.file, name)]
            if not files:
                found.append(f"{name}: no walk of {self.subject} entered this file")
            for one in (one for file in files for one in file.partly):
                if lines := sorted({*changed} & {*one.lines}):
                    found.append(f"{name}: {_counted(lines)} of {one.function}")
        return found

    @property
    def is_unseen(self) -> bool:
        """Whether no walk entered a file of the change, although which files they entered is known."""
        code = self.now.code
        if code is None or code.why_unknown or not self.changed:
            return False
        return not any(_is_same(one.file, name) for one in code.files for name in self.changed)

    @property
    def _worse(self) -> list[str]:
        return [] if self.now.difference is None else self.now.difference.worse


def lines(change: Change) -> Iterator[tuple[str, str]]:
    """The change for a terminal: lines, each with a style."""
    yield from ((f"  added: {one}", "red") for one in change.added)
    for fate, style in ((REPAIRED, "green"), (LEFT, "dim"), (OPEN, "yellow")):
        yield from ((f"  {fate.lower()}: {one}", style) for one in change.fates[fate])
    yield from ((f"  {one}", "yellow") for one in change.lost)
    yield from ((f"  {NOT_LOOKED_AT.lower()}: {one}", "yellow") for one in change.not_looked_at[:NAMED_MAX])
    yield change.verdict, ""


def comment(change: Change, folder: Path) -> str:
    """The change as Markdown. folder: of the result of the head."""
    code = change.now.exit_code()
    mark = BAD if change.added else GOOD if code is Exit.OK and not change.is_unseen else UNDECIDED
    head = [f"## kvproof gate: {inline(change.subject)}", f"{mark} **{inline(change.verdict)}**"]
    if not change.added and code is not Exit.OK:
        head.append(inline(sentence(change.now)))
    found = shortest_first(counterexamples(change.now, folder))
    added = [folded(one, others) for one, others in found if one.check.is_failure]
    unseen = change.not_looked_at
    more = [f"and {len(unseen) - NAMED_MAX} more places"] if len(unseen) > NAMED_MAX else []
    parts = [*change.fates.items(), ("Less was judged", change.lost), (NOT_LOOKED_AT, [*unseen[:NAMED_MAX], *more])]
    tail = [f"**{title}**\n\n" + "\n".join(f"- {inline(one)}" for one in rows) for title, rows in parts if rows]
    tail.append(f"Both states were hunted with `{shlex.join(change.words)}`.")
    return fitted(head, added, tail)


def _is_same(file: str, name: str) -> bool:
    """Whether a file of a subject, named from the folder of its package or from elsewhere, is one of the repository."""
    ours, theirs = Path(file).parts, Path(name).parts
    length = min(len(ours), len(theirs))
    return ours[-length:] == theirs[-length:]


def _counted(lines: list[int]) -> str:
    return f"line {lines[0]}" if len(lines) == 1 else f"lines {ranges(lines)}"
