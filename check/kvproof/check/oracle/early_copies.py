"""Explain blocks that were filled by a copy, though no write into them made it necessary.

Two kinds of managers do this, and neither is wrong. One copies every shared block of a sequence before the sequence
grows, full blocks too, although nothing writes into a full block. Another finds a prefix that ends within a block: it
copies that block, and the sequence computes the rest of the copy.

The specification has no rule for a copy that nobody needs, and needs none. The first kind is explained by a further
sequence, which has the content of the copied block as its only entry and computes as much of it as was computed. The
table takes this block over, as it may take any block of equal content, and the sequence ends. The second kind is
explained as if the sequence computed what it found. Either way the content is as the copy must make it. Whether it does
is seen when the worker executes the copies of the step: its memory is compared with that of the specification.
"""

from collections.abc import Sequence

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.firing import SpecRunner
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Pair
from kvproof.spec.text import operations
from kvproof.spec.text.operations import Program
from kvproof.spec.text.state import FREE, USED, State

FULL_COPY, PART_COPY = "copy of a full block", "hit within a block"  # witnesses


def copy_full_entry(
    state: State, block_size: int, seq: int, index: int, block: int, helper: int, caching: bool
) -> Program:
    """The block takes the place of that of a full entry, with the same content, computed as far.

    helper: the number of a sequence that is not in use. caching: the block can be hit if it is computed completely.
    """
    row, done = state.tokens[seq][index][:], state.done_full[seq]
    num_done = block_size if index < done else state.done_filled[seq] if index == done else 0
    yield "admit", (helper, 0)
    yield from operations.take(state, block)
    yield "append", (helper, block, row, block_size)
    yield "promote", (helper, 0)
    yield from operations.compute_tokens(state, block_size, helper, num_done)
    if caching and num_done == block_size:
        yield "mark_computed", (block,)
    yield "exchange", (seq, index, block, row)
    yield from operations.free_sequence(state, helper)


def copied_early(
    runner: SpecRunner, part: ExpectedSequence, table: list[int], copies: Sequence[Pair], context: str
) -> None:
    """Explain the full entries of a part whose blocks were copied, one by one in the order of the copies."""
    state, slot = runner.state, part.slot
    for source, target in copies:
        first, stop = state.first[slot], min(state.num_full[slot], len(table))
        moved = (i for i in range(first, stop) if state.table[slot][i] == source != table[i] == target)
        index = next(moved, None)
        if index is None:
            continue
        row = state.tokens[slot][index][:]
        if operations.holds_content(state, target, row) and state.status[target] == USED:
            runner.run(iter([("exchange", (slot, index, target, row))]), context)
            continue
        caching = runner.config.caching
        runner.run(copy_full_entry(state, runner.block_size, slot, index, target, runner.spare_slot, caching), context)
        runner.maybe_evicted.add(target)  # the manager may cache the copy, or not
        _filled(runner, target)
        runner.coverage[FULL_COPY] += 1


def hit_within(runner: SpecRunner, part: ExpectedSequence, hit: int, copies: Sequence[Pair], context: str) -> None:
    """Explain that the last tokens of a hit lie in a block of the sequence's own, into which they are copied."""
    state, slot, size = runner.state, part.slot, runner.block_size
    index, num_tokens = divmod(hit, size)
    if not num_tokens:
        return
    target = state.table[slot][index]
    source = next((one for one, other in copies if other == target), None)
    if source is None or not has_part(runner, source, part.whole[index * size : hit]):
        what = "no copy fills" if source is None else f"block {source}, which does not have them, is copied to"
        raise Finding(
            "hit-computed",
            f"the last {num_tokens} tokens of a hit of $observed lie within a block, and {what} block {target}",
            call=context,
            observed=hit,
            sequence=part.name,
        )
    runner.run(operations.compute_tokens(state, size, slot, num_tokens), context)
    _filled(runner, target)
    runner.coverage[PART_COPY] += 1


def _filled(runner: SpecRunner, block: int) -> None:
    """The copy fills the block, which the worker must not clear after it."""
    runner.worker.fresh = [one for one in runner.worker.fresh if one != block]


def has_part(runner: SpecRunner, block: int, identities: Sequence[int]) -> bool:
    """Whether the first slots of a block, which is not free, hold the KV of these identities."""
    state = runner.state
    if not 0 <= block < runner.num_blocks or state.status[block] == FREE:
        return False
    num_slots = len(identities)
    return state.num_written[block] >= num_slots and state.memory[block][:num_slots] == list(identities)
