"""One part of a search that several processes share, with the specification read in Python.

Each part owns the states whose key's hash falls to its number. A level of the search has rounds: in a round each part
expands states that it owns, and what it reaches goes to the parts that own it. When no part has a state left, each one
ends the level: what is new becomes its next level.

The order of a transition is the rank of its state in the level, and its own place among the transitions of that state;
ranks follow the orders of the transitions that found the states. So states are found by the same transitions as in one
process, whatever the number of parts: the counts and the path to a finding are the same.
"""

import gc
import pickle
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.breadth_first import Operation
from kvproof.check.search.exhaustive.specification import space_of
from kvproof.check.search.exhaustive.specification_space import NUM_VALUES, NumberedContinuations
from kvproof.spec.text.state import State

Order = tuple[int, int]  # the rank of a state in its level, and the place of one of its transitions
Place = tuple[int, int]  # the number of a part, and the place of a state there
End = tuple[Order, Place]  # where a part ends the search: at a transition from the state at the place, or at the place
FIRST: Order = (-1, 0)  # of the initial state
NUM_SENT = 20_000  # states for other parts in one round
KEYS_MAX = 4  # for each state of the part, kept keys that are only there for speed


@dataclass
class Round:
    """What a part did in one round.

    batches: for other parts, by their numbers. stopped: why it cannot go on. end: where it ends the search, with the
    finding; None if only another process can say it. reads_left_out: why the search is not exhausted, even if it goes
    on to the end.
    """

    batches: dict[int, bytes]
    num_transitions: int
    coverage: Counter[str]
    num_states: int
    is_done: bool
    stopped: str = ""
    end: End | None = None
    finding: Finding | None = None
    reads_left_out: str = ""


@dataclass
class PartLevel:
    """The states that a part has found in a level.

    kept: what is kept of them until the end. frontier: what is needed to expand them, if `kept` is not enough. orders:
    of the transitions that found them, if that matters. num_bytes: of the part's memory for states, if it is known.
    """

    num_new: int
    kept: bytes
    frontier: bytes = b""
    orders: list[Order] = field(default_factory=list)
    end: End | None = None
    finding: Finding | None = None
    stopped: str = ""
    num_bytes: int = 0


class Part(Protocol):
    """A part of a search. A batch and a level that it returns are given to a part of the same search as they are."""

    def round(self, batches: Sequence[tuple[int, bytes]], seconds: float) -> Round:
        """Take batches, each with the part that it comes from, and expand states for so many seconds."""

    def end_level(self) -> PartLevel:
        """Make the states that are new the next level."""

    def begin_level(self, ranks: Sequence[int]) -> None:
        """Take the ranks of the states of this level, in the order in which `end_level` reported them."""

    def restore(self, kept: bytes, frontier: bytes) -> None:
        """Take one level of a part that was lost after the other, in a part that has done nothing.

        frontier: b"" but for the last one.
        """

    def came_from(self, place: int) -> tuple[Place | None, Any]:
        """Where the state at a place was reached from, and how; None for the initial state."""

    def up_to(self, order: Order) -> tuple[int, int, Counter[str]]:
        """The states and transitions of this level up to an order, and their coverage. It ends the use of the part."""


class _Pending(NamedTuple):
    order: Order
    come_from: Place | None
    operation: Operation
    state: State


