"""Schedulers whose aborted requests end with a later step, that idle, or that exchange blocks when they schedule."""

from typing import Any, ClassVar

import pytest

from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.capabilities import SchedulerCan
from kvproof.check.protocol.manager import Observation
from kvproof.check.protocol.scheduler import ABORTED, Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.spec.trace import Operation

CONFIG = SchedulerConfig(1, 8, caching=True, max_model_len=4, max_num_seqs=2)
STEP: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]
DRAIN: Operation = ("drain", (0,))


def add(request: int, tokens: tuple[int, ...], max_tokens: int) -> Operation:
    return "add", request, (request,), tokens, max_tokens, (), (), None


class Late(SchedulerAdapter):
    """Every request is in every step. One that is aborted while it runs ends with the results of its next step."""

    capabilities = SchedulerCan(
        caching=True,
        preempts=False,
        reports_ends=True,
        aborts_late=True,
        idles_once=True,
        dedups_when_scheduled=True,
    )
    num_idle = 0  # steps that are empty though requests wait
    is_silent = keeps_blocks = ignores_aborts = False
    exchanges: ClassVar[dict[int, int]] = {}  # by block of a running request: the block that takes its place

    def make(self, config: SchedulerConfig) -> Any:
        self.free = list(range(config.num_gpu_blocks))
        self.tables: dict[int, list[int]] = {}
        self.computed: dict[int, int] = {}
        self.tokens: dict[int, list[int]] = {}
        self.leaving: set[int] = set()
        self.left = self.num_idle
        return self

    def add(self, request: Request) -> None:
        self.tokens[request.seq], self.computed[request.seq] = list(request.tokens), 0

    def cancel(self, request: Request) -> None:
        if request.seq in self.tables:
            self.leaving.add(request.seq)
        else:
            del self.tokens[request.seq]
            self.ends[request.number] = ABORTED

    def next_step(self) -> tuple[Any, ScheduledStep]:
        if self.left:
            self.left -= 1
            return [], ScheduledStep()
        chunks = []
        for seq, tokens in self.tokens.items():
            table = self.tables.setdefault(seq, [])
            for place, block in enumerate(table):
                if block in self.exchanges:
                    self.free.append(block)
                    table[place] = self.exchanges[block]
            table += [self.free.pop(0) for _ in range(len(tokens) - len(table))]
            chunks.append(Chunk(seq, self.computed[seq], len(tokens)))
        return [*self.tokens], ScheduledStep(chunks)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        for seq in output:
            self.computed[seq] = len(self.tokens[seq])
            if seq in sampled:
                self.tokens[seq].append(sampled[seq])
        over = finished if self.ignores_aborts else {*finished, *self.leaving}
        for seq in over:
            del self.tokens[seq]
            self.free += [] if self.keeps_blocks else self.tables.pop(seq)
        if not self.is_silent:
            self.ends |= dict.fromkeys(self.leaving - {*finished}, ABORTED)
        self.leaving.clear()

    def observe(self) -> Observation:
        held = {block for table in self.tables.values() for block in table}
        num_free = self.config.num_gpu_blocks - len(held)
        return Observation({seq: [list(table)] for seq, table in self.tables.items()}, (num_free, 0))


class Silent(Late):
    is_silent = True


class Keeps(Late):
    keeps_blocks = True


class GoesOn(Late):
    ignores_aborts = True


class Forgets(Late):
    """It runs an aborted request to its end."""

    is_silent = ignores_aborts = True


class IdlesOnce(Late):
    num_idle = 1


class IdlesTwice(Late):
    num_idle = 2


class Exchanges(Late):
    """The second request takes over the block that the first one has filled with the same tokens."""

    exchanges: ClassVar[dict[int, int]] = {1: 0}


ABORTED_WHILE_RUNNING = [add(1, (0,), 3), *STEP, ("abort", 1), *STEP, add(2, (1,), 1), DRAIN]
SAME, OTHERS = (0,), (1,)
TWO_EQUAL: list[Operation] = [add(1, SAME, 2), add(2, SAME, 2), *STEP, ("schedule",), DRAIN]
TWO_OTHERS: list[Operation] = [add(1, SAME, 2), add(2, OTHERS, 2), *STEP, ("schedule",), DRAIN]


@pytest.mark.parametrize(
    ("subject", "operations"),
    [
        (Late, ABORTED_WHILE_RUNNING),
        (Late, [add(1, (0,), 3), *STEP, ("abort", 1), DRAIN]),
        (Late, [add(1, (0,), 3), ("abort", 1), DRAIN]),
        (Late, [add(1, (0,), 3), ("schedule",), ("abort", 1), ("launch",), ("complete", (0,)), DRAIN]),
        (Late, [add(1, (0,), 1), ("schedule",), ("abort", 1), ("launch",), ("complete", (0,)), DRAIN]),
        (IdlesOnce, [add(1, (0,), 2), *STEP, DRAIN]),
        (Exchanges, TWO_EQUAL),
    ],
)
def test_a_lawful_scheduler_is_not_refuted(subject: type[Late], operations: list[Operation]) -> None:
    assert finding_of(subject(), CONFIG, operations) is None


@pytest.mark.parametrize(
    ("subject", "operations", "violated", "text"),
    [
        (Silent, ABORTED_WHILE_RUNNING, "progress", "gets a token of a step that was scheduled later"),
        (Forgets, [add(1, (0,), 2), *STEP, ("abort", 1), DRAIN], "progress", "gets a token of a step"),
        (Keeps, ABORTED_WHILE_RUNNING, "no-leak-at-rest", "still have tables"),
        (GoesOn, [add(1, (0,), 3), *STEP, ("abort", 1), *STEP, *STEP], "no-leak-at-rest", "still have tables"),
        (IdlesTwice, [add(1, (0,), 2), *STEP, *STEP], "progress", "nothing runs"),
        (Exchanges, TWO_OTHERS, "sharing-equal", "the twin holds the tokens"),
    ],
)
def test_a_wrong_scheduler_is_refuted(
    subject: type[Late], operations: list[Operation], violated: str, text: str
) -> None:
    finding = finding_of(subject(), CONFIG, operations)

    assert finding is not None
    assert finding.property == violated
    assert text in finding.text
