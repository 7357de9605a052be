"""Find races between streams in an event log, without running anything.

Work on one stream runs in order. A stream waits for an event that another stream recorded. The host waits for the
events with which it synchronises. Work that the host enqueues runs after everything the host did before. Two accesses
to the same cell race if one of them is a write and none of these rules orders them: they may run in either order, even
if a particular run gave the right bytes. A cell is a block, or any other memory that two sides use: a pinned buffer, a
list of ids.

A batch is ordered as a whole; the copies in it are not ordered among themselves.

`replay` executes random orders that the log allows, with symbolic values, and counts those that end differently from
program order. It demonstrates the effect of a race. Only `races` can show that there is none.

Each run tests the check itself, on event logs with and without a race, modelled on faults of engines. If it misses a
race or reports one that does not exist, it is faulty. Sources are given as project and number of the issue or pull
request.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from kvproof.check.data_plane.run.results import RaceResult

Cell = tuple[str, int]
HOST = "host"

NUM_ORDERS = 100


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


@dataclass(frozen=True)
class LogCase:
    """One event log, and whether it has a race. write: adds the work to a log."""

    name: str
    has_race: bool
    write: Callable[[EventLog], None]

    @property
    def sentence(self) -> str:
        """What happens in the log."""
        return (self.write.__doc__ or "").strip()


def gpu(block: int) -> Cell:
    return "the GPU pool", block


def cpu(block: int) -> Cell:
    return "the CPU pool", block


def pinned(buffer: int) -> Cell:
    return "the pinned buffers", buffer


def one_stream(log: EventLog) -> None:
    """Swaps, copies and the model on one stream, as vLLM's V0 worker does: all in order."""
    log.copy("main", "swap in", cpu(1), gpu(5))
    log.copy("main", "swap out", gpu(6), cpu(2))
    log.copy("main", "copy", gpu(7), gpu(6))
    log.work("main", "the model", [gpu(5), gpu(6)], [gpu(6)])


def store_without_wait(log: EventLog) -> None:
    """A block is stored on a stream of its own while the model may still write it (vLLM 31341, 45704)."""
    log.work("main", "the model", [], [gpu(5)])
    log.copy("store", "the store", gpu(5), cpu(1))


def store_after_wait(log: EventLog) -> None:
    """The store waits for the model."""
    log.work("main", "the model", [], [gpu(5)])
    log.record("main", "written")
    log.wait("store", "written")
    log.copy("store", "the store", gpu(5), cpu(1))


def load_over_read(log: EventLog) -> None:
    """A load overwrites a freed block while attention of the previous step still reads it (vLLM 47282)."""
    log.work("main", "attention", [gpu(5)], [gpu(9)])
    log.copy("load", "the load", cpu(1), gpu(5))


def load_then_use(log: EventLog) -> None:
    """Attention reads a block without waiting for its load (SGLang 22811)."""
    log.copy("load", "the load", cpu(1), gpu(5))
    log.work("main", "attention", [gpu(5)], [gpu(9)])


def load_after_wait(log: EventLog) -> None:
    """The load waits for attention, and the next attention waits for the load."""
    log.work("main", "attention 1", [gpu(5)], [gpu(9)])
    log.record("main", "read")
    log.wait("load", "read")
    log.copy("load", "the load", cpu(1), gpu(5))
    log.record("load", "loaded")
    log.wait("main", "loaded")
    log.work("main", "attention 2", [gpu(5)], [gpu(9)])


def pinned_buffer_reused(log: EventLog) -> None:
    """The host refills a pinned buffer before the first copy has read it (TensorRT-LLM 15546)."""
    log.work(HOST, "filling 1", [], [pinned(0)])
    log.copy("copies", "copy 1", pinned(0), gpu(1))
    log.work(HOST, "filling 2", [], [pinned(0)])
    log.copy("copies", "copy 2", pinned(0), gpu(2))


def pinned_buffer_awaited(log: EventLog) -> None:
    """The host waits for the first copy before it refills the buffer."""
    log.work(HOST, "filling 1", [], [pinned(0)])
    log.copy("copies", "copy 1", pinned(0), gpu(1))
    log.record("copies", "copied")
    log.wait(HOST, "copied")
    log.work(HOST, "filling 2", [], [pinned(0)])
    log.copy("copies", "copy 2", pinned(0), gpu(2))


def chained_batch(log: EventLog) -> None:
    """One call copies a block to a second and the second to a third."""
    log.batch("main", "copy_blocks", [(gpu(30), gpu(31)), (gpu(31), gpu(32))])


def doubled_batch(log: EventLog) -> None:
    """One call copies two blocks to the same place."""
    log.batch("main", "copy_blocks", [(gpu(30), gpu(40)), (gpu(31), gpu(40))])


def disjoint_batch(log: EventLog) -> None:
    """One call copies one block to two places and another to a third."""
    log.batch("main", "copy_blocks", [(gpu(30), gpu(40)), (gpu(30), gpu(41)), (gpu(31), gpu(42))])


def read_too_early(log: EventLog) -> None:
    """The host reads the target of a copy without waiting for the copy."""
    log.copy("copies", "the copy", gpu(1), cpu(3))
    log.work(HOST, "the host's reading", [cpu(3)], [])


def two_directions(log: EventLog) -> None:
    """A block is swapped out on one stream, and a swap in on another stream overwrites it."""
    log.copy("out", "swap out", gpu(5), cpu(1))
    log.copy("in", "swap in", cpu(9), gpu(5))


def wrong_event(log: EventLog) -> None:
    """Events are stored by slot but not by pool, so a stream waits for the wrong one (TensorRT-LLM 15272)."""
    log.copy("off", "offload", gpu(0), cpu(1))
    log.record("off", "slot 0")
    log.copy("on", "onboard 1", cpu(0), gpu(1))
    log.record("on", "slot 0")
    log.wait("again", "slot 0")
    log.copy("again", "onboard 2", cpu(5), gpu(0))


LOGS: tuple[LogCase, ...] = (
    LogCase("one-stream", False, one_stream),
    LogCase("store-without-wait", True, store_without_wait),
    LogCase("store-after-wait", False, store_after_wait),
    LogCase("load-over-read", True, load_over_read),
    LogCase("load-then-use", True, load_then_use),
    LogCase("load-after-wait", False, load_after_wait),
    LogCase("pinned-buffer-reused", True, pinned_buffer_reused),
    LogCase("pinned-buffer-awaited", False, pinned_buffer_awaited),
    LogCase("chained-batch", True, chained_batch),
    LogCase("doubled-batch", True, doubled_batch),
    LogCase("disjoint-batch", False, disjoint_batch),
    LogCase("read-too-early", True, read_too_early),
    LogCase("two-directions", True, two_directions),
    LogCase("wrong-event", True, wrong_event),
)


def judge_races(seed: int) -> list[RaceResult]:
    """Check every log for races, and replay it in random orders."""
    found = []
    for case in LOGS:
        log = EventLog()
        case.write(log)
        races = log.races()
        message = str(races[0]) if races else "all accesses to the same block are ordered"
        corrupt = log.replay(NUM_ORDERS, seed)
        found.append(RaceResult(case.name, case.sentence, case.has_race, bool(races), message, corrupt, NUM_ORDERS))
    return found
