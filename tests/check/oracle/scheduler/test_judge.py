"""The judge of the loop: silent on the built-in scheduler, repeatable, and right about what it may demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kvproof.check.oracle.expected import ExpectedSequence
from kvproof.check.oracle.level import SCHEDULER
from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.base import ExpectedRequest, num_gains_max
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Observation, Pair
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.search.configurations import draw_for_scheduler as draw
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.impl.scheduler import SchedulerOutputs
from kvproof.spec.text.budgets import num_steps_max
from kvproof.spec.text.identity import Key
from kvproof.spec.trace import Operation

STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]


def add(request: int, num_tokens: int, max_tokens: int = 1, num_seqs: int = 1) -> Operation:
    seqs = tuple(range(10 * request, 10 * request + num_seqs))
    return "add", request, seqs, (1,) * num_tokens, max_tokens, (), (), None


def judge_of(subject: Any, operations: list[Operation], **config: Any) -> SchedulerJudge:
    judge = SchedulerJudge(subject, SchedulerConfig(**config))
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


# The built-in scheduler ---------------------------------------------------------------------------------------------


def test_nothing_is_refuted_in_4_000_operations() -> None:
    done = walk(SCHEDULERS, BuiltInScheduler(), 0, max_operations=4_000, seconds=100.0)
    assert done.finding is None, done.finding
    assert done.num_operations >= 4_000


@pytest.mark.long
def test_nothing_is_refuted_in_200_000_operations_and_every_witness_was_reached() -> None:
    done = walk(SCHEDULERS, BuiltInScheduler(), 1, max_operations=200_000, seconds=1000.0)
    assert done.finding is None, done.finding
    expected = SCHEDULER.expected_witnesses(BuiltInScheduler().capabilities)
    assert [name for name, is_expected in expected.items() if is_expected and not done.coverage[name]] == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("flag", ["caching", "chunked", "cross", "window"])
def test_nothing_is_refuted_where_one_capability_is_always_used(flag: str, seed: int) -> None:
    fixed = {flag: 5 if flag == "window" else True}
    done = walk(SCHEDULERS, BuiltInScheduler(), seed, max_operations=20_000, seconds=100.0, fixed=fixed)
    assert done.finding is None, done.finding


def test_the_seed_determines_everything() -> None:
    one, other = (walk(SCHEDULERS, BuiltInScheduler(), 7, max_operations=400, seconds=100.0) for _ in range(2))
    assert one.coverage == other.coverage
    assert one.kinds == other.kinds
    assert one.coverage != walk(SCHEDULERS, BuiltInScheduler(), 8, max_operations=400, seconds=100.0).coverage


def test_every_drawn_configuration_is_one_that_the_scheduler_accepts(seeds: Iterator[Any]) -> None:
    for _ in range(200):
        BuiltInScheduler().open(draw(next(seeds), BuiltInScheduler().capabilities))


def test_a_fixed_configuration_is_kept() -> None:
    done = walk(
        SCHEDULERS, BuiltInScheduler(), 0, max_operations=200, seconds=100.0, fixed={"chunked": True, "max_num_seqs": 3}
    )
    assert done.finding is None
    assert not done.is_unsupported


# Any subsequence is a trace -----------------------------------------------------------------------------------------


def test_operations_that_are_not_enabled_are_passed_over() -> None:
    judge = SchedulerJudge(BuiltInScheduler(), SchedulerConfig())
    for operation in [("launch",), ("complete", (0,)), ("abort", 1)]:
        assert not judge.apply(operation)
    assert judge.apply(add(1, 3))
    assert not judge.apply(add(1, 3))
    assert judge.apply(("schedule",))
    assert not judge.apply(("schedule",))
    assert not judge.apply(("complete", (0,)))
    assert judge.apply(("stop",))
    assert not judge.apply(add(2, 3))


def test_an_unknown_operation_is_no_trace() -> None:
    with pytest.raises(ValueError, match="there is no operation 'sleep'"):
        SchedulerJudge(BuiltInScheduler(), SchedulerConfig()).apply(("sleep",))


@pytest.mark.parametrize("place", range(4))
def test_a_request_may_be_aborted_between_any_two_calls(place: int) -> None:
    operations = [add(1, 3, 5), *STEP]
    operations.insert(1 + place, ("abort", 1))
    judge = SchedulerJudge(BuiltInScheduler(), SchedulerConfig())
    for operation in [*operations, ("schedule",), ("launch",), ("complete", (0,))]:
        judge.apply(operation)
    assert judge.is_done()
    assert judge.explainer.observed.free == (8, 0)


def test_a_fork_shares_and_then_copies() -> None:
    forked: Operation = ("complete", (0, 1), ((10, 11),), ())
    judge = judge_of(BuiltInScheduler(), [add(1, 3, 5), *STEP[:2], forked, *STEP])
    assert judge.coverage["copy-on-write"] == 1
    assert sorted(judge.seqs) == [10, 11]
    assert [judge.seqs[seq].tokens[3:] for seq in (10, 11)] == [[0, 0], [1, 0]]


# Progress -----------------------------------------------------------------------------------------------------------


def test_the_bound_counts_the_tokens_left_to_sample_and_the_chunks_between() -> None:
    request = ExpectedRequest(1, num_prompt=3, max_tokens=4)
    request.members.append(ExpectedSequence(10, request, Key(), (), 0))
    request.members[0].tokens = [1, 1, 1, 1]
    assert num_gains_max([request]) == 4, "3 tokens to sample and 1 request to end"
    # between two of these ceil(20 / 8) = 3 chunks and 2 steps that make room
    assert num_steps_max(4, max_model_len=20, max_num_batched_tokens=8, num_under_way=0) == 4 * (3 + 2) + 1
    assert num_steps_max(4, max_model_len=20, max_num_batched_tokens=8, num_under_way=2) == 21 * 3 + 2


class Lazy(BuiltInScheduler):
    """A scheduler that schedules nothing from some step on, and does not declare that it goes on."""

    capabilities = replace(BuiltInScheduler.capabilities, serves_running=False)

    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self.num_steps = num_steps

    def next_step(self) -> tuple[SchedulerOutputs, ScheduledStep]:
        self.num_steps -= 1
        if self.num_steps >= 0:
            return super().next_step()
        return SchedulerOutputs(), ScheduledStep()


def test_a_request_that_waits_while_nothing_runs_is_no_progress() -> None:
    finding = finding_of(Lazy(0), SchedulerConfig(), [add(1, 3), *STEP])
    assert finding is not None
    assert (finding.property, "nothing runs, and request 1, waiting" in finding.text) == ("progress", True)


def test_a_running_request_that_never_goes_on_is_no_progress() -> None:
    operations = [add(1, 3, 5), *STEP, ("stop",), *STEP * 40]
    finding = finding_of(Lazy(1), SchedulerConfig(), operations)
    assert finding is not None
    assert finding.property == "progress"
    assert "not all is done; there is request 1 running" in finding.text
    assert finding_of(BuiltInScheduler(), SchedulerConfig(), operations) is None


# What a step may not say --------------------------------------------------------------------------------------------


class Liar(BuiltInScheduler):
    """A scheduler whose adapter reports other steps than it takes."""

    def __init__(self, report: Callable[[ScheduledStep], Any]) -> None:
        super().__init__()
        self.report = report

    def schedule(self) -> ScheduledStep:
        return self.report(super().schedule())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("property", "report"),
    [
        ("read-back", lambda s: s._replace(chunks=[Chunk(10, 0, 4)])),
        ("exclusive-writer", lambda s: s._replace(chunks=list(s.chunks) * 2)),
        ("no-use-after-free", lambda s: s._replace(chunks=[Chunk(99, 0, 1)])),
        ("no-leak-at-rest", lambda s: s._replace(chunks=[])),
        ("frame-kept", lambda s: s._replace(ignored=[7])),
        ("admission-final", lambda s: s._replace(ignored=[1])),
        ("swap-mapping", lambda s: s._replace(swap_in=[(0, 0)])),
        ("swap-mapping", lambda s: s._replace(swap_out=[(0, 0)])),
        ("hit-computed", lambda s: s._replace(chunks=[Chunk(10, 2, 3, hit=4)])),
    ],
)
def test_a_step_that_is_not_what_happened_is_found(
    property: str, report: Callable[[ScheduledStep], ScheduledStep]
) -> None:
    finding = finding_of(Liar(report), SchedulerConfig(num_host_blocks=2), [add(1, 3, 5), *STEP])
    assert finding is not None
    assert finding.property == property


def test_a_step_that_computes_nothing_of_a_prompt_that_is_hit_is_found() -> None:
    def skips_last(step: ScheduledStep) -> ScheduledStep:
        return step._replace(chunks=[c._replace(start=c.stop) if c.hit == c.stop else c for c in step.chunks])

    config = SchedulerConfig(block_size=2, caching=True)
    operations = [add(1, 4), *STEP, add(2, 4), ("schedule",)]

    finding = finding_of(Liar(skips_last), config, operations)

    assert finding is not None
    assert finding.property == "token-left"
    assert finding_of(Liar(lambda s: s), config, operations) is None


def test_a_chunk_that_leaves_tokens_out_is_read_back() -> None:
    finding = finding_of(Liar(lambda s: s._replace(chunks=[Chunk(10, 1, 3)])), SchedulerConfig(), [add(1, 3, 5), *STEP])
    assert finding is not None
    assert finding.property in {"read-back", "hit-computed"}


class Preempting(BuiltInScheduler):
    """It preempts, and declares that it never does."""

    capabilities = replace(BuiltInScheduler.capabilities, preempts=False)


def test_a_preemption_by_a_scheduler_that_declares_none_is_the_adapters_fault() -> None:
    assert not SCHEDULER.expected_witnesses(Preempting().capabilities)["preempted"]
    with pytest.raises(AdapterError, match="was preempted, and the adapter declares preempts=False"):
        walk(SCHEDULERS, Preempting(), 1, max_operations=4_000, seconds=100.0)


def test_an_answer_of_another_type_is_the_adapters_fault() -> None:
    with pytest.raises(AdapterError, match="schedule must return ScheduledStep"):
        finding_of(Liar(lambda s: None), SchedulerConfig(), [add(1, 3), *STEP])


@pytest.mark.parametrize("name", ["swap_in", "swap_out", "copies"])
@pytest.mark.parametrize(
    ("pairs", "says"), [([(0, 1)] * 10_000, "at most .* it returned 10,000"), ([(0,)], "pairs of ints")]
)
def test_lists_that_no_step_can_have_are_the_adapters_fault(name: str, pairs: list[Pair], says: str) -> None:
    lists: dict[str, Any] = {name: pairs}
    with pytest.raises(AdapterError, match=rf"schedule\(\)\.{name} must return {says}"):
        finding_of(Liar(lambda s: s._replace(**lists)), SchedulerConfig(), [add(1, 3), *STEP])


def test_a_subject_without_a_call_is_none() -> None:
    with pytest.raises(AdapterError, match="not a scheduler subject: it has no open, add_request"):
        SchedulerJudge(object(), SchedulerConfig())  # type: ignore[arg-type]


def test_an_exception_in_a_step_names_the_call() -> None:
    def broken(step: ScheduledStep) -> ScheduledStep:
        raise RuntimeError("out of cheese")

    with pytest.raises(Finding, match="out of cheese") as caught:
        judge_of(Liar(broken), [add(1, 3), ("schedule",)])
    assert caught.value.kind == ("total-calls", "schedule RuntimeError")


@pytest.fixture
def seeds() -> Iterator[Any]:
    """Random numbers from a row of seeds."""
    from random import Random

    return (Random(seed) for seed in range(10_000))


# A subject that shows a sequence without a table ---------------------------------------------------------------------


class ShowsNoTable(BuiltInScheduler):
    """From one observation on, a sequence is shown with an empty list instead of its table."""

    def __init__(self, seq: int, first: int) -> None:
        super().__init__()
        self.seq, self.num_before = seq, first

    def observe(self) -> Observation:
        observed = super().observe()
        self.num_before -= 1
        if self.num_before >= 0 or self.seq not in observed.tables:
            return observed
        return observed._replace(tables={**observed.tables, self.seq: []})


@pytest.mark.parametrize("seq", [10, 20, 21])
@pytest.mark.parametrize("first", range(1, 6))
def test_a_sequence_shown_with_an_empty_list_has_no_table(seq: int, first: int) -> None:
    operations = [add(1, 5, max_tokens=9), add(2, 5, max_tokens=9, num_seqs=2), *STEP * 3]
    config = SchedulerConfig(num_gpu_blocks=8, block_size=2, max_num_batched_tokens=8, max_num_seqs=3, chunked=True)
    found = finding_of(ShowsNoTable(seq, first), config, operations)
    assert found is not None
    assert found.property == "frame-kept"
