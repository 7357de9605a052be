"""What may overlap: an event log of streams, checked on paper.

Work on one stream runs in order. A stream waits for an event that another has recorded; the host waits for what it
synchronises with; what the host enqueues runs after what the host did before. Two accesses to one cell, one of them a
write, that are ordered by none of these race: they may run in either order, whatever bytes came out this time. Cells
are blocks, and every other piece of memory that two sides touch: pinned buffers, lists of ids.

A batch is ordered as a whole; its copies are not ordered among themselves.

`replay` runs random orders that the log allows, with real values, and counts those that end otherwise than the program
order. It shows what a race does; that there is none, only `races` tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

Cell = tuple[str, int]
HOST = "host"


@dataclass(frozen=True)
class Access:
    """One piece of work: what it reads and writes, and the accesses it certainly runs after. A copy keeps values."""

    actor: str
    name: str
    reads: frozenset[Cell]
    writes: frozenset[Cell]
    after: frozenset[int]
    is_copy: bool


@dataclass(frozen=True)
class Race:
    """Two accesses to one cell that nothing orders; the first comes first in the program."""

    first: str
    second: str
    cell: Cell
    both_write: bool

    def __str__(self) -> str:
        how = "both of which write" if self.both_write else "one of which writes"
        return f"nothing orders {self.first} and {self.second}, {how} block {self.cell[1]} of {self.cell[0]}"


class EventLog:
    """What was enqueued where, in the order of the program."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self._last: dict[str, int] = {}
        self._events: dict[str, int | None] = {}

    def work(self, actor: str, name: str, reads: Iterable[Cell] = (), writes: Iterable[Cell] = ()) -> None:
        """A kernel, or something the host does: writes new values."""
        self._add(actor, name, reads, writes, self._before(actor), is_copy=False)

    def copy(self, actor: str, name: str, source: Cell, target: Cell) -> None:
        """A copy of one cell."""
        self._add(actor, name, [source], [target], self._before(actor), is_copy=True)

    def batch(self, actor: str, name: str, pairs: Iterable[tuple[Cell, Cell]]) -> None:
        """Copies in one call: none of them waits for another."""
        before = self._before(actor)
        numbers = {
            self._add(actor, f"{name} [{index}]", [source], [target], before, is_copy=True)
            for index, (source, target) in enumerate(pairs)
        }
        self._add(actor, f"the end of {name}", (), (), before | numbers, is_copy=False)

    def record(self, actor: str, event: str) -> None:
        """The event stands for all work of the actor so far."""
        self._events[event] = self._last.get(actor)

    def wait(self, actor: str, event: str) -> None:
        """Later work of the actor runs after what the event stands for now; the host blocks until then."""
        number = self._events[event]
        awaited = frozenset() if number is None else frozenset({number})
        self._add(actor, f"wait for {event}", (), (), self._before(actor) | awaited, is_copy=False)

    def races(self) -> list[Race]:
        """Every pair of accesses that race, each with one cell."""
        found, ancestors = [], self._ancestors()
        for later, second in enumerate(self.accesses):
            for earlier, first in enumerate(self.accesses[:later]):
                cells = (first.writes & (second.reads | second.writes)) | (first.reads & second.writes)
                if cells and earlier not in ancestors[later]:
                    cell = min(cells)
                    found.append(Race(first.name, second.name, cell, cell in first.writes & second.writes))
        return found

    def replay(self, num_orders: int, seed: int) -> int:
        """How many of so many random allowed orders end otherwise than the program order."""
        random, expected = Random(seed), self._end(None)
        return sum(self._end(random) != expected for _ in range(num_orders))

    def _before(self, actor: str) -> frozenset[int]:
        """What the next work of an actor waits for anyhow: its last work, and what the host did before."""
        return frozenset(self._last[name] for name in (actor, HOST) if name in self._last)

    def _add(
        self,
        actor: str,
        name: str,
        reads: Iterable[Cell],
        writes: Iterable[Cell],
        after: frozenset[int],
        *,
        is_copy: bool,
    ) -> int:
        self.accesses.append(Access(actor, name, frozenset(reads), frozenset(writes), after, is_copy))
        self._last[actor] = len(self.accesses) - 1
        return self._last[actor]

    def _ancestors(self) -> list[set[int]]:
        """For each access all that certainly run before it."""
        found: list[set[int]] = []
        for access in self.accesses:
            found.append(set().union(access.after, *(found[number] for number in access.after)))
        return found

    def _end(self, random: Random | None) -> tuple[dict[Cell, object], list[object]]:
        """What every cell holds at last, and what every access read, in an allowed order; None is program order."""
        memory: dict[Cell, object] = {}
        seen: list[object] = [None] * len(self.accesses)
        waiting = dict(enumerate(self.accesses))
        done: set[int] = set()
        while waiting:
            ready = [number for number, access in waiting.items() if access.after <= done]
            number = random.choice(ready) if random else ready[0]
            access = waiting.pop(number)
            values = [memory.get(cell, cell) for cell in sorted(access.reads)]
            seen[number] = values
            for cell in access.writes:
                memory[cell] = values[0] if access.is_copy else (number, cell, tuple(map(repr, values)))
            done.add(number)
        return memory, seen
