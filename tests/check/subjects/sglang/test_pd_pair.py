"""Two of SGLang's engines with a transport between them: what arrives, what a side shows, and two faults."""

from typing import Any

import pytest

from kvproof.check.oracle.pair.judge import PairJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.pair import DECODE, PREFILL, SIDES, PairConfig
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
RELEASE = "0.5.23"
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8)
LONGER = (*PROMPT, 9, 10, 11, 12)


def opened(**fields: Any) -> PairJudge:
    """A judge of a new pair."""
    download.add(f"sglang=={RELEASE}")
    subject: Any = find(f"sglang-pd=={RELEASE}")()
    return PairJudge(subject, PairConfig(**{"block_size": 4, "num_gpu_blocks": 12} | fields))


def step(judge: PairJudge, side: int) -> None:
    """A whole step of a side."""
    for operation in ("schedule_side", "launch_side", "complete_side"):
        assert judge.apply((operation, side)), operation


def moving(judge: PairJudge, max_tokens: int = 2) -> None:
    """Request 2 of DECODE waits for request 1 of PREFILL, whose KV is being written."""
    assert judge.apply(("prompt", 1, PROMPT))
    assert judge.apply(("route", 1, 2, max_tokens))
    step(judge, DECODE)
    assert judge.apply(("deliver", 1))
    step(judge, PREFILL)
    assert judge.apply(("work", 0))
    assert list(judge.pair.moving) == [1]


def deliver(judge: PairJudge, *kinds: str) -> None:
    """All messages arrive, which are of these kinds."""
    found = dict(judge.pair.messages)
    assert {one.kind for one in found.values()} == {*kinds}
    for message in found:
        assert judge.apply(("deliver", message))


@pytest.mark.parametrize("caching", [False, True])
def test_prompts_arrive_whole_and_nothing_is_left(caching: bool) -> None:
    judge = opened(caching=caching)
    for number, prompt in ((1, PROMPT), (3, LONGER)):
        assert judge.apply(("prompt", number, prompt))
        assert judge.apply(("route", number, number + 1, 3))
        assert judge.apply(("rest",))
    assert judge.coverage["arrived"] == 2
    assert judge.coverage["claimed behind a hit"] == int(caching)
    assert [judge.subject.kept(side) for side in SIDES] == [{}, {}]
    assert [one.num_generated for one in judge.pair.requests.values()] == [1, 3, 1, 3]


def test_prefill_computes_when_decode_has_reserved_pages_for_it() -> None:
    judge = opened()
    assert judge.apply(("prompt", 1, PROMPT))
    step(judge, PREFILL)
    assert judge.pair.observed[PREFILL].tables == {}
    assert judge.apply(("route", 1, 2, 1))
    step(judge, DECODE)
    deliver(judge, "metadata")
    step(judge, PREFILL)
    assert judge.pair.offers.keys() == {1}


def test_the_first_token_comes_with_the_kv() -> None:
    judge = opened()
    moving(judge, max_tokens=1)
    assert judge.apply(("arrive", 1))
    assert judge.apply(("deliver", 2))
    step(judge, DECODE)
    request = judge.pair.requests[2]
    assert (request.num_generated, request.is_over) == (1, True)
    assert judge.pair.observed[DECODE].tables == {}


def test_decode_that_runs_out_of_pages_takes_them_from_a_request_and_gives_it_its_kv_back() -> None:
    judge = opened(num_gpu_blocks=20, decode_blocks=8)
    for number in (1, 3):
        assert judge.apply(("prompt", number, PROMPT))
        assert judge.apply(("route", number, number + 1, 8))
    assert judge.apply(("rest",))
    pair: Any = judge.subject
    engine = pair._sides[DECODE].scheduler
    assert engine.metrics_reporter.num_retracted_reqs == 1
    assert [one.num_generated for one in judge.pair.requests.values()] == [1, 8, 1, 8]


def test_a_transfer_that_fails_ends_the_request_on_both_sides() -> None:
    judge = opened(weather="lossy")
    moving(judge)
    assert judge.apply(("arrive", 1, 0))
    step(judge, PREFILL)
    assert judge.pair.observed[PREFILL].tables == {}
    assert judge.apply(("deliver", 2))
    step(judge, DECODE)
    assert judge.pair.requests[2].is_over
    assert judge.pair.observed[DECODE].tables.keys() == {2}, "they go when prefill has stopped, or after 30 s"
    assert judge.apply(("rest",))


def test_decode_holds_its_pages_until_prefill_says_that_nothing_moves() -> None:
    judge = opened()
    moving(judge)
    assert judge.apply(("quit", 2))
    step(judge, DECODE)
    assert judge.pair.observed[DECODE].tables.keys() == {2}
    assert judge.apply(("arrive", 1))
    deliver(judge, "status", "abort")
    deliver(judge, "ack")
    step(judge, DECODE)
    assert judge.pair.observed[DECODE].tables == {}


def test_prefill_gives_pages_back_that_a_transfer_reads() -> None:
    judge = opened()
    moving(judge)
    assert judge.apply(("quit", 2))
    deliver(judge, "abort")
    with pytest.raises(Finding) as caught:
        step(judge, PREFILL)
    assert caught.value.property == "source-held"


def test_a_side_that_hears_nothing_gives_up_after_five_minutes() -> None:
    judge = opened(weather="slow")
    assert judge.apply(("prompt", 1, PROMPT))
    step(judge, PREFILL)
    assert judge.apply(("pass", 299))
    step(judge, PREFILL)
    assert not judge.pair.requests[1].is_over
    assert judge.apply(("pass", 1))
    step(judge, PREFILL)
    assert judge.pair.requests[1].is_over


def test_blocks_of_two_sizes_are_not_supported() -> None:
    with pytest.raises(Unsupported):
        opened(decode_block_size=8)
