"""Faults of one line each, planted in the built-in scheduler: the loop finds every one and makes its run short.

Where a fault may show itself in several ways, which of them comes first is a matter of the seed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from kvproof.check.oracle.replay import finding_of
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]

QUEUES = "kvproof.impl.scheduler_queues"
SCHEDULER = "kvproof.impl.scheduler"
BUDGET = "kvproof.impl.scheduler"
NUM_OPERATIONS_MAX = 60_000
SECONDS_MAX = 60.0
MINIMISE_SECONDS_MAX = 10.0
SHORT = 16  # operations; most need 3 to 9


class Fault(NamedTuple):
    """What is wrong, where, which line becomes which, and the properties that name it rightly.

    seed: of a walk that finds it within some hundred operations.
    """

    name: str
    module: str
    function: str
    line: str
    replacement: str
    properties: set[str]
    seed: int = 0


FAULTS = [
    Fault(
        "an abort frees nothing",
        QUEUES,
        "SchedulerQueues._end",
        "self._free(group)",
        "pass",
        {"no-leak-at-rest"},
        seed=2,
    ),
    Fault(
        "an abort forgets what the step under way used",
        QUEUES,
        "SchedulerQueues._end",
        "self._ended_in_step.append(group)",
        "pass",
        {"no-leak-at-rest"},
    ),
    Fault(
        "an abort does not wait for the step under way",
        QUEUES,
        "SchedulerQueues._end",
        "if self._is_step_under_way:",
        "if False:",
        {"in-flight-held"},
    ),
    Fault(
        "an abort keeps the cross-attention table",
        QUEUES,
        "SchedulerQueues._free",
        "self.block_manager.free_cross(group)",
        "pass",
        {"no-leak-at-rest"},
        seed=2,
    ),
    Fault(
        "an abort overlooks the swapped queue",
        QUEUES,
        "SchedulerQueues._leave_queue",
        "(self.running, self.waiting, self.swapped)",
        "(self.running, self.waiting)",
        {"total-calls", "progress", "frame-kept", "no-use-after-free"},
        seed=4,
    ),
    Fault(
        "a finished request keeps its cross-attention table",
        QUEUES,
        "SchedulerQueues.free_finished_seq_groups",
        "self.block_manager.free_cross(group)",
        "pass",
        {"no-leak-at-rest"},
        seed=2,
    ),
    Fault(
        "the copies of a decode are dropped",
        SCHEDULER,
        "Scheduler._run_on",
        "outputs.blocks_to_copy += manager.append_slots(seq, scheduled.num_lookahead_slots)",
        "manager.append_slots(seq, scheduled.num_lookahead_slots)",
        {"cow-copied"},
        seed=6,
    ),
    Fault(
        "the copies of a group that was swapped in are dropped",
        SCHEDULER,
        "Scheduler._swap_in",
        "outputs.blocks_to_copy += manager.append_slots(seq, scheduled.num_lookahead_slots)",
        "manager.append_slots(seq, scheduled.num_lookahead_slots)",
        {"cow-copied"},
        seed=6,
    ),
    Fault(
        "the pairs of a swap-out are dropped",
        SCHEDULER,
        "Scheduler._preempt",
        "outputs.blocks_to_swap_out += manager.swap_out(group)",
        "manager.swap_out(group)",
        {"swap-mapping"},
        seed=3,
    ),
    Fault(
        "groups are swapped in after a preemption of the same step",
        SCHEDULER,
        "Scheduler.schedule",
        "if not outputs.preempted:",
        "if True:",
        {"read-back", "cow-copied", "frame-kept", "swap-mapping"},
        seed=1,
    ),
    Fault(
        "the token budget is not spent",
        BUDGET,
        "SchedulingBudget.spend",
        "self.num_tokens_left -= num_tokens",
        "pass",
        {"budget-kept"},
        seed=7,
    ),
    Fault(
        "the sequence budget is not spent",
        BUDGET,
        "SchedulingBudget.spend",
        "self.num_seqs_left -= num_seqs",
        "pass",
        {"budget-kept"},
        seed=3,
    ),
    Fault(
        "prompts are admitted without a place",
        SCHEDULER,
        "Scheduler._admit_prompts",
        "or len(seqs) > num_places",
        "",
        {"budget-kept"},
        seed=10,
    ),
    Fault(
        "a group that is swapped and can never come back is taken for one that can",
        SCHEDULER,
        "Scheduler._swap_in",
        "if answer is AllocStatus.NEVER:",
        "if False:",
        {"total-calls", "admission-sound"},
        seed=1,
    ),
    Fault(
        "the manager does not learn of a fork",
        QUEUES,
        "SchedulerQueues.fork_seq",
        "self.block_manager.fork(parent_seq, child_seq)",
        "pass",
        {"frame-kept"},
        seed=13,
    ),
    Fault(
        "a preempted group is lost",
        SCHEDULER,
        "Scheduler._move",
        "{WAITING: self.waiting, RUNNING: self.running, SWAPPED: self.swapped}[status].add(arrival, group)",
        "status and {RUNNING: self.running, SWAPPED: self.swapped}[status].add(arrival, group)",
        {"progress", "arrival-order"},
        seed=7,
    ),
    Fault(
        "a prompt for which there is never room waits for ever",
        SCHEDULER,
        "Scheduler._admit_prompts",
        "if answer is AllocStatus.NEVER:",
        "if False:",
        {"admission-sound", "total-calls", "progress"},
    ),
    Fault(
        "the answer LATER is taken for NEVER",
        SCHEDULER,
        "Scheduler._admit_prompts",
        "if answer is AllocStatus.NEVER:",
        "if answer is not AllocStatus.OK:",
        {"admission-final"},
        seed=10,
    ),
    Fault(
        "nobody comes back from the host while anybody waits",
        SCHEDULER,
        "Scheduler._swap_in",
        "while self.swapped:",
        "while self.swapped and not self.waiting:",
        {"progress"},
        seed=4,
    ),
    Fault(
        "a chunk is marked as the whole prompt",
        SCHEDULER,
        "Scheduler._tell_manager",
        "manager.mark_blocks_as_computed(scheduled.seq_group, scheduled.token_chunk_size)",
        "manager.mark_blocks_as_computed(scheduled.seq_group, scheduled.seq_group.seqs[0].get_len())",
        {"hit-computed", "cache-content", "sharing-equal"},
        seed=2,
    ),
    Fault(
        "a chunk counts as the whole prompt",
        SCHEDULER,
        "Scheduler._next_tokens",
        "return ScheduledSequenceGroup(group, chunk), chunk, True",
        "return ScheduledSequenceGroup(group, num_new), chunk, True",
        {"budget-kept"},
        seed=1,
    ),
    Fault(
        "a recomputed sequence counts as computed",
        SCHEDULER,
        "Scheduler._preempt",
        "seqs[0].reset_state_for_recompute()",
        "pass",
        {"read-back", "hit-computed", "total-calls"},
        seed=13,
    ),
    Fault(
        "a preempted sequence keeps its blocks",
        SCHEDULER,
        "Scheduler._preempt",
        "manager.free(seqs[0])",
        "pass",
        {"no-leak-at-rest", "progress", "swap-mapping", "total-calls"},
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_loop_finds_and_names_the_fault_and_makes_its_run_short(fault: Fault, plant: Plant) -> None:
    with plant(fault.module, fault.function, fault.line, fault.replacement):
        done = walk(SCHEDULERS, BuiltInScheduler(), fault.seed, max_operations=NUM_OPERATIONS_MAX, seconds=SECONDS_MAX)
        found = done.counterexample
        assert found is not None
        assert found.finding.property in fault.properties, found.finding.text
        short = shrink(BuiltInScheduler(), found, MINIMISE_SECONDS_MAX)
        assert short.finding.kind == found.finding.kind
        assert len(short.operations) <= SHORT, short.operations
        again = finding_of(BuiltInScheduler(), short.config, short.operations)
        assert again is not None
        assert again.text == short.finding.text
    assert finding_of(BuiltInScheduler(), short.config, short.operations) is None, (
        "the fault is out, and so is the finding"
    )
