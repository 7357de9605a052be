"""Search every reachable state of a scope in C, on several cores.

Claims and obligations are evaluated in C, and so is the independent count, which is written a second time there
(`independent_count.c`). Before the search, what C reaches from the first states is compared with Python, and after it,
what C reaches from some states of the whole search. A finding of C is shown only if Python finds it too, on the path
that C has kept: the counterexample is Python's. What stopped the search (memory, time, effort) is in the result, and a
search that was stopped is not exhausted.

`CPart` is one part of a search that several processes share (`exhaustive.part`). A state is kept as its string. No
order is kept: the counts do not depend on it, and the path to a finding is as short as any.
"""

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.breadth_first import Operation
from kvproof.check.search.exhaustive.c_reader.comparison import (
    ReadersDiffer,
    compare_searches,
    compare_states,
)
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, in_use
from kvproof.check.search.exhaustive.left_out import READS_LEFT_OUT
from kvproof.check.search.exhaustive.part import FIRST, End, Order, PartLevel, Place, Round
from kvproof.check.search.exhaustive.specification import space_of
from kvproof.check.search.exhaustive.specification_calls import CallSpace
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.check.search.exhaustive.specification_space import note_claims
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.spec.c_reader.canonical_form import STREAM_MAX
from kvproof.spec.text.state import State
from kvproof.spec.text.witnesses import WITNESSES

NAME = "C reader"
NUM_COMPARED = 15  # states whose successors are compared with Python before each search, and about as many after it
NUM_COUNTS = 256
POLL_SECONDS = 0.1
WORKERS_MAX = 64
BYTES_MIN = 1 << 18
GOES_ON, TIME, TRANSITIONS, MEMORY, FOUND, TOO_LARGE, CANCELLED = range(7)  # why a search ended, as in `search.c`

BYTES_SENT = 1 << 23  # for other parts in one round
TOO_LARGE_TEXT = "one state has more identities than the C reader can name"


class ExplorationReport(ctypes.Structure):
    """What `search` in `search.c` reports."""

    _fields_ = tuple(
        (name, ctypes.c_long)
        for name in (
            "states",
            "transitions",
            "depth",
            "reason",
            "finding",
            "detail",
            "rule",
            "worker",
            "offset",
            "bytes",
            "expanded",
            "reads_left_out",
        )
    )


