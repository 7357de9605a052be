"""One step: which groups compute how many tokens, and which blocks the worker moves first.

The worker executes `blocks_to_swap_in`, then `blocks_to_swap_out`, then `blocks_to_copy`, then the model. The ids in
pairs of a swap are numbered per device; those in a copy are GPU blocks.
"""

from dataclasses import dataclass, field

from .growth import Pairs
from .sequence import SequenceGroup


@dataclass
class ScheduledSequenceGroup:
    """One group of a step.

    token_chunk_size: tokens of each running sequence that become computed by the step, from the first one that is not.
    num_cached_tokens: how many of them, at the start of a prompt, were hit in the prefix cache and are not computed.
    num_lookahead_slots: slots that it got beyond its tokens.
    """

    seq_group: SequenceGroup
    token_chunk_size: int
    num_cached_tokens: int = 0
    num_lookahead_slots: int = 0


@dataclass
class SchedulerOutputs:
    """One step. The first `num_prefill_groups` of the scheduled groups compute a prompt or a part of one."""

    num_lookahead_slots: int = 0  # of each decode
    scheduled_seq_groups: list[ScheduledSequenceGroup] = field(default_factory=list)
    num_prefill_groups: int = 0
    num_batched_tokens: int = 0  # tokens computed, those hit not counted
    blocks_to_swap_in: Pairs = field(default_factory=list)
    blocks_to_swap_out: Pairs = field(default_factory=list)
    blocks_to_copy: Pairs = field(default_factory=list)
    ignored_seq_groups: list[SequenceGroup] = field(default_factory=list)  # ended: no later step could run them
    aborted_seq_groups: list[SequenceGroup] = field(default_factory=list)  # ended: the host had no room for them
    running_queue_size: int = 0
    preempted: int = 0  # number of groups that were preempted

    def is_empty(self) -> bool:
        """Whether the worker has nothing to do."""
        return not (
            self.scheduled_seq_groups or self.blocks_to_swap_in or self.blocks_to_swap_out or self.blocks_to_copy
        )
