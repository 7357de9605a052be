"""Two of vLLM's engines with its NIXL connector: what arrives, what a side shows, and two faults of 0.33.0."""

from typing import Any

import pytest

from kvproof.check.oracle.pair.judge import PairJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.pair import DECODE, PREFILL, SIDES, PairConfig
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
RELEASE = "0.33.0"
PULL, PUSH = "vllm-pd", "vllm-pd-push"
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8)
LONGER = (*PROMPT, 9, 10, 11, 12)


def opened(name: str, **fields: Any) -> PairJudge:
    """A judge of a new pair."""
    download.add(f"vllm=={RELEASE}")
    subject: Any = find(f"{name}=={RELEASE}")()
    return PairJudge(subject, PairConfig(**{"num_gpu_blocks": 12} | fields))


def step(judge: PairJudge, side: int) -> None:
    """A whole step of a side."""
    for operation in ("schedule_side", "launch_side", "complete_side"):
        assert judge.apply((operation, side)), operation


def offered(judge: PairJudge, number: int, prompt: tuple[int, ...]) -> None:
    """A request of PREFILL comes, and offers its KV."""
    assert judge.apply(("prompt", number, prompt))
    step(judge, PREFILL)
    assert number in judge.pair.offers


@pytest.mark.parametrize("name", [PULL, PUSH])
@pytest.mark.parametrize("caching", [False, True])
def test_prompts_arrive_whole_and_nothing_is_left(name: str, caching: bool) -> None:
    judge = opened(name, caching=caching)
    for number, prompt in ((1, PROMPT), (3, LONGER)):
        offered(judge, number, prompt)
        assert judge.apply(("route", number, number + 1, 2))
        assert judge.apply(("rest",))
    assert judge.coverage["arrived"] == 2
    assert judge.coverage["claimed behind a hit"] == int(caching)
    assert judge.coverage["offer expired"] == 0, "the reader says that it is done, or prefill sees it"
    assert [judge.subject.kept(side) for side in SIDES] == [{}, {}]


def test_an_offer_that_nobody_claims_is_given_back_when_its_lease_is_over() -> None:
    judge = opened(PULL, weather="slow")
    offered(judge, 1, PROMPT)
    step(judge, PREFILL)
    assert judge.subject.deadlines() == {1: 30}
    assert judge.apply(("pass", 29))
    step(judge, PREFILL)
    assert judge.pair.observed[PREFILL].tables.keys() == {1}
    assert judge.apply(("pass", 1))
    step(judge, PREFILL)
    assert judge.pair.observed[PREFILL].tables == {}


def test_a_heartbeat_keeps_the_offer_of_a_request_that_waits() -> None:
    judge = opened(PULL, weather="slow")
    offered(judge, 1, PROMPT)
    assert judge.apply(("route", 1, 2, 1))
    step(judge, DECODE)  # begins a handshake, without which no heartbeat is sent
    assert judge.apply(("work", 0))
    assert judge.apply(("pass", 15))
    step(judge, DECODE)
    (message,) = (number for number, one in judge.pair.messages.items() if one.kind == "beat")
    assert judge.apply(("deliver", message))
    step(judge, PREFILL)
    assert judge.subject.deadlines() == {1: 15 + 20}


def test_a_handshake_that_fails_ends_the_request_or_has_it_computed() -> None:
    for policy in ("fail", "recompute"):
        judge = opened(PULL, weather="lossy", load_failures=policy)
        offered(judge, 1, PROMPT)
        assert judge.apply(("route", 1, 2, 1))
        step(judge, DECODE)
        assert judge.pair.jobs == ["handshake of decode"]
        assert judge.apply(("work_in_vain", 0))
        step(judge, DECODE)
        assert judge.pair.requests[2].is_over is (policy == "fail")
        assert judge.apply(("rest",))


