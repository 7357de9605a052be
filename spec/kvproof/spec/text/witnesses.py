"""The witnesses: situations that a search must reach; otherwise its claims cover too little.

The firing of a rule reaches a witness. Some witnesses read the state before the firing, others the state after it, so
that a caller who fires rules in place can count them without a copy of the state. All of them read real fields only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvproof.spec.text.state import EVICTABLE, FREE, GPU, NONE, State

Arguments = tuple[Any, ...]


@dataclass(frozen=True)
class Witness:
    """A situation by name, with its sentence, and the rules whose firing can reach it."""

    name: str
    sentence: str
    rules: frozenset[str]
    is_reached: Callable[[State, str, Arguments], bool]


WITNESSES: dict[str, Witness] = {}
SEEN_BEFORE: dict[str, list[Witness]] = {}
SEEN_AFTER: dict[str, list[Witness]] = {}

Predicate = Callable[[State, str, Arguments], bool]


def _witness(seen: dict[str, list[Witness]], *rules: str) -> Callable[[Predicate], Predicate]:
    def mark(predicate: Predicate) -> Predicate:
        name = predicate.__name__.replace("_", "-")
        witness = Witness(name, (predicate.__doc__ or "").strip(), frozenset(rules), predicate)
        WITNESSES[name] = witness
        for rule in rules:
            seen.setdefault(rule, []).append(witness)
        return predicate

    return mark


def witnesses_before(state: State, rule: str, arguments: Arguments) -> list[str]:
    """The witnesses of the state before a firing that this firing reaches, provided that it is not refused."""
    return [w.name for w in SEEN_BEFORE.get(rule, ()) if w.is_reached(state, rule, arguments)]


def witnesses_after(state: State, rule: str, arguments: Arguments) -> list[str]:
    """The witnesses of the state after a firing that this firing has reached."""
    return [w.name for w in SEEN_AFTER.get(rule, ()) if w.is_reached(state, rule, arguments)]


def _unused(state: State, pool: int) -> int:
    return state.count[pool][FREE] + state.count[pool][EVICTABLE]


def _next_entry_is_there(state: State, seq: int) -> bool:
    return state.num_full[seq] < state.num_blocks[seq]


def _block_to_append_to(state: State, seq: int) -> int:
    return state.table[seq][state.num_full[seq]]


def _is_copied(state: State, arguments: Arguments) -> bool:
    seq = arguments[0]
    index = state.num_full[seq]
    return index < state.num_blocks[seq] and bool(state.table[seq][index] != arguments[1])


# Tables -----------------------------------------------------------------------------------------------------------


@_witness(SEEN_AFTER, "append", "reserve")
def pool_full(state: State, rule: str, arguments: Arguments) -> bool:
    """No block of the pool can be taken any more."""
    return _unused(state, state.home[arguments[0]]) == 0


@_witness(SEEN_AFTER, "fork", "hit", "share", "exchange")
def three_holders(state: State, rule: str, arguments: Arguments) -> bool:
    """A block has three holders."""
    return max(state.refcount) >= 3


@_witness(SEEN_BEFORE, "fork")
def fork_of_a_tail(state: State, rule: str, arguments: Arguments) -> bool:
    """A block that is filled in part becomes shared."""
    return state.num_filled[arguments[0]] > 0


@_witness(SEEN_BEFORE, "append")
def copy_on_write(state: State, rule: str, arguments: Arguments) -> bool:
    """A shared tail is replaced before it is written."""
    return _is_copied(state, arguments) and state.refcount[_block_to_append_to(state, arguments[0])] > 1


@_witness(SEEN_BEFORE, "append")
def copy_on_write_takes_the_last_block(state: State, rule: str, arguments: Arguments) -> bool:
    """A shared tail is replaced, and the pool is full afterwards."""
    return copy_on_write(state, rule, arguments) and _unused(state, state.home[arguments[0]]) == 1


@_witness(SEEN_BEFORE, "append")
def copy_of_a_written_tail(state: State, rule: str, arguments: Arguments) -> bool:
    """The tail that is copied has written slots."""
    return _is_copied(state, arguments) and state.num_written[_block_to_append_to(state, arguments[0])] > 0


@_witness(SEEN_BEFORE, "compute")
def computed_by_two(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence computes KV that another sequence has already written."""
    seq, stop = arguments
    return bool(state.num_written[state.table[seq][state.done_full[seq]]] >= stop)


