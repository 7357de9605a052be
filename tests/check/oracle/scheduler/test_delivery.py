"""What users get: the tokens that a step generated for them, in order, each once, and none behind the end."""

from typing import Any

import pytest
from tests.check.oracle.scheduler.test_drafts import Ahead, Verifies

from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import SchedulerCan
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.spec.text.budgets import num_to_generate
from kvproof.spec.trace import Operation


class Delivers(SchedulerAdapter):
    """A lawful part of a scheduler: it cuts what a step generated where the sequence ends."""

    num_beyond = 0  # tokens of a sequence beyond the length of the model
    right: dict[int, list[int]]

    def add(self, request: Request) -> None:
        super().add(request)
        length = self.config.max_model_len + self.num_beyond
        self.num_left = getattr(self, "num_left", {})
        self.num_left[request.seq] = num_to_generate(len(request.tokens), request.max_tokens, length)

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        super().take_results(output, sampled, finished)
        for seq, token in sampled.items():
            tokens = [*self.right.get(seq, []), token]
            most = self.num_left[seq]
            self.num_left[seq] = most - len(tokens)
            stop = tokens.index(token) + 1 if seq in finished else most
            self.outputs[seq] = self.given(tokens, min(most, stop))

    def given(self, tokens: list[int], most: int) -> list[int]:
        return tokens[:most]


class One(Delivers, Verifies):
    """One step at a time."""

    capabilities = SchedulerCan(preempts=False, speculative_tokens=3, reports_tokens=True)


class Two(Delivers, Ahead):
    """With a step under way."""

    capabilities = SchedulerCan(
        preempts=False, speculative_tokens=3, async_steps=1, steps_in_order=True, reports_tokens=True
    )


class OneBeyond(One):
    """The token that is sampled from the last position of the model is the last one of its answer."""

    num_beyond = 1


class GoesOn(One):
    """It delivers what is behind the end too."""

    def given(self, tokens: list[int], most: int) -> list[int]:
        return tokens


class GoesOnAhead(Two, GoesOn):
    """The same with a step under way."""


class Repeats(One):
    """The last token of a step is delivered twice."""

    def given(self, tokens: list[int], most: int) -> list[int]:
        return [*tokens[:most], *tokens[:most][-1:]]


class WithoutDrafts(One):
    """Only what was sampled is delivered."""

    def given(self, tokens: list[int], most: int) -> list[int]:
        return tokens[:most][-1:]


class Reverses(One):
    """The tokens of a step are delivered in reverse."""

    def given(self, tokens: list[int], most: int) -> list[int]:
        return tokens[:most][::-1]


class ToAnother(One):
    """Of two sequences, each gets the tokens of the other."""

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        super().take_results(output, sampled, finished)
        self.outputs = dict(zip(self.outputs, reversed(self.outputs.values()), strict=True))


class AfterTheEnd(One):
    """A step gives the user of a sequence that is over one token more."""

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        over = [seq for seq in self.num_left if seq not in self.tokens]
        super().take_results(output, sampled, finished)
        self.outputs |= {seq: [0] for seq in over}


class Nothing(One):
    """It forgets what the first step of a sequence generated."""

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        super().take_results(output, sampled, finished)
        self.outputs = {seq: tokens for seq, tokens in self.outputs.items() if self.right.get(seq)}


@pytest.mark.parametrize("kind", [One, OneBeyond, Two])
@pytest.mark.parametrize("speculative_tokens", [0, 3])
def test_a_lawful_scheduler_that_reports_its_tokens_is_not_refuted(kind: type[One], speculative_tokens: int) -> None:
    fixed = {"speculative_tokens": speculative_tokens, "async_steps": int(issubclass(kind, Two))}
    done = walk(SCHEDULERS, kind(), 1, max_operations=1_500, seconds=60, fixed=fixed)
    assert done.finding is None
    assert done.coverage["tokens behind the end"] > 10 or not speculative_tokens


@pytest.mark.parametrize(
    "kind", [GoesOn, GoesOnAhead, Repeats, WithoutDrafts, Reverses, ToAnother, AfterTheEnd, Nothing]
)
def test_a_scheduler_that_gives_users_other_tokens_is_refuted(kind: type[One]) -> None:
    fixed = {"speculative_tokens": 3, "async_steps": int(issubclass(kind, Two))}
    done = walk(SCHEDULERS, kind(), 1, max_operations=1_500, seconds=60, fixed=fixed)
    assert done.finding is not None
    assert done.finding.property == "tokens-delivered"


CONFIG = SchedulerConfig(2, 16, max_num_batched_tokens=8, max_num_seqs=2, max_model_len=8, speculative_tokens=3)
TWO_STEPS: list[Operation] = [
    ("add", 1, (10,), (5,), 3),
    *[("schedule",), ("launch",), ("complete", (6,), (), (), (), (), ((10, (7, 8, 9), 3),))],
    *[("schedule",), ("launch",), ("complete", (4,))],
]


def test_the_finding_names_the_user_and_both_texts() -> None:
    judge = SchedulerJudge(GoesOn(), CONFIG)
    for operation in TWO_STEPS[:-1]:
        assert judge.apply(operation)
    with pytest.raises(Finding, match="the user of sequence 10 gets the tokens") as raised:
        judge.apply(TWO_STEPS[-1])
    assert (raised.value.expected, raised.value.observed) == ([7, 8], [7, 8, 9, 4])


@pytest.mark.parametrize("answer", [5, {10: 5}, {10: ["a"]}])
def test_tokens_of_another_form_are_the_adapters_fault(answer: Any) -> None:
    class Malformed(One):
        def delivered(self) -> dict[int, list[int]]:
            return answer  # type: ignore[no-any-return]

    judge = SchedulerJudge(Malformed(), CONFIG)
    for operation in TWO_STEPS[:3]:
        assert judge.apply(operation)
    with pytest.raises(AdapterError, match="delivered"):
        judge.apply(TWO_STEPS[3])
