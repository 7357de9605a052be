"""An independent count of a state: references and lists, from nothing but the tables and statuses, and what each
table reads.

The invariants of the specification state the same through enumerations, which only exist where ghosts are kept, and
pair by pair. This count is part of the product on purpose: it needs no ghosts and shares no function with the
specification, so it also shows whether the invariants say enough.
"""

from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import NONE, USED, State


def miscounts(sizes: Sizes, state: State) -> tuple[str, str] | None:
    """The first number that is not what counting gives: the property, and what differs; None if there is none."""
    num_blocks = sizes.num_gpu_blocks + sizes.num_host_blocks
    references = [0] * num_blocks
    in_flight = {*state.uses, *state.fills} - {NONE} if state.uses else ()
    expected: dict[int, list[int]] = {}  # what the first holder of a block knows there
    for seq, table in enumerate(state.table):
        position = [NONE] * num_blocks
        for index in range(state.first[seq], state.num_blocks[seq]):
            block = table[index]
            if not 0 <= block < num_blocks:
                return "no-use-after-free", f"entry {index} of sequence {seq} names {block}, which is no block"
            references[block] += 1
            position[block] = index
            known = _known(state, seq, index)
            if expected.setdefault(block, known) != known:
                return "sharing-equal", f"two tables that name block {block} know {expected[block]} and {known} there"
            written = state.memory[block][: state.num_written[block]]
            if in_flight and (flight := state.filler[block]) != NONE:
                written = state.memory[state.uses[flight]][: state.brings[flight]]
            if written != known[: len(written)]:
                return "read-back", f"sequence {seq} reads {written} in block {block} where it knows {known}"
        if position != state.position[seq]:
            return "lists-agree", f"sequence {seq} has its blocks at {position}, not at {state.position[seq]}"
    if references != state.refcount:
        return "refcount-exact", f"the tables name the blocks {references} times, not {state.refcount}"
    if in_flight and (found := _miscounts_in_flight(state)):
        return "in-flight-held", found
    for block, status in enumerate(state.status):
        if (status == USED) != (references[block] > 0 or block in in_flight):
            return "lists-agree", f"block {block} is named {references[block]} times and has status {status}"
    for pool, statuses in enumerate((state.status[: sizes.num_gpu_blocks], state.status[sizes.num_gpu_blocks :])):
        lengths = [statuses.count(status) for status in range(4)]
        if lengths != state.count[pool]:
            return "conservation", f"the lists of pool {pool} have lengths {lengths}, not {state.count[pool]}"
    return None


def _miscounts_in_flight(state: State) -> str | None:
    for block, status in enumerate(state.status):
        if state.uses.count(block) != state.pins[block]:
            return f"{state.uses.count(block)} flights use block {block}, not {state.pins[block]}"
        fillers = [flight for flight, filled in enumerate(state.fills) if filled == block] or [NONE]
        if fillers != [state.filler[block]]:
            return f"the flights {fillers} fill block {block}, not {state.filler[block]}"
        if status != USED and (block in state.uses or block in state.fills):
            return f"block {block} has status {status} while a flight uses or fills it"
    return None


def _known(state: State, seq: int, index: int) -> list[int]:
    full = state.num_full[seq]
    if index < full:
        return state.tokens[seq][index]
    return state.tokens[seq][index][: state.num_filled[seq]] if index == full else []