@_witness(SEEN_BEFORE, "catch_up")
def caught_up_without_computing(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence may read what another has computed in a block that both hold."""
    return True


@_witness(SEEN_BEFORE, "append")
def reserved_block_appended_to(state: State, rule: str, arguments: Arguments) -> bool:
    """The next tokens go to a block that lookahead has reserved."""
    seq = arguments[0]
    return state.num_filled[seq] == 0 and _next_entry_is_there(state, seq) and not _is_copied(state, arguments)


@_witness(SEEN_BEFORE, "drop_last")
def lookahead_given_back(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence that continues drops a reserved block."""
    return not state.ending[arguments[0]]


@_witness(SEEN_BEFORE, "slide")
def window_left_an_entry(state: State, rule: str, arguments: Arguments) -> bool:
    """The sliding window leaves an entry."""
    return True


@_witness(SEEN_BEFORE, "slide")
def chunk_left_an_entry(state: State, rule: str, arguments: Arguments) -> bool:
    """A token begins a new chunk of local attention, and the sequence leaves an entry of an earlier one."""
    return state.window[arguments[0]] < 0


@_witness(SEEN_BEFORE, "slide")
def window_left_a_shared_block(state: State, rule: str, arguments: Arguments) -> bool:
    """The sliding window leaves an entry whose block another sequence keeps."""
    seq = arguments[0]
    return state.refcount[state.table[seq][state.first[seq]]] > 1


@_witness(SEEN_BEFORE, "widen")
def hit_past_a_window(state: State, rule: str, arguments: Arguments) -> bool:
    """A prompt hits the blocks that its window reaches, and skips the entries before them."""
    seq, window = arguments
    return bool(window > 1 and 0 < state.first[seq] < state.num_blocks[seq])


# The prefix cache -------------------------------------------------------------------------------------------------


@_witness(SEEN_BEFORE, "hit")
def hit_on_an_evictable_block(state: State, rule: str, arguments: Arguments) -> bool:
    """A hit uses an evictable block, which no table named."""
    return state.status[arguments[1]] == EVICTABLE


@_witness(SEEN_BEFORE, "hit")
def hit_on_a_used_block(state: State, rule: str, arguments: Arguments) -> bool:
    """A hit shares a block that another sequence names."""
    return state.refcount[arguments[1]] > 0


@_witness(SEEN_BEFORE, "share")
def share_before_computed(state: State, rule: str, arguments: Arguments) -> bool:
    """A cached block is shared before it is computed."""
    return not state.computed[arguments[1]]


@_witness(SEEN_BEFORE, "exchange")
def exchange_of_a_tail(state: State, rule: str, arguments: Arguments) -> bool:
    """The next tokens complete an entry, and a cached block replaces its block."""
    seq, index = arguments[:2]
    return bool(index == state.num_full[seq])


@_witness(SEEN_BEFORE, "exchange")
def exchange_of_a_full_entry(state: State, rule: str, arguments: Arguments) -> bool:
    """A cached block replaces the block of a full entry of equal content."""
    seq, index = arguments[:2]
    return bool(index < state.num_full[seq])


@_witness(SEEN_BEFORE, "exchange")
def exchange_for_less(state: State, rule: str, arguments: Arguments) -> bool:
    """A cached block replaces another block that has more written slots."""
    seq, index, twin, _ = arguments
    is_full = index < state.done_full[seq]
    num_done = len(state.memory[twin]) if is_full else state.done_filled[seq] if index == state.done_full[seq] else 0
    return bool(state.num_written[twin] < num_done)


@_witness(SEEN_BEFORE, "promote")
def same_content_cached_twice(state: State, rule: str, arguments: Arguments) -> bool:
    """Two blocks are cached under the same content."""
    row = state.tokens[arguments[0]][arguments[1]]
    return any(state.cached[b] and state.content[b] == row for b in range(len(state.cached)))


@_witness(SEEN_BEFORE, "evict")
def eviction(state: State, rule: str, arguments: Arguments) -> bool:
    """An evictable block is evicted."""
    return True


@_witness(SEEN_AFTER, "evict")
def reset(state: State, rule: str, arguments: Arguments) -> bool:
    """An eviction leaves no evictable block."""
    return EVICTABLE not in state.status


@_witness(SEEN_BEFORE, "drop_last")
def abort_before_mark(state: State, rule: str, arguments: Arguments) -> bool:
    """A block that is cached and not computed loses its last holder, and leaves the cache."""
    seq = arguments[0]
    block = state.table[seq][state.num_blocks[seq] - 1]
    return bool(state.cached[block] and not state.computed[block] and state.refcount[block] == 1)


@_witness(SEEN_BEFORE, "set_aside")
def set_aside(state: State, rule: str, arguments: Arguments) -> bool:
    """The manager reserves a block for itself."""
    return True


# Swap -------------------------------------------------------------------------------------------------------------


@_witness(SEEN_BEFORE, "follow_entry")
def swap_of_a_shared_block(state: State, rule: str, arguments: Arguments) -> bool:
    """Two sequences of a group share a block before and after their swap."""
    seq, leader = arguments
    return state.home[leader] == state.home[seq]


@_witness(SEEN_BEFORE, "move_entry")
def swap_leaves_a_block_to_others(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence is swapped, and a block that it shared stays with sequences that are not swapped."""
    seq = arguments[0]
    return state.refcount[state.table[seq][state.moving[seq]]] > 1


@_witness(SEEN_AFTER, "end_swap")
def swap_in_while_nearly_full(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence comes back to the GPU, which has at most one unused block afterwards."""
    seq = arguments[0]
    return state.home[seq] == GPU and state.num_blocks[seq] > state.first[seq] and _unused(state, GPU) <= 1


@_witness(SEEN_BEFORE, "rehit_entry")
def rehit_on_swap(state: State, rule: str, arguments: Arguments) -> bool:
    """A swap finds the content of an entry in the other pool, and does not copy it."""
    return True


@_witness(SEEN_BEFORE, "begin_swap")
def swap_of_a_window(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence whose sliding window has left entries is swapped."""
    return state.first[arguments[0]] > 0


# In flight --------------------------------------------------------------------------------------------------------


@_witness(SEEN_BEFORE, "drop_last")
def freed_in_flight(state: State, rule: str, arguments: Arguments) -> bool:
    """A block loses its last holder while a step still uses it."""
    seq = arguments[0]
    index = state.num_blocks[seq] - 1
    block = state.table[seq][index]
    return bool(index >= state.first[seq] and state.refcount[block] == 1 and state.pins[block] > 0)


@_witness(SEEN_BEFORE, "land")
def given_back_on_landing(state: State, rule: str, arguments: Arguments) -> bool:
    """The last access of a block that no table names any more has landed."""
    block = state.uses[arguments[0]]
    return state.refcount[block] == 0 and state.pins[block] == 1


@_witness(SEEN_BEFORE, "copy_out")
def copied_from_the_cache(state: State, rule: str, arguments: Arguments) -> bool:
    """A copy to another memory reads a block that no table names."""
    return state.refcount[arguments[1]] == 0


@_witness(SEEN_BEFORE, "write_late")
def written_after_free(state: State, rule: str, arguments: Arguments) -> bool:
    """A step writes a block that no table names any more."""
    return state.refcount[state.uses[arguments[0]]] == 0


@_witness(SEEN_AFTER, "launch")
def two_in_flight(state: State, rule: str, arguments: Arguments) -> bool:
    """Two flights use the same block."""
    return max(state.pins) >= 2


@_witness(SEEN_BEFORE, "append")
def copy_of_a_block_in_flight(state: State, rule: str, arguments: Arguments) -> bool:
    """A tail that a step still uses is replaced before it is written."""
    return _is_copied(state, arguments) and state.pins[_block_to_append_to(state, arguments[0])] > 0


@_witness(SEEN_AFTER, "send_entry")
def transfer_when_full(state: State, rule: str, arguments: Arguments) -> bool:
    """A transfer is under way, and no block of its target pool can be taken any more."""
    return _unused(state, 1 - state.home[arguments[0]]) == 0


@_witness(SEEN_BEFORE, "send_entry")
def sent_from_a_shared_block(state: State, rule: str, arguments: Arguments) -> bool:
    """A transfer reads a block that stays with another sequence."""
    seq = arguments[0]
    return state.refcount[state.table[seq][state.moving[seq]]] > 1


@_witness(SEEN_BEFORE, "follow_entry")
def followed_before_arrival(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence of a group follows another to a block that a transfer still fills."""
    seq, leader = arguments
    return state.filler[state.table[leader][state.moving[seq]]] != NONE


@_witness(SEEN_BEFORE, "fork")
def forked_before_arrival(state: State, rule: str, arguments: Arguments) -> bool:
    """A sequence is forked while a transfer still fills one of its blocks."""
    parent = arguments[0]
    return any(b != NONE and state.position[parent][b] != NONE for b in state.fills)


@_witness(SEEN_BEFORE, "arrive")
def arrival_for_nobody(state: State, rule: str, arguments: Arguments) -> bool:
    """A transfer arrives in a block that no table names any more."""
    return state.refcount[state.fills[arguments[0]]] == 0


@_witness(SEEN_BEFORE, "arrive")
def arrival_with_content(state: State, rule: str, arguments: Arguments) -> bool:
    """A transfer arrives that brings written slots."""
    return state.brings[arguments[0]] > 0