class PythonPart:
    """A part whose states are those of Python. num_states_max: what it may hold."""

    def __init__(self, scope: Scope, num_states_max: int, number: int, num_parts: int) -> None:
        gc.disable()  # nothing here is cyclic
        self.number, self.num_parts, self.num_states_max = number, num_parts, num_states_max
        self.space = space_of(scope, NumberedContinuations(num_values_of(scope)))
        self._places: dict[Hashable, int] = {}
        self._came_from: list[tuple[Place | None, Operation]] = []
        self._frontier: list[tuple[int, State]] = []  # places and states
        self._ranks: Sequence[int] = ()
        self._before: tuple[Sequence[int], list[tuple[int, State]]] = (), []  # the level before, while this one begins
        self._next = 0
        self._pending: dict[Hashable, _Pending] = {}
        self._orders: list[Order] = []  # of the transitions that found the pending states, when they are sorted
        self._sent: set[Hashable] = set()  # in this level
        first = self.space.first()
        if self._owner(key := self.space.state_key(first)) == number:
            self._pending[key] = _Pending(FIRST, None, (), first)

    def _owner(self, key: Hashable) -> int:
        return hash(key) % self.num_parts  # a key consists of numbers: its hash is the same in every process

    def round(self, batches: Sequence[tuple[int, bytes]], seconds: float) -> Round:
        for sender, batch in batches:
            for key, order, place, operation, state in pickle.loads(batch):
                self._offer(key, _Pending(order, (sender, place), operation, state))
        deadline, num_transitions = time.perf_counter() + seconds, 0
        end: End | None = None
        found: Finding | None = None
        boxes: dict[int, list[tuple[Any, ...]]] = {}
        num_sent = 0
        while self._next < len(self._frontier) and time.perf_counter() < deadline and num_sent < NUM_SENT:
            place, state = self._frontier[self._next]
            rank, number = self._ranks[self._next], 0
            self._next += 1
            try:
                for number, (operation, reached) in enumerate(self.space.successors(state), 1):
                    order, key = (rank, number - 1), self.space.state_key(reached)
                    if (owner := self._owner(key)) == self.number:
                        self._offer(key, _Pending(order, (self.number, place), operation, reached))
                    elif key not in self._sent:
                        self._sent.add(key)
                        boxes.setdefault(owner, []).append((key, order, place, operation, reached))
                        num_sent += 1
            except Finding as finding:
                end, found = ((rank, number), (self.number, place)), finding
                self._next = len(self._frontier)
            num_transitions += number
        if len(self._sent) > KEYS_MAX * self.num_states_max:
            self._sent.clear()
        return Round(
            {owner: pickle.dumps(box) for owner, box in boxes.items()},
            num_transitions,
            self._coverage(),
            num_states := len(self._places) + len(self._pending),
            self._next == len(self._frontier),
            f"its {self.num_states_max:,} states" if num_states > self.num_states_max else "",
            end,
            found,
            self.space.reads_left_out,
        )

    def _offer(self, key: Hashable, new: _Pending) -> None:
        if key not in self._places and ((known := self._pending.get(key)) is None or new.order < known.order):
            self._pending[key] = new

    def _coverage(self) -> Counter[str]:
        firings = self.space.firings
        found = firings.fired + firings.witnesses
        firings.fired.clear()
        firings.witnesses.clear()
        return found

    def end_level(self) -> PartLevel:
        kept: list[tuple[Hashable, Place | None, Operation]] = []
        self._before = self._ranks, self._frontier
        end: End | None = None
        found: Finding | None = None
        self._frontier, self._next = [], 0
        expanded = sorted(self._pending.items(), key=lambda each: each[1].order)
        self._orders = [pending.order for _, pending in expanded]
        self._pending.clear()
        self._sent.clear()
        self.space.forget_keys(KEYS_MAX * self.num_states_max)
        for key, pending in expanded:
            place = len(self._came_from)
            kept.append((key, pending.come_from, pending.operation))
            self._keep(*kept[-1])
            try:
                self._frontier.append((place, self.space.expand(pending.state)))
            except Finding as finding:
                finding.tried = ()
                end, found = (pending.order, (self.number, place)), finding
                break
        return PartLevel(len(kept), pickle.dumps(kept), pickle.dumps(self._frontier), self._orders, end, found)

    def _keep(self, key: Hashable, come_from: Place | None, operation: Operation) -> None:
        self._places[key] = len(self._came_from)
        self._came_from.append((come_from, operation))

    def begin_level(self, ranks: Sequence[int]) -> None:
        self._ranks, self._before = ranks, ((), [])

    def restore(self, kept: bytes, frontier: bytes) -> None:
        self._pending.clear()
        for each in pickle.loads(kept):
            self._keep(*each)
        self._frontier = pickle.loads(frontier) if frontier else []

    def came_from(self, place: int) -> tuple[Place | None, Operation]:
        return self._came_from[place]

    def up_to(self, order: Order) -> tuple[int, int, Counter[str]]:
        """As `Part.up_to`. The states of the level are expanded again."""
        self._coverage()
        num_transitions, (last_rank, last_number) = 0, order
        for rank, (_, state) in zip(*self._before, strict=True):
            if rank > last_rank:
                break
            with suppress(Finding):
                for number, _ in enumerate(self.space.successors(state)):
                    num_transitions += 1
                    if (rank, number) == (last_rank, last_number):
                        break
        return bisect_right(self._orders, order), num_transitions, self._coverage()


def num_values_of(scope: Scope) -> int:
    """More values than are tried at one position: at most one for each sequence, and one more."""
    return scope.num_seqs + NUM_VALUES
