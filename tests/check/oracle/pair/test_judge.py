"""The judge of pairs: what it says of one run, how a run is made shorter and calmer, and what it draws."""

from typing import Any

import pytest
from tests.lawful import pairs
from tests.lawful.ranked_pairs import Ranked
from tests.lawful.test_lawful_managers import walked

from kvproof.check.oracle.level import PAIR, level_of, require_possible
from kvproof.check.oracle.pair.judge import PairJudge, frame_of_pair
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.capabilities import whole
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.pair import DECODE, PREFILL, PairConfig, PairStep
from kvproof.check.protocol.scheduler import Chunk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import PAIRS
from kvproof.check.subjects.builtin.pair import OwnPair
from kvproof.spec.trace import Operation

SMALL = PairConfig(num_gpu_blocks=9)
SLOW = PairConfig(num_gpu_blocks=9, weather="slow")
PROMPT = (1, 2, 3, 4, 5)


def step(side: int) -> list[Operation]:
    return [("schedule_side", side), ("launch_side", side), ("complete_side", side)]


CLAIMED = [("prompt", 1, PROMPT), *step(PREFILL), ("route", 1, 2, 2), *step(DECODE), ("work", 0)]
READING = [*CLAIMED, *step(DECODE)]


def after(operations: list[Operation], subject: Any = None, config: PairConfig = SMALL) -> PairJudge:
    judge = PairJudge(OwnPair() if subject is None else subject, config)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


def finding_of(operations: list[Operation], subject: Any, config: PairConfig = SMALL) -> Finding:
    with pytest.raises(Finding) as raised:
        after(operations, subject, config)
    return raised.value


def test_a_subject_is_recognised_by_its_calls() -> None:
    assert level_of(OwnPair()) is PAIR


def test_what_is_offered_is_read_over_the_wire_and_then_given_back() -> None:
    judge = after([*READING, ("arrive", 1), *step(DECODE), ("deliver", 1), *step(PREFILL), *step(DECODE)])
    assert not judge.pair.offers
    assert not judge.pair.claims
    assert judge.coverage["arrived"] == judge.coverage["offer ended"] == 1
    assert not judge.coverage["offer expired"]
    assert judge.apply(("rest",))


def test_a_transfer_that_lands_when_the_lease_is_over_is_void() -> None:
    late = [*READING, ("pass", 31), *step(PREFILL), ("local", 3, (9, 9, 9, 9, 9), 1, PREFILL), *step(PREFILL)]
    late += [("arrive", 1), *step(DECODE)]
    judge = after(late, config=SLOW)
    assert judge.coverage["lost its source"]
    assert judge.coverage["lost"] == 1
    found = finding_of(late, pairs.TrustsWhatIsLate(), SLOW)
    assert found.property == "void-told"
    assert found.call == "complete(decode), which takes what request 2 claimed for arrived"


def test_a_lease_behind_a_live_one_ends_in_the_next_step_of_its_side() -> None:
    two = [("prompt", 9, (7,)), *CLAIMED]
    two = [("prompt", 1, PROMPT), ("prompt", 9, (7,)), *CLAIMED[1:], *step(DECODE)]
    beaten = [*two, ("pass", 16), *step(DECODE), ("deliver", 1), *step(PREFILL), ("pass", 16), *step(PREFILL)]
    assert list(after(beaten, config=SLOW).pair.offers) == [1]
    found = finding_of(beaten, pairs.WaitsBehindALiveOne(), SLOW)
    assert found.property == "lease-ends"
    assert found.sentence == "the lease of what request 9 offered ended before this step, and it is held"


def test_time_does_not_reach_the_end_of_an_offer_that_is_wanted_on_a_calm_day() -> None:
    judge = after(READING)
    assert not judge.apply(("pass", 27))
    assert judge.apply(("pass", 26))
    assert after(READING, config=SLOW).apply(("pass", 27))


