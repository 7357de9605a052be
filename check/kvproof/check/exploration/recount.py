"""The references and lists of a state counted again, from nothing but the tables and statuses.

The invariants of the specification state the same through enumerations, which only exist where ghosts are kept. This
count needs no ghosts, shares no word with the specification, and so also tells whether its invariants say enough.
"""

from kvproof.spec.native import Sizes
from kvproof.spec.state import NONE, USED, State


def miscounts(sizes: Sizes, state: State) -> tuple[str, str] | None:
    """The first number that is not what counting gives: the property, and what differs; None if there is none."""
    num_blocks = sizes.num_gpu_blocks + sizes.num_host_blocks
    references = [0] * num_blocks
    for seq, table in enumerate(state.table):
        position = [NONE] * num_blocks
        for index in range(state.first[seq], state.num_blocks[seq]):
            block = table[index]
            if not 0 <= block < num_blocks:
                return "no-use-after-free", f"entry {index} of sequence {seq} names {block}, which is no block"
            references[block] += 1
            position[block] = index
        if position != state.position[seq]:
            return "lists-agree", f"sequence {seq} has its blocks at {position}, not at {state.position[seq]}"
    if references != state.refcount:
        return "refcount-exact", f"the tables name the blocks {references} times, not {state.refcount}"
    for block, status in enumerate(state.status):
        if (status == USED) != (references[block] > 0):
            return "lists-agree", f"block {block} is named {references[block]} times and has status {status}"
    for pool, statuses in enumerate((state.status[: sizes.num_gpu_blocks], state.status[sizes.num_gpu_blocks :])):
        lengths = [statuses.count(status) for status in range(4)]
        if lengths != state.count[pool]:
            return "conservation", f"the lists of pool {pool} have lengths {lengths}, not {state.count[pool]}"
    return None