def memory_by_default() -> int:
    """Half of the machine's memory, in bytes."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // 2


def num_cores() -> int:
    """The cores that this process may use, at most as many as the search takes."""
    return min(WORKERS_MAX, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def explore_in_c(
    scope: Scope,
    *,
    seconds: float,
    max_transitions: int = UNLIMITED,
    progress: Callable[[int], None] | None = None,
    workers: int = 1,
    max_bytes: int | None = None,
    spec: SpecificationInC | None = None,
) -> SearchResult:
    """Search a scope for at most so many seconds and transitions, with at most so many bytes for its states.

    spec: the scope in C, if it has been loaded. Raises NoLibrary, UnfitForC, and ReadersDiffer if the two readers do
    not say the same.
    """
    spec = spec or SpecificationInC(scope)
    with in_use:
        compare_searches(spec, NUM_COMPARED)
        report, counts = _searched(spec, seconds, max_transitions, progress, workers, max_bytes or memory_by_default())
        try:
            if report.reason != FOUND:
                compare_states(spec, _sampled(spec, workers))
            return _result(spec, report, counts)
        finally:
            spec.library.forget()


def _searched(
    spec: SpecificationInC,
    seconds: float,
    max_transitions: int,
    progress: Callable[[int], None] | None,
    workers: int,
    max_bytes: int,
) -> tuple[ExplorationReport, list[int]]:
    report, counts = ExplorationReport(), (ctypes.c_long * NUM_COUNTS)()
    spec.prepare()
    has_begun: list[bool] = []

    def run() -> None:
        has_begun.append(
            spec.library.search(
                ctypes.c_int(workers),
                ctypes.c_size_t(max(max_bytes, BYTES_MIN * workers)),
                ctypes.c_double(min(seconds, 1e9)),
                ctypes.c_long(max_transitions),
                counts,
                ctypes.byref(report),
            )
        )

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            if progress and thread.is_alive():
                progress(spec.library.num_found())
    finally:
        spec.library.cancel()
        thread.join()
    if not has_begun[0]:
        raise MemoryError(f"there is no memory for a search of {max_bytes:,} bytes")
    return report, list(counts)


def _result(spec: SpecificationInC, report: ExplorationReport, counts: list[int]) -> SearchResult:
    found = SearchResult(num_states=report.states, num_operations=report.transitions, depth=report.depth)
    found.is_exhausted = report.reason == GOES_ON and not report.reads_left_out
    note_claims(found, are_asked=True)
    found.coverage = Counter({name: n for name, n in zip([*spec.rules, *WITNESSES], counts, strict=False) if n})
    is_found = report.reason == FOUND
    megabytes = f"{report.bytes / 1e6:,.1f} MB"
    if found.is_exhausted:
        found.text = f"exhausted ({NAME}): {report.states:,} states in {megabytes}"
    elif report.reason == MEMORY:
        found.text = f"stopped at {report.states:,} states, depth {report.depth}: the memory limit ends at {megabytes}"
    elif report.reason == TOO_LARGE:
        found.text = f"stopped at {report.states:,} states: one has more identities than the C reader can name"
    elif is_found:
        found.counterexample = confirmed(spec, _path(spec, (report.worker, report.offset)))
    if not found.is_exhausted and (report.reason == GOES_ON or (is_found and found.counterexample is None)):
        found.text = READS_LEFT_OUT.format("a rule")
    if spec.loaded.note:
        found.text = "; ".join(part for part in (found.text, spec.loaded.note) if part)
    return found


def _sampled(spec: SpecificationInC, workers: int) -> Iterator[bytes]:
    """States of a search that has ended: for each worker some that it has expanded."""
    for worker in range(workers):
        yield from expanded_by(spec, worker, -(-NUM_COMPARED // workers))


def expanded_by(spec: SpecificationInC, worker: int, num: int) -> list[bytes]:
    """The strings of at most so many states that a worker has expanded, evenly spaced."""
    places = (ctypes.c_long * num)()
    return [string_at(spec, worker, place)[1] for place in places[: spec.library.sample(worker, num, places)]]


def _path(spec: SpecificationInC, place: Place | None) -> list[bytes]:
    """The strings of the states on the way to the one at a place: a worker, and a place there."""
    strings: list[bytes] = []
    while place is not None:
        place, string = string_at(spec, *place)
        strings.insert(0, string)
    return strings


def string_at(spec: SpecificationInC, worker: int, place: int) -> tuple[Place | None, bytes]:
    """The place that a stored state was reached from, None for the first state; and the string of the state."""
    from_worker, from_place = ctypes.c_int(), ctypes.c_long()
    room = ctypes.create_string_buffer(2 * STREAM_MAX)
    at = ctypes.c_long(place)
    num = spec.library.stored(worker, at, ctypes.byref(from_worker), ctypes.byref(from_place), room)
    return None if from_worker.value < 0 else (from_worker.value, from_place.value), room.raw[:num]


def confirmed(spec: SpecificationInC, strings: Sequence[bytes]) -> Counterexample | None:
    """The finding as Python makes it, on the path of these strings.

    None if the text reads what strings leave out: then what Python finds there depends on how it came there. Raises
    ReadersDiffer if Python has no finding for any other reason.
    """
    space = space_of(replace(spec.scope, claims=True), text=spec.text)
    try:
        found = _found_by_python(spec, space, strings)
    except ReadersDiffer:
        if space.reads_left_out:
            return None
        raise
    return found


def _found_by_python(spec: SpecificationInC, space: RuleSpace | CallSpace, strings: Sequence[bytes]) -> Counterexample:
    """The finding on this path. A state that is wrong already may have another string in Python than in C; so where the
    path cannot be followed, what the last state leads to is asked."""
    state, path, config = space.first(), list[Operation](), spec.scope.config
    differ = None
    try:
        for string in strings[1:]:
            space.expand(state)
            try:
                operation, state = _step(spec, space, state, string)
            except ReadersDiffer as error:
                differ = error
                break
            path.append(operation)
        space.expand(state)
        for operation, reached in space.successors(state):
            path.append(operation)
            space.expand(reached)
            path.pop()
    except Finding as finding:
        return Counterexample(config, [*path, *([finding.tried] if finding.tried else [])], finding)
    raise differ or ReadersDiffer(f"C refutes a state that Python does not, after {path}")


def _step(spec: SpecificationInC, space: RuleSpace | CallSpace, state: State, string: bytes) -> tuple[Operation, State]:
    """The operation that leads to the state of a string.

    Of the identities that only blocks in flight hold, the next token takes the first: each may be the first here.
    """
    continuations = space.continuations
    for _ in range(len(state.live) + 1):
        for operation, reached in list(space.successors(state)):  # all, so that it is seen what the text reads
            if spec.string(reached, continuations.before) == string:
                return operation, reached
        continuations.rotate()
    raise ReadersDiffer(f"C reaches a state that Python does not, from {vars(state)}")


class CPart:
    """A part whose states are strings. num_bytes_max: of all parts together. num_states_max: what this one may hold."""

    def __init__(self, scope: Scope, num_bytes_max: int, num_states_max: int, number: int, num_parts: int) -> None:
        self.number, self.num_parts, self.num_states_max = number, num_parts, num_states_max
        self.spec = SpecificationInC(scope)
        self.library = self.spec.library
        self.num_bytes_max = max(num_bytes_max // num_parts, BYTES_MIN)
        self._counted, self._num_transitions, self._num_states = Counter[str](), 0, 0
        self.spec.prepare()
        for name in ("box_of_part", "end_level_of_part"):
            getattr(self.library, name).restype = ctypes.c_void_p
        memory, num_states = ctypes.c_size_t(self.num_bytes_max), ctypes.c_long(num_states_max)
        if not self.library.begin_part(number, num_parts, memory, num_states):
            raise MemoryError(f"there is no memory for a part of {self.num_bytes_max:,} bytes")
        self.library.insert_first_of_part()

    def round(self, batches: Sequence[tuple[int, bytes]], seconds: float) -> Round:
        for _, batch in batches:
            self.library.take_box(batch, ctypes.c_size_t(len(batch)))
        is_done = bool(self.library.expand_part(ctypes.c_double(seconds), ctypes.c_size_t(BYTES_SENT)))
        boxes, num = {}, ctypes.c_size_t()
        for owner in range(self.num_parts):
            place = self.library.box_of_part(owner, ctypes.byref(num))
            if num.value:
                boxes[owner] = ctypes.string_at(place, num.value)
        report, counted = self._report()
        end: End | None = (FIRST, (self.number, report.offset)) if report.reason == FOUND else None
        done = Round(
            boxes,
            report.transitions - self._num_transitions,
            counted - self._counted,
            report.states,
            is_done,
            self._stopped(report),
            end,
            reads_left_out=READS_LEFT_OUT.format("a rule") if report.reads_left_out else "",
        )
        self._counted, self._num_transitions = counted, report.transitions
        return done

    def _report(self) -> tuple[ExplorationReport, Counter[str]]:
        report, counts = ExplorationReport(), (ctypes.c_long * NUM_COUNTS)()
        self.library.report_of_part(counts, ctypes.byref(report))
        return report, Counter({name: n for name, n in zip([*self.spec.rules, *WITNESSES], counts, strict=False) if n})

    def _stopped(self, report: ExplorationReport) -> str:
        if report.reason == MEMORY:
            is_full = report.states >= self.num_states_max
            return f"its {self.num_states_max:,} states" if is_full else f"its {self.num_bytes_max / 1e6:,.1f} MB"
        return "" if report.reason in (GOES_ON, FOUND) else TOO_LARGE_TEXT

    def end_level(self) -> PartLevel:
        num = ctypes.c_size_t()
        place = self.library.end_level_of_part(ctypes.byref(num))
        report, _ = self._report()
        num_new, self._num_states = report.states - self._num_states, report.states
        kept = ctypes.string_at(place, num.value) if num.value else b""
        return PartLevel(num_new, kept, num_bytes=report.bytes, stopped=self._stopped(report))

    def begin_level(self, ranks: Sequence[int]) -> None:
        """As `Part.begin_level`: there are no ranks."""

    def restore(self, kept: bytes, frontier: bytes) -> None:
        self.library.restore_part(kept, ctypes.c_size_t(len(kept)))
        self._num_states = self._report()[0].states

    def came_from(self, place: int) -> tuple[Place | None, bytes]:
        """As `Part.came_from`: the state's string stands for how it was reached."""
        return string_at(self.spec, self.number, place)

    def expanded(self, num: int) -> list[bytes]:
        """The strings of at most so many states that it has expanded, evenly spaced, to be compared with Python."""
        return expanded_by(self.spec, self.number, num)

    def up_to(self, order: Order) -> tuple[int, int, Counter[str]]:
        """As `Part.up_to`: there is no order, and everything counts."""
        return 0, 0, Counter()