def test_a_side_that_has_died_is_another_one_at_the_same_address() -> None:
    deadly = PairConfig(num_gpu_blocks=9, weather="deadly")
    died = [*READING, ("arrive", 1), *step(DECODE), ("prompt", 3, PROMPT), *step(PREFILL), ("die", PREFILL)]
    died += [("route", 3, 4, 1), *step(DECODE)]
    judge = after(died, config=deadly)
    assert judge.coverage["lost"] == judge.coverage["died"] == 1
    assert not judge.pair.offers
    assert judge.apply(("rest",))
    trusting = [*died[:-1], ("arrive", 2), ("complete_side", DECODE)]
    found = finding_of(trusting, pairs.TrustsAnAddress(), deadly)
    assert (found.property, found.sentence) == ("void-told", "the transfer began when the offer was over")


def test_what_a_dead_side_claimed_is_reserved_no_more() -> None:
    judge = after([*READING, ("die", DECODE)], config=PairConfig(num_gpu_blocks=9, weather="deadly"))
    assert not judge.pair.claims
    assert not judge.pair.moving
    assert list(judge.pair.offers) == [1]
    assert judge.apply(("rest",))
    assert judge.coverage["offer expired"] == 1


def test_a_block_that_a_transfer_may_write_is_given_to_nobody() -> None:
    assert after([*READING, ("quit", 2)]).pair.claims[2].is_withdrawn
    found = finding_of([*READING, ("quit", 2)], pairs.FreesTheTarget())
    assert found.property == "in-flight-held"


def test_blocks_of_two_sizes_are_joined_position_by_position() -> None:
    config = PairConfig(num_gpu_blocks=9, decode_block_size=8, decode_blocks=5, caching=True)
    first = tuple(range(1, 10))
    twice = [("prompt", 1, first), *step(PREFILL), ("route", 1, 2, 1), *step(DECODE), ("work", 0), *step(DECODE)]
    twice += [("arrive", 1), *step(DECODE), *step(DECODE)]
    again = [("prompt", 3, (*first, 1, 2)), *step(PREFILL), ("route", 3, 4, 1), *step(DECODE), ("arrive", 2)]
    judge = after([*twice, *again, *step(DECODE)], config=config)
    assert judge.coverage["claimed behind a hit"] == 1
    assert judge.coverage["arrived"] == 2
    found = finding_of([*twice, *again], pairs.JoinsTheWrongEnds(), config)
    assert found.property == "arrived-whole"


def test_a_run_is_made_shorter_and_calmer() -> None:
    stormy = PairConfig(num_gpu_blocks=9, weather="lossy")
    operations = [*READING, ("pass", 31), ("prompt", 3, (9,)), ("quit", 2)]
    finding = finding_of(operations, pairs.FreesTheTarget(), stormy)
    shorter = shrink(pairs.FreesTheTarget(), Counterexample(stormy, operations, finding), seconds=60)
    assert shorter.config.as_dict().get("weather", "calm") == "calm"
    names = [one[0] for one in shorter.operations]
    assert names.count("schedule_side") == 3
    assert not {"pass", "deliver", "arrive", "local"}.intersection(names)
    assert (names[0], names[-1]) == ("prompt", "quit")


def test_a_step_that_names_nobody_is_a_fault_of_the_adapter() -> None:
    class NamesNobody(OwnPair):
        def schedule(self, side: int) -> PairStep:
            return PairStep([Chunk(7, 0, 1)])

    with pytest.raises(AdapterError, match=r"schedule names Chunk\(seq=7, start=0, stop=1, hit=0\)"):
        after(step(PREFILL), NamesNobody())


