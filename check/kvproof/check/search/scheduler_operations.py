"""The operations of a random run of a scheduler: requests alone and in bursts, steps, aborts at any point, a drain.

Each run has a configuration and weights of its own. After some operations no request arrives any more, and steps go on
until all is done; the judge knows by when that must be. The seed determines everything.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from kvproof.check.oracle.replay import NUM_TIMED
from kvproof.check.oracle.scheduler.base import unfinished
from kvproof.check.oracle.scheduler.completion import GROUP_MEMBERS_MAX
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.scheduler import SchedulerConfig, SchedulerSubject
from kvproof.check.search.operations_by_kind import do_nothing
from kvproof.check.search.prompts import Chats, Prompts
from kvproof.check.search.result import MovedLists
from kvproof.check.search.worlds import NUM_AT_A_TIME, has_large_sizes
from kvproof.spec.text.budgets import PRIORITY
from kvproof.spec.trace import Operation

RUN_LENGTH = 120  # operations before the drain
BURST_MAX = 4
PRIORITIES = (0, 0, 1, 2)
NUM_SAMPLES = 4  # token values given back with a step, in turn
CLOSES = 0.1  # in place of an input
GOES_ON = 0.2  # before each operation of a step of a scheduler that is paused
NUM_ARRIVALS = 8  # roughly, of a run of Hypothesis; then no request arrives any more


class SchedulerOperations:
    """Draws the operations of one run. moved: as of a block manager; a scheduler's lists are not kept."""

    moved: Sequence[MovedLists] = ()

    def __init__(
        self, subject: SchedulerSubject, random: Random, config: SchedulerConfig, without: frozenset[str] = frozenset()
    ) -> None:
        self.random, self.config = random, config
        self.judge = SchedulerJudge(subject, config)
        self.pause: Callable[[], None] = do_nothing
        pick, is_large = random.choice, has_large_sizes(config)
        self.arrives = pick((0.05, 0.2, 0.5))  # before each operation of a step
        self.bursts = pick((0.0, 0.2, 0.6))
        self.aborts = pick((0.0, 0.01, 0.05, 0.2)) * ("abort" not in without and capabilities_of(subject).aborts)
        self.forks = pick((0.0, 0.2, 0.5)) if capabilities_of(subject).fork else 0.0
        self.stops = pick((0.0, 0.0, 0.1))
        self.ahead = pick((0.5, 0.9, 1.0)) if config.async_steps else 0.0
        if capabilities_of(subject).runs_ahead:
            self.ahead = 1.0  # a step before the results of another
        self.arrivals = pick((0.2, 0.5, 1.0)) if self.judge.moves_kv else 0.0
        self.fails = pick((0.1, 0.3, 0.7)) if config.load_failures else 0.0
        self.proposes = pick((0.3, 0.8, 1.0)) if config.speculative_tokens else 0.0
        resets = (0.02, 0.1) if config.resets else (0.0, 0.0, 0.02) if config.connector else (0.0,)
        self.resets = pick(resets) if len(resets) > 1 and "reset_caches" not in without else 0.0
        self.pauses = pick((0.02, 0.1)) if config.pauses and "pause" not in without else 0.0
        self.feeds = pick((0.05, 0.2)) if config.sessions and "feed" not in without else 0.0
        self.num_requests_max = pick(NUM_AT_A_TIME) if is_large else random.randint(1, 8)
        self.num_generated_max = pick((1, 4, 12, 30))
        fitting = min(config.max_model_len, config.num_gpu_blocks * config.block_size)
        longest = max(1, int(fitting * pick((0.2, 0.4, 0.7, 1.2))))  # long ones are ignored, short ones fill the pool
        self.prompts, self.chats = Prompts(random, config, longest), Chats(random, self.judge.seqs)
        self.samples = [self.prompts.some(NUM_SAMPLES) for _ in range(4)]
        self.num_seqs = self.num_requests = self.num_to_come = 0

    def draw_from(self, random: Random) -> None:
        """Let this make the random choices of all operations from now on."""
        self.random = self.prompts.random = self.chats.random = random

    def is_over(self) -> bool:
        """Whether no request arrives any more, and all have ended."""
        return self.judge.last_step is not None and self.judge.is_done()

    def wanted(self) -> dict[str, list[int]]:
        """The kinds of operation that are enabled now and that the run wants, each with what it may be about."""
        judge, kinds = self.judge, dict[str, list[int]]()
        if self.is_over():
            return kinds
        if judge.is_enabled("add") and len(judge.requests) < self.num_requests_max and self._has_numbers():
            kinds["add"] = []
        if self.aborts and (alive := [request.id for request in unfinished(judge.requests)]):
            kinds["abort"] = alive
        if self.resets and judge.is_enabled("reset_caches"):
            kinds["reset_caches"] = []
        for kind in ("feed", "close") if self.feeds and judge.is_enabled("feed") else ():
            if sessions := judge.sessions.open_sessions():
                kinds[kind] = sessions
        for kind in ("pause", "go_on") if self.pauses else ():
            if judge.is_enabled(kind):
                kinds[kind] = []
        for kind in ("launch", "schedule"):
            if judge.is_enabled(kind):
                kinds[kind] = []
        if judge.under_way and not judge.is_enabled("launch"):
            kinds["complete"] = []
        return kinds

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these requests. In place of a request, the end of all may arrive."""
        if self.chats.newest:
            self.chats.follow()
        match kind:
            case "add":
                return ("stop",) if self.random.randrange(NUM_ARRIVALS) == NUM_ARRIVALS - 1 else self._add()
            case "abort":
                return kind, about[int(self.random.random() * len(about))]
            case "reset_caches":
                return self._reset()
            case "feed" | "close":
                return self._feed(about) if kind == "feed" else (kind, about[int(self.random.random() * len(about))])
            case "pause":
                return kind, self.random.random() < 0.5
            case "complete":
                return self._complete()
        return self._launch() if kind == "launch" else (kind,)

    def draw(self) -> Operation:
        """The next operation; it is enabled."""
        random, judge = self.random.random, self.judge
        requests = judge.requests
        if self.chats.newest:
            self.chats.follow()
        if judge.is_enabled("add"):
            must_arrive = not requests and not judge.under_way
            may_arrive = not self.num_to_come and len(requests) < self.num_requests_max
            if may_arrive and (must_arrive or random() < self.arrives):
                self.num_to_come = self.random.randint(1, BURST_MAX) if random() < self.bursts else 1
            if self.num_to_come:
                self.num_to_come -= 1
                return self._add()
        if self.aborts and random() < self.aborts:
            alive = [request.id for request in unfinished(requests)]
            if alive:
                return "abort", alive[int(random() * len(alive))]
        if self.resets and judge.is_enabled("reset_caches") and random() < self.resets:
            return self._reset()
        sessions = judge.sessions.open_sessions() if self.feeds and judge.is_enabled("feed") else ()
        if sessions and random() < self.feeds:
            return self._feed(sessions)
        if self.pauses and judge.is_enabled("pause"):
            if judge.scheduler.paused and random() < GOES_ON:
                return ("go_on",)
            if random() < self.pauses:
                return "pause", random() < 0.5
        return self._step()

    def _feed(self, sessions: Sequence[int]) -> Operation:
        """The next input of a session; it is closed if it has no room for more, and sometimes else."""
        random = self.random
        request = random.choice(sessions)
        num_left = self.judge.sessions.num_tokens_left(request)
        if num_left < 2 or random.random() < CLOSES:
            return "close", request
        tokens = self.prompts.some(random.randint(1, min(num_left - 1, 2 * self.config.block_size + 1)))
        return "feed", request, tokens, random.randint(1, min(num_left - len(tokens), self.num_generated_max))

    def _reset(self) -> Operation:
        preempts = self.judge.scheduler.may_preempt_all() and self.random.random() < 0.5
        if self.config.resets and self.judge.host and self.random.random() < 0.5:
            return "reset_caches", preempts, True
        return "reset_caches", preempts

    def _step(self) -> Operation:
        judge = self.judge
        if judge.is_enabled("launch"):
            return self._launch()
        may_go_ahead = judge.requests and judge.is_enabled("schedule")
        if not judge.under_way or (may_go_ahead and self.random.random() < self.ahead):
            return ("schedule",)
        return self._complete()

    def _tokens(self) -> tuple[int, ...]:
        return self.samples[int(self.random.random() * 4)]

    def _launch(self) -> Operation:
        if self.config.loads_in_step and (
            failures := self._failures(load.seq for load in self.judge.under_way[-1].step.loads)
        ):
            return "launch", self._tokens() if self.config.async_steps else (), (), failures
        if not self.config.async_steps:
            return ("launch",)
        tokens = self._tokens()
        return ("launch", tokens, self._drafts(-1)) if self.config.speculative_tokens else ("launch", tokens)

    def _failures(self, seqs: Iterable[int]) -> tuple[Any, ...]:
        """Some of the loads of these sequences, each with the places of the blocks that fail, or none for all."""
        random, failures = self.random, list[Any]()
        for seq in seqs:
            load = self.judge.failed_loads.loads.get(seq)
            if load is not None and self.judge.last_step is None and random.random() < self.fails:
                places = range(len(load.blocks))
                failures.append((seq, tuple(place for place in places if random.random() < random.choice((0, 0.5)))))
        return tuple(failures)

    def _complete(self) -> Operation:
        random, judge = self.random, self.judge
        samples = self._tokens()
        arrivals: tuple[tuple[Any, ...], ...] = ()
        if self.config.transfers:
            under_way = (*judge.loading, *judge.sending)
            arrivals = (tuple(i for i in under_way if judge.last_step is not None or random.random() < self.arrivals),)
            if failures := self._failures(judge.loading) if self.fails else ():
                arrivals = (*arrivals, (), (), failures)
            if self.config.repeated_reports and (repeated := self._repeated()):
                arrivals = (*arrivals, *((), (), ())[len(arrivals) - 1 :], repeated)
        if judge.host:
            places = range(len(judge.host.ready()))
            copied = tuple(i for i in places if judge.last_step is not None or random.random() < self.arrivals)
            arrivals = ((), copied)
        if self.config.speculative_tokens and not self.config.async_steps:
            arrivals = (arrivals[0] if arrivals else (), (), self._drafts(0))
        if not (self.forks or self.stops):
            return ("complete", samples, (), (), *arrivals) if arrivals else ("complete", samples)
        forks: list[tuple[int, int]] = []
        stops: list[int] = []
        for chunk in judge.under_way[0].step.chunks:
            if chunk.seq not in judge.seqs:
                continue
            if self.forks and random.random() < self.forks and len(judge.seqs) + len(forks) < judge.num_seqs_max:
                if len(judge.seqs[chunk.seq].group.members) < GROUP_MEMBERS_MAX:
                    self.num_seqs += 1
                    forks.append((chunk.seq, self.num_seqs))
            elif self.stops and random.random() < self.stops:
                stops.append(chunk.seq)
        return "complete", samples, tuple(forks), tuple(stops), *arrivals

    def _repeated(self) -> tuple[int, ...]:
        """Sometimes, sequences whose load was reported to be over."""
        reported = self.judge.failed_loads.reported
        return tuple(i for i in reported if self.random.random() < self.arrivals / 4)

    def _drafts(self, place: int) -> tuple[Any, ...]:
        """For most sequences of a step under way: some tokens, and how many of them are right."""
        random, most, drafts = self.random, self.config.speculative_tokens, []
        for chunk in self.judge.under_way[place].step.chunks:
            if random.random() < self.proposes:
                tokens = self.prompts.some(random.randint(1, most))
                drafts.append((chunk.seq, tokens, random.choice((0, len(tokens), random.randint(0, len(tokens))))))
        return tuple(drafts)

    def _has_numbers(self) -> bool:
        """Whether there may be the sequences of another request."""
        return len(self.judge.seqs) + self.config.group_size + 1 <= self.judge.num_seqs_max

    def _add(self) -> Operation:
        random, config = self.random, self.config
        if not self._has_numbers():
            self.num_to_come = 0
            return self._step()
        chat = self.chats.next_turn()
        tokens = self.prompts.draw(chat)
        self.num_requests += 1
        seqs = []
        for _ in range(random.randint(1, config.group_size)):
            self.num_seqs += 1
            seqs.append(self.num_seqs)
        key, images = self.prompts.key_and_images(len(tokens), chat)
        encoder = None
        if config.cross and random.random() < 0.7:
            self.num_seqs += 1
            encoder = (self.num_seqs, self.prompts.some(random.randint(1, 2 * config.block_size)))
        self.chats.newest = seqs[0]
        max_tokens = random.randint(1, self.num_generated_max)
        whole = "add", self.num_requests, tuple(seqs), tokens, max_tokens, key, images, encoder
        transfer = (0, False)
        if config.transfers:
            transfer = random.choice((0, random.randint(0, len(tokens)))), random.random() < 0.5
        if config.sessions and random.random() < 0.7:
            return *whole, transfer, random.choice(PRIORITIES), True
        if config.policy == PRIORITY:
            return *whole, transfer, random.choice(PRIORITIES)
        return (*whole, transfer) if config.transfers else whole

    def run(self, operations: list[Operation], length: int) -> None:
        """Draw and apply so many operations, then drain."""
        draw, apply, judge = self.draw, self.judge.apply, self.judge
        while True:
            if len(operations) >= length and judge.last_step is None:
                operation: Operation = ("stop",)
            elif self.is_over():
                return
            else:
                operation = draw()
            operations.append(operation)
            if not apply(operation):
                operations.pop()
            elif len(operations) % NUM_TIMED == 0:
                self.pause()
