"""The space of whole calls: one transition is a whole call of an engine, run as its program of rules.

Tokens are computed as soon as they have slots, and cached blocks marked right after. Without caching a prompt is
admitted empty and grows by appends: longer prompts reach nothing else.

An operation says beforehand whether it can finish (`call`). It must finish exactly if so, and a state must be found as
it was after everything has been tried on copies of it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import Any

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.breadth_first import Operation
from kvproof.check.search.exhaustive.places import machine_for_searches
from kvproof.check.search.exhaustive.specification_call import SpecCall, appends, flights, prompts, swaps
from kvproof.check.search.exhaustive.specification_space import ROOT, Continuations, SpecificationSpace, asks_claims
from kvproof.spec.native import Machine
from kvproof.spec.syntax_trees import Functions
from kvproof.spec.text import operations
from kvproof.spec.text.operations import Program
from kvproof.spec.text.state import EVICTABLE, NONE, State


def _rows(state: State) -> tuple[Any, ...]:
    """The only lists that a state shares with its copies, by value."""
    return [*map(tuple, state.memory)], [*map(tuple, state.content)], [[*map(tuple, rows)] for rows in state.tokens]


_NUMBERS = attrgetter(
    "home", "moving", "ending", "window", "first", "num_full", "num_filled", "done_full", "done_filled"
)


def _forked(parent: int, child: int, work: State) -> Program:
    return operations.fork_sequence(parent, child)


class CallSpace(SpecificationSpace):
    """Whole operations, ghosts left out, obligations on.

    Raises ValueError for a prefix cache together with flights: what such an operation takes is not known beforehand.
    """

    def __init__(
        self,
        scope: Scope,
        machine: Machine | None = None,
        continuations: Continuations | None = None,
        text: Functions | None = None,
    ) -> None:
        if scope.caching and scope.num_flights:
            raise ValueError("operations in flight are explored without a prefix cache; take the level of rules")
        machine = machine or machine_for_searches(sizes_of(scope), with_ghosts=False, text=text)
        super().__init__(scope, machine, asks_claims(scope), continuations, text)
        self._can_still_be_read: Callable[[State, int, int], bool] = self.machine.function("can_still_be_read")

    def transitions(self, state: State) -> Iterator[tuple[Operation, State]]:
        """Every operation that finishes."""
        rows = _rows(state)
        for call in self._calls(state):
            work = self.machine.copy(state)
            has_finished = self.firings.run(work, call.program(work), call.operation) is None
            if has_finished != call.can_finish:
                verb = "can" if call.can_finish else "cannot"
                text = f"$operation {'finishes' if has_finished else 'is refused'}, although it {verb} finish"
                values = {"operation": call.operation}
                raise Finding("admission-sound", text, values=values, tried=call.operation)
            if has_finished:
                yield call.operation, work
        if _rows(state) != rows:
            raise Finding("failed-call-changes-nothing", "a copy of a state changes the state itself", tried=())

    def _calls(self, state: State) -> Iterator[SpecCall]:
        scope = self.scope
        live = [seq for seq, is_live in enumerate(state.live) if is_live]
        used = self._identities(state, live) if scope.caching else set()
        different = self._different(state, live)
        dead = state.live.index(False) if len(live) < scope.num_seqs else NONE
        if dead != NONE:
            yield from self._admissions(state, dead, used)
            if scope.fork:
                for parent in different:
                    yield SpecCall(("fork", parent, dead), partial(_forked, parent, dead))
        for seq in different:
            yield SpecCall(("free", seq), partial(operations.free_sequence, seq=seq))
            yield from self._appends(state, seq, live, used)
            if scope.window and state.first[seq] < state.num_full[seq]:
                yield self._slide(state, seq)
            if scope.lookahead and state.num_blocks[seq] > (known := self._entries_known(state, seq)):
                yield SpecCall(("drop_reserved", seq), partial(operations.drop_reserved, seq=seq, num_entries=known))
        if scope.swap:
            yield from self._swaps(state, live)
        if scope.num_flights:
            yield from flights(state, different)
        if scope.caching and EVICTABLE in state.status:
            yield SpecCall(("reset_cache",), operations.reset_cache)

    def _different(self, state: State, live: list[int]) -> list[int]:
        """One of each set of sequences that are equal in everything: exchanging two of them changes nothing."""
        found: list[int] = []
        for seq in live:
            num_blocks = state.num_blocks[seq]
            table = state.table[seq][:num_blocks]
            for other in found:
                if (
                    table == state.table[other][: state.num_blocks[other]]
                    and state.tokens[seq] == state.tokens[other]
                    and state.position[seq] == state.position[other]
                    and all(numbers[seq] == numbers[other] for numbers in _NUMBERS(state))
                ):
                    break
            else:
                found.append(seq)
        return found

    def _admissions(self, state: State, seq: int, used: set[int]) -> Iterator[SpecCall]:
        scope = self.scope
        for num_tokens in range(scope.num_tokens + 1 if scope.caching else 1):
            for prompt in self.continuations.rows(ROOT, num_tokens, used):
                for num_hit in range(num_tokens // scope.block_size + 1):
                    if num_hit and not self._is_computed(state, prompt, num_hit - 1):
                        break
                    yield from prompts(scope, state, seq, prompt, num_hit)
                if scope.window:
                    yield from self._past_a_window(state, seq, prompt)

    def _past_a_window(self, state: State, seq: int, prompt: list[int]) -> Iterator[SpecCall]:
        """Prompts whose first entries are skipped, though not all of what the next token reads may be found."""
        for num_hit in range(1, len(prompt) // self.scope.block_size + 1):
            for first in range(num_hit, 0, -1):
                if first < num_hit and not self._is_computed(state, prompt, first):
                    break
                yield from prompts(self.scope, state, seq, prompt, num_hit, first)

    def _appends(self, state: State, seq: int, live: list[int], used: set[int]) -> Iterator[SpecCall]:
        if self._num_known(state, seq) < self.scope.num_tokens:
            tokens = self._known(state, seq)
            last = tokens[-1] if tokens else ROOT
            if self.scope.caching:
                following = self.continuations.choices(last, used)
            else:
                following = [self.continuations.fresh(last, self._at(state, live, len(tokens)))]
            for identity in following:
                yield from appends(self.machine, self.scope, state, seq, [*tokens, identity])

    def _swaps(self, state: State, live: list[int]) -> Iterator[SpecCall]:
        for size in range(1, len(live) + 1):
            for seqs in combinations(live, size):
                if len({state.home[seq] for seq in seqs}) == 1:
                    yield from swaps(self.scope, state, seqs)
                    if self.scope.num_flights:
                        yield from swaps(self.scope, state, seqs, is_sent=True)

    def _slide(self, state: State, seq: int) -> SpecCall:
        first = state.first[seq]
        can_finish = not self._can_still_be_read(state, seq, first)
        return SpecCall(("slide", seq), partial(operations.slide_window, seq=seq, first=first + 1), can_finish)

    def _is_computed(self, state: State, prompt: list[int], index: int) -> bool:
        size = self.scope.block_size
        row = prompt[index * size : (index + 1) * size]
        gpu = range(self.scope.num_gpu_blocks)
        return any(state.computed[block] and state.content[block] == row for block in gpu)

    def _num_known(self, state: State, seq: int) -> int:
        return state.num_full[seq] * self.scope.block_size + state.num_filled[seq]

    def _entries_known(self, state: State, seq: int) -> int:
        return state.num_full[seq] + (state.num_filled[seq] > 0)

    def _known(self, state: State, seq: int) -> list[int]:
        rows = state.tokens[seq][: state.num_full[seq] + 1]
        return [identity for row in rows for identity in row][: self._num_known(state, seq)]

    def _at(self, state: State, live: list[int], position: int) -> set[int]:
        """The identities that the sequences have at a position."""
        index, slot = divmod(position, self.scope.block_size)
        return {state.tokens[seq][index][slot] for seq in live if self._num_known(state, seq) > position}

    def _identities(self, state: State, live: list[int]) -> set[int]:
        found = {identity for seq in live for identity in self._known(state, seq)}
        found.update(i for block, is_cached in enumerate(state.cached) if is_cached for i in state.content[block])
        return self.continuations.with_all_before(found)
