"""The base of scheduler adapters: refused prompts, aborts within a step, and missing methods."""

from typing import Any

import pytest

from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.spec.text.identity import Key


class Recorder(SchedulerAdapter):
    """A scheduler that computes the first token of every request, and records its calls."""

    name = "recorder"

    def make(self, config: SchedulerConfig) -> list[str]:
        return []

    def add(self, request: Request) -> None:
        self.scheduler.append(f"add {request.number}")

    def cancel(self, request: Request) -> None:
        self.scheduler.append(f"cancel {request.number}")

    def next_step(self) -> tuple[Any, ScheduledStep]:
        return None, ScheduledStep([Chunk(request.seq, 0, 1) for request in self.requests.values()])

    def take_results(self, output: Any, sampled: dict[int, int], finished: list[int]) -> None:
        self.scheduler.append(f"results {finished}")

    def observe(self) -> Observation:
        return Observation({}, (0, 0))


def opened() -> Recorder:
    """A recorder with request 1 of sequence 10 and request 2 of sequence 20."""
    adapter = Recorder()
    adapter.open(SchedulerConfig(max_model_len=4))
    for request in (1, 2):
        add(adapter, request, 2)
    return adapter


def add(adapter: Recorder, request: int, num_tokens: int) -> None:
    adapter.add_request(request, [10 * request], [0] * num_tokens, Key(), (), 1, None)


def test_a_prompt_that_is_too_long_is_reported_as_ignored_with_the_next_step_only() -> None:
    adapter = opened()
    add(adapter, 3, 5)
    add(adapter, 4, 5)
    adapter.abort(4)
    first, second = adapter.schedule(), adapter.schedule()
    assert (list(first.ignored), list(second.ignored)) == ([3], [])
    assert adapter.scheduler == ["add 1", "add 2"]


def test_an_abort_within_a_step_is_carried_out_when_the_step_is_complete() -> None:
    adapter = opened()
    adapter.schedule()
    adapter.abort(1)
    adapter.launch()
    before = adapter.scheduler[2:]
    adapter.complete({}, [], [])
    assert (before, adapter.scheduler[2:]) == ([], ["results []", "cancel 1"])
    assert list(adapter.requests) == [2]


def test_an_abort_between_steps_is_carried_out_at_once() -> None:
    adapter = opened()
    adapter.abort(2)
    assert adapter.scheduler[2:] == ["cancel 2"]


def test_a_request_that_is_over_when_its_abort_is_carried_out_is_not_cancelled() -> None:
    adapter = opened()
    adapter.schedule()
    adapter.abort(1)
    adapter.complete({10: 0}, [], [10])
    assert adapter.scheduler[2:] == ["results [10]"]


def test_a_configuration_beyond_the_capabilities_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="recorder has no sliding window, no prefix cache"):
        Recorder().open(SchedulerConfig(caching=True, window=2))


def test_methods_that_an_adapter_lacks_are_named() -> None:
    class Half(SchedulerAdapter):
        capabilities = Capabilities(fork=True)

        def make(self, config: SchedulerConfig) -> None: ...

    with pytest.raises(AdapterError, match="Half must define add, next_step, take_results, observe, cancel, fork"):
        Half().open(SchedulerConfig())
