"""Loads that fail, of schedulers that load while steps run or within a step: what is missing is computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.check.oracle.scheduler.test_transfers import Moves, Request, add

from kvproof.check.counterexample.steps import describe_steps
from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import ABORTED, FAILED, IGNORED, Chunk, Load, ScheduledStep, SchedulerConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.spec.text.loads import FAIL, RECOMPUTE, is_in_vain, must_end, num_there
from kvproof.spec.trace import Operation


class Loads(Moves):
    """A request goes on from the first block that failed, or ends, as it is configured."""

    name = "loads"
    capabilities = Capabilities(
        transfers=True, loads_in_step=True, load_failures=(RECOMPUTE, FAIL), reports_ends=True, serves_running=True
    )

    def open(self, config: SchedulerConfig) -> None:
        super().open(config)
        self.ends: dict[int, str] = {}
        self.in_vain = set[int]()
        self.positions: dict[int, int] = {}

    def abort(self, request: int) -> None:
        self.ends[request] = ABORTED
        super().abort(request)

    def ended(self) -> dict[int, str]:
        ends, self.ends = self.ends, {}
        return ends

    def schedule(self) -> ScheduledStep:
        step = super().schedule()
        self.ends |= dict.fromkeys(step.ignored, IGNORED) | dict.fromkeys(step.failed, ABORTED)
        self.positions |= {load.seq: load.hit for load in step.loads}
        return step

    def may_run(self, request: Request) -> bool:
        if self.config.loads_in_step and request.is_loading:
            request.is_loading = False
            return True
        return super().may_run(request)

    def loads_failed(self, failed: dict[int, list[int]]) -> None:
        for seq, blocks in failed.items():
            request = self.requests.get(seq)
            if request is None or request.is_over:
                continue
            if self.config.load_failures == FAIL:
                self.ends[request.number] = FAILED
                self.in_vain.add(seq)
                self.end(request)
            else:
                self.fail(request, min(map(request.table.index, blocks), default=0))

    def fail(self, request: Request, index: int) -> None:
        request.computed = min(request.computed, index * self.config.block_size)
        if self.config.loads_in_step:
            self.in_vain.add(request.seq)

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        in_step, self.in_vain = {r.seq: r for r in self.step}, {*self.in_vain}
        for seq in self.in_vain & in_step.keys():
            in_step[seq].known -= 1  # the token is not taken
        self.in_vain.clear()
        super().complete(sampled, forks, finished)


class Repeats(Loads):
    """What is reported twice changes nothing the second time."""

    capabilities = Capabilities(transfers=True, repeated_reports=True, load_failures=(RECOMPUTE,), reports_ends=True)

    def arrived(self, sent: list[int], received: list[int]) -> None:
        loading = [seq for seq in received if seq in self.requests and self.requests[seq].is_loading]
        super().arrived(sent, loading)


class FreesTwice(Repeats):
    """What is received belongs to a request that waits for it, or is over."""

    def arrived(self, sent: list[int], received: list[int]) -> None:
        Moves.arrived(self, sent, [seq for seq in received if seq in self.requests])


class KnowsAll(Repeats):
    """What is received belongs to a request that is there."""

    def arrived(self, sent: list[int], received: list[int]) -> None:
        Moves.arrived(self, sent, received)


class BeginsAgain(Loads):
    """What was loaded is given up if a part of it fails, and the request waits, behind all others."""

    def open(self, config: SchedulerConfig) -> None:
        if config.loads_in_step:
            raise Unsupported("loads that last only")
        super().open(config)
        self.failed = list[Request]()

    def fail(self, request: Request, index: int) -> None:
        if request not in self.failed:
            self.failed.append(request)

    def schedule(self) -> ScheduledStep:
        for request in [r for r in self.failed if not r.is_loading]:
            self.failed.remove(request)
            if not request.is_over:
                self.running.remove(request)
                self.waiting.append(request)
                self.free += request.table
                request.table, request.computed = [], 0
        return super().schedule()


class GoesOn(Loads):
    """Nothing happens if a load fails."""

    def fail(self, request: Request, index: int) -> None:
        pass


class TakesTheToken(Loads):
    """The token that was computed from what is missing is taken."""

    def fail(self, request: Request, index: int) -> None:
        request.computed = min(request.computed, index * self.config.block_size)


class ForgetsTheFirst(Loads):
    """It goes on behind the first block that failed."""

    def fail(self, request: Request, index: int) -> None:
        super().fail(request, index + 1)


class NeverEnds(Loads):
    """Where a request should end, nothing happens."""

    def loads_failed(self, failed: dict[int, list[int]]) -> None:
        if self.config.load_failures != FAIL:
            super().loads_failed(failed)


class EndsSilently(Loads):
    """Its user does not learn that the request has ended."""

    def ended(self) -> dict[int, str]:
        return {request: end for request, end in super().ended().items() if end != FAILED}


class EndsWhatItComputes(Loads):
    """A request is ended, and computed again."""

    def fail(self, request: Request, index: int) -> None:
        super().fail(request, index)
        self.ends[request.number] = FAILED


FIXED = {"transfers": True, "load_failures": RECOMPUTE, "loads_in_step": False, "max_num_batched_tokens": 4096}
POLICIES = [
    FIXED,
    {**FIXED, "load_failures": FAIL},
    {**FIXED, "loads_in_step": True},
    {**FIXED, "loads_in_step": True, "load_failures": FAIL},
]
CONFIG = SchedulerConfig(block_size=1, num_gpu_blocks=4, transfers=True, load_failures=RECOMPUTE)


@pytest.mark.parametrize("fixed", POLICIES, ids=["lasting", "lasting-fail", "in-step", "in-step-fail"])
def test_loads_that_fail_are_not_refuted(fixed: dict[str, Any]) -> None:
    done = walk(SCHEDULERS, Loads(), 1, max_operations=6_000, seconds=100.0, fixed=fixed)
    assert done.finding is None, done.finding
    assert done.coverage["load failed"] > 20
    assert (done.coverage["computed in vain"] > 20) == fixed["loads_in_step"]


def test_a_request_may_begin_again_when_its_load_failed() -> None:
    done = walk(SCHEDULERS, BeginsAgain(), 1, max_operations=6_000, seconds=100.0, fixed=FIXED)
    assert done.finding is None, done.finding
    assert done.coverage["began again after a failed load"] > 20


@pytest.mark.parametrize(
    ("faulty", "fixed", "properties"),
    [
        (GoesOn, POLICIES[0], {"hit-computed"}),
        (GoesOn, POLICIES[2], {"read-back"}),
        (ForgetsTheFirst, POLICIES[0], {"hit-computed"}),
        (ForgetsTheFirst, POLICIES[2], {"hit-computed"}),
        (TakesTheToken, POLICIES[2], {"read-back"}),
        (NeverEnds, POLICIES[1], {"progress"}),
        (NeverEnds, POLICIES[3], {"progress"}),
        (EndsSilently, POLICIES[1], {"progress"}),
        (EndsWhatItComputes, POLICIES[0], {"progress"}),
    ],
)
def test_what_is_wrong_after_a_failed_load_is_found(
    faulty: Callable[[], Loads], fixed: dict[str, Any], properties: set[str]
) -> None:
    done = walk(SCHEDULERS, faulty(), 1, max_operations=10_000, seconds=100.0, fixed=fixed)
    assert done.counterexample is not None
    assert done.finding is not None
    assert done.finding.property in properties, done.finding
    assert finding_of(Loads(), done.counterexample.config, done.counterexample.operations) is None


REPEATED = {"transfers": True, "load_failures": "", "repeated_reports": True}


def test_a_load_may_be_reported_twice() -> None:
    done = walk(SCHEDULERS, Repeats(), 1, max_operations=6_000, seconds=100.0, fixed=REPEATED)
    assert done.finding is None, done.finding
    names = "load reported again", "load reported again when its request is gone"
    assert all(done.coverage[name] > 20 for name in names)


@pytest.mark.parametrize("faulty", [FreesTwice, KnowsAll])
def test_a_second_report_that_changes_something_is_found(faulty: Callable[[], Loads]) -> None:
    done = walk(SCHEDULERS, faulty(), 1, max_operations=10_000, seconds=100.0, fixed=REPEATED)
    assert done.counterexample is not None
    assert done.finding is not None
    assert done.finding.property in ("in-flight-held", "total-calls")
    assert finding_of(Repeats(), done.counterexample.config, done.counterexample.operations) is None


def test_only_a_load_that_is_over_is_reported_again() -> None:
    config = SchedulerConfig(block_size=1, num_gpu_blocks=5, transfers=True, repeated_reports=True)
    judge = SchedulerJudge(Repeats(), config)
    again: Operation = ("complete", (0,), (), (), (), (), (), (), (10, 11))
    for operation in [add(1, 4, 1, (3, False)), ("schedule",), ("launch",), again]:
        assert judge.apply(operation)
    assert judge.coverage["load reported again"] == 0
    with pytest.raises(Unsupported, match="does not take it that a load is reported twice"):
        SchedulerJudge(Loads(), config)


def judged(*operations: Operation, **changed: Any) -> SchedulerJudge:
    config: dict[str, Any] = {"block_size": 1, "num_gpu_blocks": 4, "transfers": True, "load_failures": RECOMPUTE}
    judge = SchedulerJudge(Loads(), SchedulerConfig(**config | changed))
    for operation in operations:
        assert judge.apply(operation)
    return judge


def test_what_lies_behind_the_first_block_that_failed_is_computed_again() -> None:
    fails = "complete", (0,), (), (), (10,), (), (), ((10, (1,)),)
    judge = judged(add(1, 4, 1, (3, False)), ("schedule",), ("launch",), fails, num_gpu_blocks=5)
    assert judge.state.num_written[:4] == [1, 0, 0, 0]
    assert judge.apply(("schedule",))
    assert judge.answer == "sequence 10: 1 to 4"


def test_a_load_may_be_reported_to_fail_before_it_is_over_and_when_its_request_is_gone() -> None:
    fails: Operation = ("complete", (0,), (), (), (), (), (), ((10, (0,)),))
    step: list[Operation] = [("schedule",), ("launch",)]
    judge = judged(add(1, 4, 1, (3, False)), *step, fails, *step, fails, ("abort", 1), *step, fails, num_gpu_blocks=5)
    assert judge.explainer.observed.free == (2, 0)
    for operation in [*step, ("complete", (0,), (), (), (10,))]:
        assert judge.apply(operation)
    assert (judge.explainer.observed.free, judge.is_done()) == ((5, 0), True)


def test_a_token_that_was_computed_in_vain_is_given_to_nobody() -> None:
    operations = (add(1, 3, 2, (2, False)), ("schedule",), ("launch", (), (), ((10, ()),)), ("complete", (0,)))
    judge = judged(*operations, loads_in_step=True, num_gpu_blocks=5)
    assert judge.seqs[10].tokens == [1, 1, 1]
    assert judge.apply(("schedule",))
    assert judge.answer == "sequence 10: 0 to 3"


def test_no_load_fails_after_the_last_arrival() -> None:
    fails = "complete", (0,), (), (), (10,), (), (), ((10, ()),)
    judge = judged(add(1, 3, 1, (2, False)), ("stop",), ("schedule",), ("launch",), fails)
    assert judge.coverage["load failed"] == 0


def test_a_run_with_a_load_that_fails_is_described() -> None:
    fails = "complete", (0,), (), (), (10,), (), (), ((10, (0, 1)),)
    steps = describe_steps(Loads, CONFIG, [add(1, 3, 1, (2, False)), ("schedule",), ("launch",), fails])
    assert "the load of sequence 10 fails for its blocks no. 0, 1" in steps[3]


def test_loads_fail_only_where_the_scheduler_declares_what_it_does_then() -> None:
    with pytest.raises(Unsupported, match="does not declare what happens if a load fails"):
        SchedulerJudge(Moves(), CONFIG)
    with pytest.raises(Unsupported, match="does not load KV within a step"):
        SchedulerJudge(Moves(), SchedulerConfig(transfers=True, loads_in_step=True))
    with pytest.raises(Unsupported, match="only KV from elsewhere"):
        SchedulerJudge(Loads(), SchedulerConfig(load_failures=FAIL))


def test_a_load_within_a_step_begins_behind_the_hit() -> None:
    class LoadsElsewhere(Loads):
        def schedule(self) -> ScheduledStep:
            return ScheduledStep([Chunk(10, 2, 3)], loads=[Load(10, 0, 3)]) if super().schedule() else ScheduledStep()

    judge = SchedulerJudge(LoadsElsewhere(), SchedulerConfig(block_size=1, transfers=True, loads_in_step=True))
    judge.apply(add(1, 3, 1, (2, False)))
    with pytest.raises(Finding, match="loads positions 0 to 2"):
        judge.apply(("schedule",))


def test_what_is_there_after_a_load() -> None:
    assert [num_there(4, 10, whole, 2) for whole in range(4)] == [4, 6, 8, 10]
    assert num_there(0, 5, 3, 2) == 5
    assert (is_in_vain(4, 4), is_in_vain(4, 2)) == (False, True)
    assert (must_end(True, True), must_end(True, False), must_end(False, True)) == (True, False, False)
    assert capabilities_of(Loads()).load_failures == (RECOMPUTE, FAIL)
