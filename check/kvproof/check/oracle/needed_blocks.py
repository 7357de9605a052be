"""What groups need of the pool, what a manager may answer about it for good, and what a window needs at most."""

from collections.abc import Sequence

from kvproof.check.oracle.expected import WAITING, ExpectedSequence, Group
from kvproof.check.oracle.oracle import Oracle
from kvproof.check.protocol.finding import Finding
from kvproof.spec.text import operations


def num_blocks_needed(oracle: Oracle, group: Group, lookahead: int) -> int:
    """Blocks that a group needs if it shares none with other groups. Waiting members have one table together."""
    is_waiting = group.members[0].status is WAITING
    members = group.members[:1] if is_waiting else group.members
    needed = 0
    for seq in members:
        num_tokens = len(seq.tokens) + lookahead
        for layout in oracle.layouts:
            needed += layout.entries(num_tokens)
    if oracle.capabilities.ring_window and oracle.config.window:
        needed = min(needed, len(members) * oracle.explainer.machine.function("blocks_of_ring")(oracle.config.window))
    if group.prefix is not None:
        needed -= oracle.prefixes.num_shared(group)
    return needed + (oracle.explainer.blocks_for(len(group.encoder.tokens)) if group.encoder else 0)


def cost_max(oracle: Oracle, growths: Sequence[tuple[ExpectedSequence, int]]) -> int:
    """At most so many blocks sequences take for slots, each up to a position, and the lookahead and null blocks."""
    cost = len(growths) if oracle.leaves_entries and not oracle.explainer.observed.reserved else 0
    ends: dict[int, int] = {}
    for seq, stop in growths:
        for part in seq.parts:
            if part.layout.leaves_out:  # a step takes one block for a new state, and none for lookahead
                cost += stop > len(part.observed_table) * part.layout.num_tokens
            else:
                ends[part.slot] = part.at(stop + oracle.lookahead)
    counts_touched = oracle.capabilities.counts_touched_blocks
    return cost + operations.growth_cost_max(oracle.state, oracle.config.block_size, ends, counts_touched)


def num_blocks_kept(oracle: Oracle, group: Group) -> int:
    """Blocks of the GPU that the group can never get: reserved ones and the null block."""
    has_null = oracle.leaves_entries and group.members[0].status is not WAITING
    num_reserved = len(oracle.explainer.observed.reserved) + oracle.prefixes.num_blocks
    kept: int = oracle.explainer.machine.function("blocks_kept")(num_reserved, has_null)
    return kept


def may_end_for_good(oracle: Oracle, group: Group) -> bool:
    """Whether no later state of the pool could run the group; a subject may declare that it keeps a reserve."""
    return lacks_for_good(oracle, group, num_blocks_needed(oracle, group, oracle.lookahead), oracle.num_held_back)


def lacks_for_good(oracle: Oracle, group: Group, num_needed: int, num_held_back: int) -> bool:
    """Whether the pool, all free, lacks so many blocks for the group; so many blocks are not to be used."""
    gpu, slack = oracle.config.num_gpu_blocks, oracle.capabilities.refusal_slack or 0
    function = oracle.explainer.machine.function("may_end_for_good")
    answer: bool = function(num_needed + slack, num_blocks_kept(oracle, group), num_held_back, gpu)
    return answer


def judge_window(oracle: Oracle, seq: ExpectedSequence, num_done: int, context: str) -> None:
    """After a growth a part with a window holds at most the blocks that its window needs.

    num_done: tokens that are computed; the next step reads back from there.
    """
    if not oracle.leaves_entries or oracle.capabilities.keeps_behind_window:
        return
    state, entries_in_window = oracle.state, oracle.explainer.machine.function("entries_in_window")
    for part in seq.parts:
        if not part.window:
            continue
        slot = part.slot
        held = state.num_blocks[slot] - state.first[slot]
        done = part.at(num_done)
        bound = entries_in_window(done, state.num_blocks[slot] * oracle.config.block_size, part.window)
        if oracle.capabilities.ring_window:
            bound = min(bound, oracle.explainer.machine.function("blocks_of_ring")(part.window))
        if (slack := oracle.capabilities.window_slack) is not None:
            first = operations.first_entry_read(oracle.config.block_size, done, part.window)
            bound = min(bound, state.num_blocks[slot] - first + slack)
        if held > bound:
            reach = oracle.config.windows[part.kv_group]
            kind = f"a window of {reach}" if reach > 0 else f"attention in chunks of {-reach}"
            sentence = f"$sequence holds $observed blocks, {kind} $expected"
            raise Finding("window-kept", sentence, call=context, expected=bound, observed=held, sequence=part.name)
