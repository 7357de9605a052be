"""Find races between streams in an event log, without running anything.

Work on one stream runs in order. A stream waits for an event that another stream recorded. The host waits for the
events with which it synchronises. Work that the host enqueues runs after everything the host did before. Two accesses
to the same cell race if one of them is a write and none of these rules orders them: they may run in either order, even
if a particular run gave the right bytes. A cell is a block, or any other memory that two sides use: a pinned buffer, a
list of ids.

A batch is ordered as a whole; the copies in it are not ordered among themselves.

`replay` executes random orders that the log allows, with symbolic values, and counts those that end differently from
program order. It demonstrates the effect of a race. Only `races` can show that there is none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

Cell = tuple[str, int]
HOST = "host"


@dataclass(frozen=True)
class Access:
    """One piece of work. after: numbers of accesses that certainly run before it. is_copy: it writes what it reads."""

    actor: str
    name: str
    reads: frozenset[Cell]
    writes: frozenset[Cell]
    after: frozenset[int]
    is_copy: bool


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to one cell. `first` comes first in the program."""

    first: str
    second: str
    cell: Cell
    both_write: bool

    def __str__(self) -> str:
        how = "both write" if self.both_write else "one of them writes"
        return f"nothing orders {self.first} and {self.second}, and {how} block {self.cell[1]} of {self.cell[0]}"


class EventLog:
    """The work that was enqueued on each stream, in program order. An actor is a stream or HOST."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self._last: dict[str, int] = {}
        self._events: dict[str, int | None] = {}

    def work(self, actor: str, name: str, reads: Iterable[Cell] = (), writes: Iterable[Cell] = ()) -> None:
        """Add a kernel, or work of the host. It writes new values."""
        self._add(actor, name, reads, writes, self._before(actor), is_copy=False)

    def copy(self, actor: str, name: str, source: Cell, target: Cell) -> None:
        self._add(actor, name, [source], [target], self._before(actor), is_copy=True)

    def batch(self, actor: str, name: str, pairs: Iterable[tuple[Cell, Cell]]) -> None:
        """Add copies that one call makes. None of them waits for another."""
        before = self._before(actor)
        numbers = {
            self._add(actor, f"{name} [{index}]", [source], [target], before, is_copy=True)
            for index, (source, target) in enumerate(pairs)
        }
        self._add(actor, f"the end of {name}", (), (), before | numbers, is_copy=False)

    def record(self, actor: str, event: str) -> None:
        """Record an event, which stands for all work of the actor so far."""
        self._events[event] = self._last.get(actor)

    def wait(self, actor: str, event: str) -> None:
        """Make later work of the actor run after the work that the event stands for now."""
        number = self._events[event]
        awaited = frozenset() if number is None else frozenset({number})
        self._add(actor, f"wait for {event}", (), (), self._before(actor) | awaited, is_copy=False)

    def races(self) -> list[Race]:
        """All pairs of accesses that race, each with one cell."""
        found, ancestors = [], self._ancestors()
        for later, second in enumerate(self.accesses):
            for earlier, first in enumerate(self.accesses[:later]):
                cells = (first.writes & (second.reads | second.writes)) | (first.reads & second.writes)
                if cells and earlier not in ancestors[later]:
                    cell = min(cells)
                    found.append(Race(first.name, second.name, cell, cell in first.writes & second.writes))
        return found

    def replay(self, num_orders: int, seed: int) -> int:
        """Execute `num_orders` random allowed orders. Returns how many end differently from program order."""
        random, expected = Random(seed), self._end(None)
        return sum(self._end(random) != expected for _ in range(num_orders))

    def _before(self, actor: str) -> frozenset[int]:
        """The accesses that always precede the next work of an actor: its last work and the last work of the host."""
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
        """For each access, the numbers of all accesses that certainly run before it."""
        found: list[set[int]] = []
        for access in self.accesses:
            found.append(set().union(access.after, *(found[number] for number in access.after)))
        return found

    def _end(self, random: Random | None) -> tuple[dict[Cell, object], list[object]]:
        """The final content of every cell, and what each access read, in an allowed order. None: program order."""
        memory: dict[Cell, object] = {}
        reads: list[object] = [None] * len(self.accesses)
        waiting = dict(enumerate(self.accesses))
        done: set[int] = set()
        while waiting:
            ready = [number for number, access in waiting.items() if access.after <= done]
            number = random.choice(ready) if random else ready[0]
            access = waiting.pop(number)
            values = [memory.get(cell, cell) for cell in sorted(access.reads)]
            reads[number] = values
            for cell in access.writes:
                memory[cell] = values[0] if access.is_copy else (number, cell, tuple(map(repr, values)))
            done.add(number)
        return memory, reads
