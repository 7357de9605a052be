"""The judge of caches of encoder outputs: which operations it does, what it says of one run, and what it draws."""

from typing import Any

import pytest
from tests.lawful import encoders
from tests.lawful.encoders import Oldest

from kvproof.check.oracle.encoder.judge import EncoderJudge, frame_of_encoder
from kvproof.check.oracle.encoder.rules import CACHE, WORKER
from kvproof.check.oracle.level import ENCODER, level_of
from kvproof.check.protocol.encoder import EncoderConfig, EncoderObservation
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import ENCODERS
from kvproof.spec.trace import Operation

ONE = EncoderConfig(num_gpu_blocks=1, longest_output=1)  # room for one output
CAT, DOG = 0, 1
AGAIN = [  # the cat is evicted by the dog and computed again, in one step
    *(("bring", 1, (CAT,)), ("encode", 1, 0, 1, 9), ("end_step",), ("leave", 1)),
    *(("bring", 2, (DOG,)), ("encode", 2, 0, 1, 9), ("put_back", 2)),
    *(("bring", 3, (CAT,)), ("encode", 3, 0, 1, 9)),
]


def after(operations: list[Operation], subject: Any = None, config: EncoderConfig = ONE) -> EncoderJudge:
    judge = EncoderJudge(subject or Oldest(), config)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


def test_a_subject_is_recognised_by_its_calls() -> None:
    assert level_of(Oldest()) is ENCODER


def test_what_is_computed_again_in_the_step_that_evicted_it_must_not_be_reported() -> None:
    judge = after([*AGAIN, ("end_step",)])
    assert judge.answer == "drops [1]"
    assert (judge.explained.contents(CACHE), judge.explained.contents(WORKER)) == ([CAT], [CAT])
    with pytest.raises(Finding) as raised:
        after([*AGAIN, ("end_step",)], encoders.ReportsWhatIsThere())
    assert (raised.value.property, raised.value.about) == ("events-agree", "cached")
    assert raised.value.text == "take_dropped(): the report names content 0, whose output is cached"
    lawful = after([*AGAIN, ("end_step",)], encoders.ReportsAll())
    assert lawful.explained.contents(WORKER) == [CAT]


def test_what_was_evicted_before_it_was_computed_is_never_at_the_worker() -> None:
    judge = after(AGAIN)
    assert (judge.taken, dict(judge.evicted)) == ({CAT, DOG}, {CAT: 1, DOG: 1})
    judge.apply(("end_step",))
    assert not judge.explained.has(DOG, WORKER)
    assert not judge.taken


def test_what_was_evicted_must_be_reported_before_the_worker_computes() -> None:
    class Silent(Oldest):
        def take_dropped(self) -> list[int]:
            return []

    evicted = [*AGAIN[:4], ("bring", 2, (DOG,)), ("encode", 2, 0, 1, 9)]
    with pytest.raises(Finding, match="content 0 was evicted, and the worker keeps it: no report names it"):
        after([*evicted, ("end_step",)], Silent())


def test_an_output_is_released_only_after_the_step_that_computes_it() -> None:
    judge = after(AGAIN[:2])
    assert not judge.apply(("read_inputs", 1, 1))
    assert judge.apply(("end_step",))
    assert judge.apply(("read_inputs", 1, 1))
    assert not judge.apply(("read_inputs", 1, 1))
    assert judge.explained.is_unreferenced(CAT)


def test_outputs_are_forgotten_only_between_two_steps() -> None:
    judge = after(AGAIN[:2])
    assert not judge.apply(("forget_outputs",))
    judge.apply(("end_step",))
    assert judge.apply(("forget_outputs",))
    assert judge.explained.contents(CACHE) == judge.explained.contents(WORKER) == []
    assert judge.explained.places() == {}
    assert judge.apply(("encode", 1, 0, 1, 9))
    assert judge.answer == "input 0 is computed"


@pytest.mark.parametrize(
    "operation", [("bring", 1, (DOG,)), ("encode", 2, 0, 1, 9), ("encode", 1, 1, 1, 9), ("leave", 2), ("put_back", 2)]
)
def test_what_is_about_nothing_that_is_there_is_not_done(operation: Operation) -> None:
    assert not after(AGAIN[:1]).apply(operation)


def test_an_image_twice_in_a_request_is_computed_once_and_referenced_until_both_are_read() -> None:
    judge = after([("bring", 1, (CAT, CAT)), ("encode", 1, 0, 2, 9), ("end_step",), ("read_inputs", 1, 1)])
    assert (judge.explained.refs(), judge.explained.places()) == ({CAT: [1]}, {1: [1]})
    with pytest.raises(Finding, match=r"referenced by requests \[1\]; the cache shows \[\]"):
        after(
            [("bring", 1, (CAT, CAT)), ("encode", 1, 0, 2, 9), ("end_step",), ("read_inputs", 1, 1)],
            encoders.OnePlaceForAll(),
        )


def test_a_request_that_gets_no_blocks_references_nothing_and_has_evicted() -> None:
    judge = after([*AGAIN[:4], ("bring", 2, (DOG,)), ("encode_in_vain", 2, 0, 1, 9)])
    assert judge.answer == "input 0 is computed"
    assert (judge.explained.contents(CACHE), judge.explained.contents(WORKER)) == ([], [CAT])
    judge.apply(("end_step",))
    assert judge.explained.contents(WORKER) == []


def test_the_answer_of_a_wrong_type_is_a_fault_of_the_adapter() -> None:
    class Shows(Oldest):
        def observe(self) -> EncoderObservation:
            return EncoderObservation({CAT: "1"}, self.free)  # type: ignore[dict-item]

    class Reports(Oldest):
        def take_dropped(self) -> list[int]:
            return [None]  # type: ignore[list-item]

    with pytest.raises(AdapterError, match="refs must be a dict of lists of ints"):
        after(AGAIN[:2], Shows())
    with pytest.raises(AdapterError, match="take_dropped must return a list of ints"):
        after(AGAIN[:3], Reports())


def test_a_frame_has_a_lane_for_each_output() -> None:
    frame = frame_of_encoder(after([*AGAIN[:4], *AGAIN[4:6]]), None)
    assert [(lane.name, lane.status) for lane in frame.lanes] == [
        ("content 0", "at the worker"),
        ("content 1", "cached, referenced by request 2"),
    ]
    assert frame.pools[0].num_free == 0


def test_the_length_of_an_output_depends_on_its_content() -> None:
    config = EncoderConfig(longest_output=3)
    assert [config.length_of(content) for content in range(4)] == [1, 2, 3, 1]
    assert EncoderConfig(num_gpu_blocks=5).as_dict() == {"num_gpu_blocks": 5}


def test_a_walk_finds_the_report_of_what_is_there_and_shrinks_it() -> None:
    done = walk(ENCODERS, encoders.ReportsWhatIsThere(), 1, max_operations=20_000, seconds=100)
    assert done.counterexample is not None
    small = shrink(encoders.ReportsWhatIsThere(), done.counterexample, seconds=100)
    assert small.finding.property == "events-agree"
    assert len(small.operations) <= 9