def test_a_page_shows_two_pools_the_wire_and_the_leases() -> None:
    judge = after([*READING, ("pass", 10), *step(DECODE)])
    frame = frame_of_pair(judge, None)
    assert [(lane.name, lane.status) for lane in frame.lanes] == [
        ("prefill, request 1", "is offered"),
        ("decode, request 2", "waits for KV"),
        ("lease of request 1", "held for 20 s more"),
        ("message 1 to prefill", "beat, of request 1"),
    ]
    assert [(pool.name, pool.num_free) for pool in frame.pools] == [("prefill", 7), ("decode", 7)]
    assert [(move.kind, move.source, move.target, move.status) for move in frame.moves] == [
        ("transfer", 0, 9, "transfer 1"),
        ("transfer", 1, 10, "transfer 1"),
    ]
    assert {(block.id, block.list, block.num_pins) for block in frame.blocks} == {
        *((0, "used", 1), (1, "used", 1), (9, "reserved", 1), (10, "reserved", 1))
    }


def test_a_walk_draws_every_weather() -> None:
    configs = []

    class Records(OwnPair):
        def open(self, config: PairConfig) -> None:
            configs.append(config)
            super().open(config)

    walked(Records(), 2_000)
    assert {config.weather for config in configs} == {"calm", "slow", "lossy", "deadly"}
    assert {config.decode_block_size > 0 for config in configs} == {False, True}
    assert PAIRS.level is PAIR


def test_a_calm_day_is_not_asked_for_what_needs_a_storm() -> None:
    calm = PAIR.expected_witnesses(whole(OwnPair.capabilities), {"weather": "calm"})
    slow = PAIR.expected_witnesses(whole(OwnPair.capabilities), {"weather": "slow"})
    assert {name for name, is_expected in slow.items() if is_expected and not calm[name]} == {"lost its source"}
    assert not any(slow[name] for name in ("transfer failed", "lost message", "died"))
    assert PAIR.excluded_witnesses({"weather": "lossy"}) == {"died": "needs weather of at least deadly"}
    with pytest.raises(ValueError, match="weather is one of calm, slow, lossy, deadly; 'sunny' was given"):
        require_possible(PairConfig(weather="sunny"))


def test_ranks_share_heads_or_are_refused() -> None:
    with pytest.raises(ValueError, match="num_heads is a multiple of the ranks of a side"):
        require_possible(PairConfig(prefill_ranks=2, num_heads=3))
    with pytest.raises(Unsupported, match="several ranks or heads"):
        PairJudge(OwnPair(), PairConfig(decode_ranks=2, num_heads=2))
    with pytest.raises(Unsupported, match="ranks that cannot share the heads"):
        PairJudge(Ranked(), PairConfig(decode_ranks=2, num_heads=3))


def test_a_rank_whose_lease_is_over_gives_its_part_up_and_the_others_wait_for_their_readers() -> None:
    config = PairConfig(num_gpu_blocks=9, weather="slow", prefill_ranks=2, decode_ranks=2, num_heads=2)
    judge = after([("prompt", 1, PROMPT), *step(PREFILL)], Ranked(), config)
    (offer,) = judge.pair.offers.values()
    assert offer.deadlines == [30, 30]
    assert judge.apply(("pass", 10))
    offer.deadlines[1] = 50  # rank 1 says that it keeps the offer for longer
    judge.pair.explained.renew(offer, 1, "test")
    assert judge.apply(("pass", 25))
    assert [judge.pair.explained.is_in_force(offer, rank) for rank in (0, 1)] == [False, True]
    assert judge.pair.explained.notice(offer, "test", 1, (1,))
    judge.pair.explained.end_offer(offer, "test")


def test_a_rank_that_was_not_heard_of_keeps_the_offer() -> None:
    config = PairConfig(num_gpu_blocks=9, prefill_ranks=1, decode_ranks=2, num_heads=2)
    judge = after([("prompt", 1, PROMPT), *step(PREFILL)], Ranked(), config)
    (offer,) = judge.pair.offers.values()
    assert judge.pair.explained.notice(offer, "test", 0, (0,))
    assert not judge.pair.explained.notice(offer, "test", 0, (0,)), "it is counted once"
    with pytest.raises(Finding, match="every part") as caught:
        judge.pair.explained.end_offer(offer, "test")
    assert caught.value.property == "pin-own"
