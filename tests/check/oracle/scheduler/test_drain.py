"""A drain as one operation does the same steps, and makes the run short if a request waits for ever."""

from __future__ import annotations

from dataclasses import replace

from kvproof.check.oracle.level import typed
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.scheduler import ScheduledStep, SchedulerConfig
from kvproof.check.search.shrinking import shrink
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.impl.scheduler import SchedulerOutputs
from kvproof.spec.trace import Operation

STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]


def add(request: int, num_tokens: int, max_tokens: int) -> Operation:
    return "add", request, (10 * request,), (1,) * num_tokens, max_tokens, (), (), None


class Weary(BuiltInScheduler):
    """It runs one step, and no other, and does not declare that it goes on."""

    capabilities = replace(BuiltInScheduler.capabilities, serves_running=False)

    def open(self, config: SchedulerConfig) -> None:
        super().open(config)
        self.has_run = False

    def next_step(self) -> tuple[SchedulerOutputs, ScheduledStep]:
        if not self.has_run:
            self.has_run = True
            return super().next_step()
        return SchedulerOutputs(), ScheduledStep()


def test_a_drain_takes_the_steps_that_lead_to_the_end() -> None:
    in_one, in_steps = (SchedulerJudge(BuiltInScheduler(), SchedulerConfig(num_gpu_blocks=4)) for _ in range(2))
    for judge in (in_one, in_steps):
        assert judge.apply(add(1, 5, 4))
        assert judge.apply(add(2, 3, 2))
    assert in_one.apply(("drain", (0,)))
    while not in_steps.is_done():
        assert all(in_steps.apply(operation) for operation in STEP)
    assert in_one.is_done()
    assert in_one.scheduler.num_steps == in_steps.scheduler.num_steps > 3
    assert in_one.answer == f"{in_steps.scheduler.num_steps} steps"
    assert in_one.explainer.observed == in_steps.explainer.observed
    assert in_one.worker.slots == in_steps.worker.slots


def test_a_drain_ends_a_step_that_is_under_way() -> None:
    judge = SchedulerJudge(BuiltInScheduler(), SchedulerConfig())
    for operation in (add(1, 5, 4), *STEP[:2], ("drain", (0,))):
        assert judge.apply(operation)
    assert judge.is_done()


def test_nobody_arrives_after_a_drain_and_one_without_tokens_is_none() -> None:
    judge = SchedulerJudge(BuiltInScheduler(), SchedulerConfig())
    assert not judge.apply(("drain", ()))
    assert judge.apply(add(1, 5, 4))
    assert judge.apply(("drain", (0,)))
    assert not judge.apply(add(2, 5, 4))


def test_a_run_in_which_somebody_waits_for_ever_becomes_a_request_and_a_drain() -> None:
    operations = [add(1, 3, 5), add(2, 4, 5), *STEP, ("stop",), *STEP * 80]
    config = SchedulerConfig()
    finding = finding_of(Weary(), config, operations)
    assert finding is not None
    assert finding.property == "progress"
    short = shrink(Weary(), Counterexample(config, operations, finding), 20.0)
    assert [operation[0] for operation in short.operations] == ["add", "drain"]
    assert short.finding.kind == finding.kind
    assert typed(short.operations[-1]).text(config) == "drain(samples 0)"
