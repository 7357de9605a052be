"""The space of single rules: one transition is one firing, with every argument that is not a mere renaming of another.

Left out, without loss of generality: a free block other than the lowest of its pool, a sequence that does not exist
other than the lowest, likewise a flight that is not under way, a token value when a like one is tried
(`Continuations`). Rows continue what the sequence knows: identities are functional, so no row can hold an identity of
another position.

A firing that is refused must leave every field, ghosts included, as it was.
"""

from collections.abc import Iterator

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.breadth_first import Operation
from kvproof.check.search.exhaustive.places import machine_for_searches
from kvproof.check.search.exhaustive.specification_space import ROOT, Continuations, SpecificationSpace
from kvproof.spec.native import Machine
from kvproof.spec.syntax_trees import Functions
from kvproof.spec.text.operations import row_of
from kvproof.spec.text.state import FREE, NONE, State
from kvproof.spec.text.witnesses import witnesses_after, witnesses_before


class RuleSpace(SpecificationSpace):
    """Single firings, ghosts and obligations on."""

    def __init__(
        self,
        scope: Scope,
        machine: Machine | None = None,
        continuations: Continuations | None = None,
        text: Functions | None = None,
    ) -> None:
        machine = machine or machine_for_searches(sizes_of(scope), with_ghosts=True, text=text)
        super().__init__(scope, machine, True, continuations, text)

    def transitions(self, state: State) -> Iterator[tuple[Operation, State]]:
        """Every firing that is not refused."""
        copy, fire = self.machine.copy, self.firings.fire
        key = self._keys.of(state)
        work = copy(state)
        for operation in self.candidates(state):
            rule, arguments = operation[0], operation[1:]
            refused = fire(work, rule, arguments, operation)
            if refused is None:
                self.firings.count(
                    rule, [*witnesses_before(state, rule, arguments), *witnesses_after(work, rule, arguments)]
                )
                yield operation, work
                work = copy(state)
            elif vars(work) != vars(state):
                text = f"{rule} is refused, because {refused.sentence} does not hold, and changes the state"
                raise Finding("failed-call-changes-nothing", text, tried=operation)
        if self._keys.of(state) != key:
            text = "a firing on a copy of the state changes the state itself"
            raise Finding("frame-kept", text, tried=())

    def candidates(self, state: State) -> Iterator[Operation]:
        """Rules and arguments to try."""
        scope = self.scope
        seqs = self._seqs(state)
        blocks = self._blocks(state)
        used = self._identities(state)
        flights = self._flights(state)
        for seq in seqs:
            yield "admit", seq, scope.window
            yield "begin_free", seq
            yield "drop_last", seq
            yield "finish", seq
            for stop in range(scope.block_size + 2):
                yield "compute", seq, stop
                yield "catch_up", seq, stop
            yield from self._appends(state, seq, blocks, used)
            if scope.fork:
                yield from (("fork", seq, child) for child in seqs)
            if scope.window:
                yield "slide", seq
            if scope.window and scope.caching:
                yield from self._hits_past_a_window(state, seq, used)
            if scope.lookahead and state.num_blocks[seq] < scope.num_indexes:
                yield from (("reserve", seq, block) for block in blocks)
            if scope.caching:
                yield from self._cache_rules(state, seq, blocks, used)
            if scope.swap:
                yield from self._swap_rules(seq, seqs, blocks, flights)
        if scope.caching:
            yield from (("mark_computed", block) for block in blocks)
            yield from (("evict", block) for block in blocks)
        yield from self._flight_rules(seqs, blocks, flights)
        if scope.reserving:
            yield from (("set_aside", block) for block in blocks)

    def _appends(self, state: State, seq: int, blocks: list[int], used: set[int]) -> Iterator[Operation]:
        size, index, filled = self.scope.block_size, state.num_full[seq], state.num_filled[seq]
        if index < self.scope.num_indexes:
            for stop in (*range(min(filled, self.scope.num_tokens - index * size) + 1), size + 1):
                yield from (("append", seq, block, [NONE] * size, stop) for block in blocks)  # not to be allowed
        for stop in range(filled + 1, min(size, self.scope.num_tokens - index * size) + 1):
            for row in self._rows(state, seq, stop, used):
                yield from (("append", seq, block, row, stop) for block in blocks)

    def _cache_rules(self, state: State, seq: int, blocks: list[int], used: set[int]) -> Iterator[Operation]:
        size, full = self.scope.block_size, state.num_full[seq]
        yield from (("promote", seq, index) for index in range(self.scope.num_indexes))
        for index in range(full):
            row = state.tokens[seq][index]
            yield from (("exchange", seq, index, twin, row) for twin in blocks)
        if (full + 1) * size <= self.scope.num_tokens:
            for row in self._rows(state, seq, size, used):
                for block in blocks:
                    yield "hit", seq, block, row
                    yield "share", seq, block, row
                    yield "exchange", seq, full, block, row
            if state.num_filled[seq]:
                yield from (("exchange", seq, full, twin, state.content[twin]) for twin in blocks)

    def _hits_past_a_window(self, state: State, seq: int, used: set[int]) -> Iterator[Operation]:
        windows = {1, self.scope.window}
        yield from (("admit", seq, window) for window in windows - {self.scope.window})
        if (state.num_full[seq] + 1) * self.scope.block_size <= self.scope.num_tokens:
            yield from (("skip", seq, row) for row in self._rows(state, seq, self.scope.block_size, used))
        yield from (("widen", seq, window) for window in windows)

    def _swap_rules(self, seq: int, seqs: list[int], blocks: list[int], flights: list[int]) -> Iterator[Operation]:
        yield "begin_swap", seq
        yield from (("move_entry", seq, block) for block in blocks)
        yield from (("follow_entry", seq, leader) for leader in seqs)
        if self.scope.caching:
            yield from (("rehit_entry", seq, block) for block in blocks)
        for flight in flights:
            yield from (("send_entry", seq, block, flight) for block in blocks)
        yield "end_swap", seq

    def _flight_rules(self, seqs: list[int], blocks: list[int], flights: list[int]) -> Iterator[Operation]:
        for flight in flights:
            for seq in seqs:
                yield from (("launch", flight, seq, index) for index in range(self.scope.num_indexes))
            if self.scope.caching:
                yield from (("copy_out", flight, block) for block in blocks)
            yield "write_late", flight, [NONE] * self.scope.block_size
            yield "land", flight
            yield "arrive", flight

    def _flights(self, state: State) -> list[int]:
        """Those under way, and one that is not."""
        under_way = [flight for flight, block in enumerate(state.uses) if block != NONE]
        return under_way if len(under_way) == len(state.uses) else [*under_way, state.uses.index(NONE)]

    def _seqs(self, state: State) -> list[int]:
        live = [seq for seq, is_live in enumerate(state.live) if is_live]
        return live if len(live) == len(state.live) else [*live, state.live.index(False)]

    def _blocks(self, state: State) -> list[int]:
        gpu = self.scope.num_gpu_blocks
        lowest = {
            state.status.index(FREE, start, stop)
            for start, stop in ((0, gpu), (gpu, len(state.status)))
            if FREE in state.status[start:stop]
        }
        return [block for block, status in enumerate(state.status) if status != FREE or block in lowest]

    def _known(self, state: State, seq: int) -> list[int]:
        rows = state.tokens[seq][: state.num_full[seq] + 1]
        num_known = state.num_full[seq] * self.scope.block_size + state.num_filled[seq]
        return [identity for row in rows for identity in row][:num_known]

    def _rows(self, state: State, seq: int, stop: int, used: set[int]) -> Iterator[list[int]]:
        """The rows that the sequence may have in the entry it fills, up to slot `stop`."""
        known = self._known(state, seq) if state.live[seq] else []
        filled = state.num_filled[seq]
        for new in self.continuations.rows(known[-1] if known else ROOT, stop - filled, used):
            yield row_of([*known[len(known) - filled :], *new], 0, self.scope.block_size)

    def _identities(self, state: State) -> set[int]:
        found = {i for seq, is_live in enumerate(state.live) if is_live for i in self._known(state, seq)}
        found.update(i for block, is_cached in enumerate(state.cached) if is_cached for i in state.content[block])
        return self.continuations.with_all_before(found)
