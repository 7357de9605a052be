"""What groups need of the pool, and what a manager may answer about it for good."""

from kvproof.check.oracle.expected import WAITING, Group
from kvproof.check.oracle.oracle import Oracle


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


def num_blocks_kept(oracle: Oracle, group: Group) -> int:
    """Blocks of the GPU that the group can never get: reserved ones and the null block."""
    has_null = oracle.leaves_entries and group.members[0].status is not WAITING
    num_reserved = len(oracle.explainer.observed.reserved) + oracle.prefixes.num_blocks
    kept: int = oracle.explainer.machine.function("blocks_kept")(num_reserved, has_null)
    return kept


def may_end_for_good(oracle: Oracle, group: Group) -> bool:
    """Whether no later state of the pool could run the group; a subject may declare that it keeps a reserve."""
    gpu, slack = oracle.config.num_gpu_blocks, oracle.capabilities.refusal_slack or 0
    needed, kept = num_blocks_needed(oracle, group, oracle.lookahead) + slack, num_blocks_kept(oracle, group)
    answer: bool = oracle.explainer.machine.function("may_end_for_good")(needed, kept, oracle.num_held_back, gpu)
    return answer
