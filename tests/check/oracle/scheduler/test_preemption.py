"""What becomes of requests that lose their blocks, as preemption is set; and how each sequence of a request ended."""

from dataclasses import replace
from typing import Any

import pytest

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import in_memory
from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.spec.trace import Operation

SCHEDULER, QUEUES = "impl/kvproof/impl/scheduler.py", "impl/kvproof/impl/scheduler_queues.py"
SWAPS = "not may_recompute or self.scheduler_config.preemption_mode is PreemptionMode.SWAP"
ALWAYS, NEVER = "may_recompute or True", "not may_recompute"
STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]
GROWS_TOO_LONG: list[Operation] = [("add", 1, (10,), (0, 0), 2, (), (), None), *STEP, ("schedule",)]
ONE_IS_LEFT: list[Operation] = [
    ("add", 1, (10, 11), (1,), 3, (), (), None),
    *STEP[:2],
    ("complete", (0, 1), (), (11,)),
    *STEP,
    ("schedule",),
]


def config_of(preemption: str, num_host_blocks: int = 1) -> SchedulerConfig:
    return SchedulerConfig(2, 1, num_host_blocks, max_num_seqs=1, max_model_len=4, preemption=preemption)


SMALL = SchedulerConfig(1, 2, group_size=2, max_num_seqs=2, max_model_len=4)
ABORTED: list[Operation] = [*ONE_IS_LEFT[:4], ("abort", 1)]


@pytest.mark.parametrize(
    ("edit", "config", "operations", "text"),
    [
        (
            Edit("Scheduler._preempt", SWAPS, ALWAYS, SCHEDULER),
            config_of("auto"),
            GROWS_TOO_LONG,
            "request 1 is swapped out; it has one sequence, which preemption 'auto' computes again",
        ),
        (
            Edit("Scheduler._preempt", SWAPS, ALWAYS, SCHEDULER),
            config_of("recompute"),
            GROWS_TOO_LONG,
            "request 1 is swapped out; it has one sequence, which preemption 'recompute' computes again",
        ),
        (
            Edit("Scheduler._preempt", SWAPS, NEVER, SCHEDULER),
            config_of("swap"),
            GROWS_TOO_LONG,
            "request 1 gave up what it had computed; preemption is set to swap, its 1 blocks may go to the host, and 1 "
            "are unused there",
        ),
        (
            Edit("Scheduler._preempt", "len(seqs) == 1", "len(group.seqs) == 1", SCHEDULER),
            SMALL,
            ONE_IS_LEFT,
            "request 1 is ended for lack of room, and it can be computed again: it has one sequence",
        ),
    ],
)
def test_a_request_that_is_not_preempted_as_set_is_found(
    edit: Edit, config: SchedulerConfig, operations: list[Operation], text: str
) -> None:
    with in_memory(edit):
        finding = finding_of(BuiltInScheduler(), config, operations)

    assert finding is not None
    assert (finding.property, finding.text.partition(": ")[2]) == ("preempted-as-set", text)


@pytest.mark.parametrize(
    ("config", "operations"),
    [
        (config_of("auto"), GROWS_TOO_LONG),
        (config_of("recompute"), GROWS_TOO_LONG),
        (config_of("swap"), GROWS_TOO_LONG),
        (config_of("swap", 0), GROWS_TOO_LONG),
        (SMALL, ONE_IS_LEFT),
    ],
)
def test_what_is_preempted_as_set_passes(config: SchedulerConfig, operations: list[Operation]) -> None:
    assert finding_of(BuiltInScheduler(), config, operations) is None


def test_a_scheduler_that_does_not_declare_what_it_does_may_do_anything() -> None:
    class Undeclared(BuiltInScheduler):
        capabilities = replace(BuiltInScheduler.capabilities, preempts_as_set=False)

    with in_memory(Edit("Scheduler._preempt", SWAPS, ALWAYS, SCHEDULER)):
        assert finding_of(Undeclared(), config_of("auto"), GROWS_TOO_LONG) is None


RENAMES = Edit("SchedulerQueues._end", "group.get_unfinished_seqs()", "group.seqs", QUEUES)


def test_a_sequence_that_had_finished_and_is_called_aborted_is_found() -> None:
    assert finding_of(BuiltInScheduler(), SMALL, ABORTED) is None
    with in_memory(RENAMES):
        finding = finding_of(BuiltInScheduler(), SMALL, ABORTED)

    assert finding is not None
    assert finding.property == "progress"
    assert "sequence 11 of request 1 had ended by itself before, and is reported as aborted" in finding.text


def test_how_each_sequence_ended_is_judged_only_if_it_is_reported() -> None:
    class Undeclared(BuiltInScheduler):
        capabilities = replace(BuiltInScheduler.capabilities, reports_each_end=False)

        def each_ended(self) -> Any:
            raise AssertionError

    with in_memory(RENAMES):
        assert finding_of(Undeclared(), SMALL, ABORTED) is None


def test_a_sequence_that_is_in_no_report_is_found() -> None:
    class Silent(BuiltInScheduler):
        def each_ended(self) -> dict[int, str]:
            return {}

    finding = finding_of(Silent(), SMALL, ABORTED)
    assert finding is not None
    assert "is reported as not at all" in finding.text