@pytest.mark.parametrize("name", [PULL, PUSH])
def test_a_prefill_side_that_died_has_another_agent_in_its_place(name: str) -> None:
    judge = opened(name, weather="deadly")
    offered(judge, 1, PROMPT)
    assert judge.apply(("die", PREFILL))
    assert judge.pair.observed[PREFILL].tables == {}
    offered(judge, 3, LONGER)
    assert judge.apply(("route", 3, 4, 1))
    assert judge.apply(("rest",))
    assert judge.coverage["arrived"] == 1


def test_with_blocks_of_two_sizes_and_a_local_hit_kv_arrives_a_block_too_late() -> None:
    judge = opened(PULL, caching=True, decode_block_size=8)
    offered(judge, 1, PROMPT)
    assert judge.apply(("route", 1, 2, 1))
    assert judge.apply(("rest",))
    offered(judge, 3, LONGER)
    assert judge.apply(("route", 3, 4, 1))
    with pytest.raises(Finding) as caught:
        judge.apply(("rest",))
    assert caught.value.property == "arrived-whole"


def test_in_push_mode_a_request_that_left_before_its_claim_is_kept_for_ever() -> None:
    judge = opened(PUSH)
    offered(judge, 1, PROMPT)
    assert judge.apply(("route", 1, 2, 1))
    assert judge.apply(("quit", 2))
    with pytest.raises(Finding, match="_recving_metadata") as caught:
        judge.apply(("rest",))
    assert caught.value.property == "no-leak-at-rest"


@pytest.mark.parametrize(("name", "size"), [(PULL, 2), (PULL, 6), (PUSH, 8)])
def test_sizes_that_the_connector_cannot_join_are_unsupported(name: str, size: int) -> None:
    with pytest.raises(Unsupported):
        opened(name, decode_block_size=size)


@pytest.mark.parametrize("name", [PULL, PUSH])
@pytest.mark.parametrize(("prefill", "decode", "heads"), [(2, 1, 4), (4, 2, 4), (2, 2, 1), (2, 1, 0)])
def test_several_ranks_get_the_heads_that_are_theirs(name: str, prefill: int, decode: int, heads: int) -> None:
    judge = opened(name, caching=True, prefill_ranks=prefill, decode_ranks=decode, num_heads=heads)
    for number, prompt in ((1, PROMPT), (3, LONGER)):
        offered(judge, number, prompt)
        assert judge.apply(("route", number, number + 1, 2))
        assert judge.apply(("rest",))
    assert judge.coverage["arrived"] == 2
    assert judge.coverage["offer expired"] == 0


@pytest.mark.parametrize(("decode", "heads"), [(1, 2), (2, 4), (4, 2), (4, 0)])
def test_larger_blocks_and_more_ranks_of_decode_are_put_in_order(decode: int, heads: int) -> None:
    judge = opened(PULL, block_size=2, decode_block_size=4, decode_ranks=decode, num_heads=heads)
    offered(judge, 1, PROMPT)
    assert judge.apply(("route", 1, 2, 2))
    assert judge.apply(("rest",))
    assert judge.coverage["arrived"] == 1


def test_what_one_of_two_ranks_could_not_read_is_lost_when_both_have_reported() -> None:
    judge = opened(PULL, weather="lossy", load_failures="recompute", prefill_ranks=2, decode_ranks=2, num_heads=2)
    offered(judge, 1, PROMPT)
    assert judge.apply(("route", 1, 2, 1))
    step(judge, DECODE)
    assert judge.pair.jobs == ["handshake of rank 0 of decode", "handshake of rank 1 of decode"]
    assert judge.apply(("work_in_vain", 1))
    assert judge.apply(("work", 0))
    step(judge, DECODE)
    assert judge.coverage["lost"] == 0, "rank 0 reads"
    assert judge.apply(("arrive", 1))
    step(judge, DECODE)
    assert (judge.coverage["lost"], judge.coverage["arrived"]) == (1, 0)
    assert judge.apply(("rest",))


def test_ranks_that_a_handshake_refuses_are_unsupported_in_the_words_of_the_release() -> None:
    with pytest.raises(Unsupported, match="Different local/remote block sizes are not supported"):
        opened(PULL, decode_block_size=8, prefill_ranks=2, num_heads=2)
