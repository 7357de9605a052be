"""KV that is loaded or sent with a sliding window: what later tokens read is there, and the rest may be given up."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.check.oracle.scheduler.test_transfers import STEP, Moves, Request, add

from kvproof.check.oracle.replay import finding_of
from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import NULL_BLOCK, Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.spec.text.state import first_read

FIXED = {"transfers": True, "sends_aborted": False, "window": 3, "caching": False}


class Windowed(Moves):
    """A scheduler with a window: an entry that no later token reads has no block, also while it is loaded or sent."""

    capabilities = Capabilities(transfers=True, hybrid_transfers=True, window=True)

    def open(self, config: SchedulerConfig) -> None:
        self.window = config.window or 0
        super().open(SchedulerConfig(**config.as_dict() | {"window": None}))

    def first_entry(self, position: int) -> int:
        """The first entry that the token at a position, or a later one, reads."""
        return max(0, first_read(position, self.window)) // self.config.block_size

    def loaded_from(self, request: Request) -> int:
        """The first entry that a load fills; the last token of a prompt is computed again."""
        return self.first_entry(min(request.coming, request.known - 1))

    def sent_from(self, request: Request) -> int:
        """The first entry that is sent."""
        return self.first_entry(request.computed)

    def leave(self, request: Request, first: int) -> None:
        for index, block in enumerate(request.table[:first]):
            if block != NULL_BLOCK:
                self.free.append(block)
                request.table[index] = NULL_BLOCK

    def add_request(
        self, request: int, seqs: list[int], tokens: list[int], key: Any, images: Any, max_tokens: int, encoder: Any
    ) -> None:
        coming, _ = self.elsewhere_next
        super().add_request(request, seqs, tokens, key, images, max_tokens, encoder)
        self.requests[seqs[0]].coming = coming

    def may_run(self, request: Request) -> bool:
        request.computed = min(request.computed, request.known - 1)  # the last token is computed, loaded or not
        return super().may_run(request)

    def extend(self, request: Request, stop: int) -> None:
        if request.is_loading and not request.table:
            request.table = [NULL_BLOCK] * self.loaded_from(request)
        self.leave(request, self.first_entry(request.computed) if request.computed else 0)
        super().extend(request, stop)

    def end(self, request: Request) -> None:
        super().end(request)
        if request.is_sent and request.is_busy and request not in self.step:
            self.leave(request, self.sent_from(request))

    def release(self, request: Request) -> None:
        request.table = [block for block in request.table if block != NULL_BLOCK]
        super().release(request)

    def being_sent(self) -> dict[int, list[list[int]]]:
        return {r.seq: [r.table[:]] for r in self.requests.values() if r.is_over and r.table}


class SendsAll(Windowed):
    """All blocks that a request has are kept until it is sent."""

    def sent_from(self, request: Request) -> int:
        return 0


class LoadsAll(Windowed):
    """Every entry of a load is filled."""

    def loaded_from(self, request: Request) -> int:
        return 0


class LoadsInStep(Windowed):
    """A step computes what lies behind the KV that it loads."""

    capabilities = Capabilities(transfers=True, hybrid_transfers=True, window=True, loads_in_step=True)

    def add_request(
        self, request: int, seqs: list[int], tokens: list[int], key: Any, images: Any, max_tokens: int, encoder: Any
    ) -> None:
        super().add_request(request, seqs, tokens, key, images, max_tokens, encoder)
        size, new = self.config.block_size, self.requests[seqs[0]]
        new.coming = min(new.coming, (len(tokens) - 1) // size * size)

    def may_run(self, request: Request) -> bool:
        request.is_loading = False
        return super().may_run(request)


class LoadsTooLittleInStep(LoadsInStep):
    """The first entry that the step reads is not loaded."""

    def loaded_from(self, request: Request) -> int:
        return self.first_entry(request.coming) + 1


class LoadsTooLittle(Windowed):
    """The last token of a prompt is computed again, and reads one position more than the next one."""

    def loaded_from(self, request: Request) -> int:
        return self.first_entry(request.coming)


class SendsTooLittle(Windowed):
    """The first entry that a later token reads is given up before it is sent."""

    def sent_from(self, request: Request) -> int:
        return self.first_entry(request.computed) + 1


@pytest.mark.parametrize("lawful", [Windowed, SendsAll, LoadsAll])
def test_entries_that_no_later_token_reads_may_be_loaded_and_sent_or_left(lawful: Callable[[], Moves]) -> None:
    done = walk(SCHEDULERS, lawful(), 1, max_operations=2_000, seconds=100.0, fixed=FIXED)
    assert done.finding is None, done.finding
    assert all(done.coverage[name] > 10 for name in ("load", "send", "window left an entry"))
    assert (done.coverage["send without what the window left"] > 0) == (lawful is not SendsAll)


def test_a_step_may_load_what_it_reads_and_no_more() -> None:
    fixed = FIXED | {"loads_in_step": True}
    done = walk(SCHEDULERS, LoadsInStep(), 1, max_operations=2_000, seconds=100.0, fixed=fixed)
    assert done.finding is None, done.finding
    assert done.coverage["load within a step"] > 10
    done = walk(SCHEDULERS, LoadsTooLittleInStep(), 1, max_operations=2_000, seconds=100.0, fixed=fixed)
    assert done.finding is not None
    assert done.finding.property == "window-kept"


@pytest.mark.parametrize(("faulty", "property"), [(LoadsTooLittle, "window-kept"), (SendsTooLittle, "in-flight-held")])
def test_an_entry_that_a_later_token_reads_is_loaded_and_sent(faulty: Callable[[], Moves], property: str) -> None:
    done = walk(SCHEDULERS, faulty(), 1, max_operations=20_000, seconds=100.0, fixed=FIXED)
    assert done.counterexample is not None
    assert done.counterexample.finding.property == property
    assert finding_of(Windowed(), done.counterexample.config, done.counterexample.operations) is None


def test_a_prompt_that_is_loaded_as_a_whole_keeps_what_its_last_token_reads() -> None:
    config = SchedulerConfig(block_size=1, num_gpu_blocks=9, transfers=True, window=2)
    judge = SchedulerJudge(Windowed(), config)
    whole = [add(1, 3, 1, (3, False)), *STEP[:2], ("complete", (0,), (), (), (10,))]
    for operation in whole:
        assert judge.apply(operation)
    assert judge.seqs[10].observed_table == [NULL_BLOCK, 0, 1]
    assert judge.apply(("schedule",))
    assert judge.answer == "sequence 10: 2 to 3"
    finding = finding_of(LoadsTooLittle(), config, whole)
    assert finding is not None
    assert finding.property == "window-kept"


def test_transfers_with_a_window_are_judged_only_of_a_subject_that_has_them() -> None:
    class OfOneKind(Windowed):
        capabilities = Capabilities(transfers=True, window=True)

    with pytest.raises(Unsupported, match="no transfers with windows"):
        SchedulerJudge(OfOneKind(), SchedulerConfig(transfers=True, window=2))
