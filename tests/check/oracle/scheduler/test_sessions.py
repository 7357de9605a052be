"""Requests that go on: a session keeps its blocks, drops its newest token, and computes what its next input brings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.check.oracle.scheduler.test_transfers import Moves, Request

from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation


class GoesOn(Moves):
    """A session has room for the greatest length."""

    name = "goes-on"
    capabilities = Capabilities(sessions=True)

    def open(self, config: SchedulerConfig) -> None:
        super().open(config)
        if config.max_model_len > config.num_gpu_blocks * config.block_size:
            raise Unsupported("the pool holds one sequence of the greatest length")
        self.is_next_one = False
        self.inputs: dict[int, list[int]] = {}  # of sessions, by sequence: how many tokens each has
        self.closed = set[int]()
        self.idle = set[int]()

    def open_session(self, request: int) -> None:
        self.is_next_one = True

    def add_request(self, request: int, seqs: list[int], *others: Any) -> None:
        super().add_request(request, seqs, *others)
        if self.is_next_one:
            self.is_next_one = False
            self.inputs[seqs[0]] = []
            new = self.requests[seqs[0]]
            new.limit = max(new.limit, self.config.max_model_len)

    def of(self, number: int) -> Request:
        return next(one for one in self.requests.values() if one.number == number)

    def feed(self, request: int, tokens: list[int], max_tokens: int) -> None:
        seq = self.of(request).seq
        self.inputs[seq].append(len(tokens))
        if seq in self.idle:
            self.begin(self.of(request))

    def begin(self, request: Request) -> None:
        request.known += self.inputs[request.seq].pop(0) - 1
        self.idle.discard(request.seq)

    def close(self, request: int) -> None:
        one = self.of(request)
        self.closed.add(one.seq)
        if one.seq in self.idle:
            self.end(one)

    def may_run(self, request: Request) -> bool:
        return request.seq not in self.idle

    def complete(self, sampled: dict[int, int], forks: list[tuple[int, int]], finished: list[int]) -> None:
        waits = [seq for seq in finished if self.inputs.get(seq) or (seq in self.inputs and seq not in self.closed)]
        super().complete(sampled, forks, [seq for seq in finished if seq not in waits])
        for seq in waits:
            self.wait(self.requests[seq])

    def wait(self, request: Request) -> None:
        self.idle.add(request.seq)
        if self.inputs[request.seq]:
            self.begin(request)


class KeepsTheToken(GoesOn):
    """The token that was sampled last stays."""

    def begin(self, request: Request) -> None:
        super().begin(request)
        request.known += 1


class LosesAnInput(GoesOn):
    """An input that comes while the session generates is lost."""

    def wait(self, request: Request) -> None:
        self.inputs[request.seq].clear()
        super().wait(request)


class GivesItsBlocksUp(GoesOn):
    """The blocks of a session that waits are free, and it goes on with them."""

    def wait(self, request: Request) -> None:
        self.free += request.table
        super().wait(request)


class StaysOpen(GoesOn):
    """A session that waits for an input is not ended when it is closed."""

    def close(self, request: int) -> None:
        self.closed.add(self.of(request).seq)


class EndsAtOnce(GoesOn):
    """A session that is closed ends, whatever it was to do."""

    def close(self, request: int) -> None:
        one = self.of(request)
        self.inputs[one.seq].clear()
        super().close(request)


FIXED = {"sessions": True}
CONFIG = SchedulerConfig(1, 8, max_num_batched_tokens=8, max_num_seqs=4, max_model_len=8, sessions=True)
STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (3,))]
SESSION: Operation = ("add", 1, (10,), (1,), 1, (), (), None, (0, False), 0, True)
FEED: Operation = ("feed", 1, (2, 2), 1)


def test_sessions_are_not_refuted_and_their_witnesses_are_reached() -> None:
    done = walk(SCHEDULERS, GoesOn(), 1, max_operations=6_000, seconds=60, fixed=FIXED)

    assert done.finding is None, done.finding
    names = "session went on", "session waits for an input", "input kept until the session has its tokens"
    assert all(done.coverage[name] > 10 for name in names), done.coverage


@pytest.mark.parametrize(
    ("faulty", "properties"),
    [
        (KeepsTheToken, {"read-back"}),
        (LosesAnInput, {"progress", "read-back"}),
        (GivesItsBlocksUp, {"refcount-exact", "no-use-after-free", "conservation", "lists-agree"}),
        (StaysOpen, {"no-leak-at-rest", "frame-kept", "refcount-exact"}),
        (EndsAtOnce, {"progress", "frame-kept"}),
    ],
)
def test_a_session_that_does_not_go_on_as_it_should_is_refuted(
    faulty: Callable[[], GoesOn], properties: set[str]
) -> None:
    done = walk(SCHEDULERS, faulty(), 1, max_operations=20_000, seconds=60, fixed=FIXED)

    assert done.counterexample is not None
    one = done.counterexample
    assert one.finding.property in properties, one.finding
    assert finding_of(GoesOn(), one.config, one.operations) is None


def judged(*operations: Operation) -> SchedulerJudge:
    judge = SchedulerJudge(GoesOn(), CONFIG)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


@pytest.mark.parametrize("run", [[SESSION, *STEP, FEED], [SESSION, FEED, *STEP]], ids=["late", "early"])
def test_an_input_follows_what_is_computed_and_the_newest_token_is_dropped(run: list[Operation]) -> None:
    judge = judged(*run, ("schedule",))
    assert (judge.seqs[10].tokens, judge.answer) == ([1, 2, 2], "sequence 10: 1 to 3")


def test_a_session_that_waits_keeps_its_blocks_and_ends_when_it_is_closed() -> None:
    judge = judged(SESSION, *STEP, ("schedule",))
    assert (judge.answer, len(judge.scheduler.explainer.observed.tables)) == ("nothing", 1)
    judge = judged(SESSION, *STEP, ("close", 1))
    assert judge.is_done()


def test_a_session_gets_no_input_within_a_step_nor_beyond_the_length_of_the_model() -> None:
    judge = judged(SESSION, ("schedule",))
    assert not judge.apply(FEED)
    judge = judged(SESSION)
    assert not judge.apply(("feed", 1, (2,) * 5, 1))
    assert judge.apply(("feed", 1, (2,) * 4, 1))


def test_after_stop_every_session_ends() -> None:
    judge = judged(SESSION, FEED, *STEP, ("drain", (0,)))
    assert judge.is_done()


def test_sessions_are_not_judged_with_transfers_or_without_being_declared() -> None:
    with pytest.raises(Unsupported, match="has no requests that go on"):
        SchedulerJudge(Moves(), CONFIG)
    both: Any = GoesOn()
    both.capabilities = Capabilities(sessions=True, transfers=True)
    with pytest.raises(Unsupported, match="without transfers"):
        SchedulerJudge(both, replace(CONFIG, transfers=True))


LONG = (1, 10, 3), (2, 20, 3), (3, 30, 3)  # requests, sequences, and how long their prompts are


@pytest.mark.engine
def test_sessions_of_vllm_that_go_on_with_all_blocks_among_them_wait_for_ever() -> None:
    """Who goes on keeps its blocks while it waits to be let in, and nobody is preempted for it."""
    download.add("vllm==0.33.0")
    subject: Any = find("vllm-v1-scheduler==0.33.0")()
    long = [(*SESSION[:1], number, (seq,), (number,) * length, *SESSION[4:]) for number, seq, length in LONG]
    feeds: list[Operation] = [("feed", number, (2,), 1) for number, _, _ in LONG]
    run: list[Operation] = [*long, *STEP, *feeds, ("drain", (0,))]

    assert finding_of(subject, replace(CONFIG, num_gpu_blocks=12, max_num_batched_tokens=9), run) is None
    finding = finding_of(subject, replace(CONFIG, num_gpu_blocks=10, max_num_batched_tokens=9), run)
    assert finding is not None
    assert finding.property == "progress"
