"""What the worker has of the outputs of images, and what the tokens of a step read."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.check.oracle.scheduler.encoder_outputs import EncoderOutputs, are_possible
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep
from kvproof.spec.text.identity import Image

CAT, DOG = Image("cat", 2, 2), Image("dog", 4, 3)  # of a prompt of eight tokens


def worker(room: int = 0) -> EncoderOutputs:
    seq = SimpleNamespace(images=(CAT, DOG), name="sequence 1")
    state: Any = SimpleNamespace(seqs={1: seq}, coverage=Counter[str](), config=SimpleNamespace(encoder_room=room))
    return EncoderOutputs(state)


def step(start: int, stop: int, *encoded: int, dropped: tuple[str, ...] = ()) -> ScheduledStep:
    return ScheduledStep([Chunk(1, start, stop)], encoded=[(1, encoded)] if encoded else [], dropped=dropped)


def test_tokens_read_the_outputs_of_the_images_that_they_lie_in() -> None:
    judge = worker()
    judge.judge(step(0, 2))
    judge.judge(step(2, 3, 0))
    judge.judge(step(3, 4))
    with pytest.raises(Finding, match="image dog of sequence 1, and the worker has no output") as raised:
        judge.judge(step(4, 5))
    assert raised.value.property == "hit-written"


def test_the_worker_drops_before_it_computes() -> None:
    judge = worker()
    judge.judge(step(2, 4, 0))
    judge.judge(step(2, 4, 0, dropped=("cat",)))
    with pytest.raises(Finding, match="image cat"):
        judge.judge(step(2, 4, dropped=("cat",)))


def test_the_worker_keeps_no_more_than_there_is_room_for() -> None:
    judge = worker(room=4)
    judge.judge(step(2, 4, 0))
    judge.judge(step(4, 7, 1, dropped=("cat",)))
    with pytest.raises(Finding, match="keeps 5 embeddings of images, and has room for 4"):
        judge.judge(step(2, 4, 0))


def test_an_image_that_the_sequence_does_not_have_is_a_fault_of_the_adapter() -> None:
    with pytest.raises(AdapterError, match="names image 2 of sequence 1"):
        worker().judge(step(2, 4, 2))


@pytest.mark.parametrize(
    ("images", "num_tokens", "room", "expected"),
    [
        ((CAT, DOG), 7, 0, True),
        ((CAT, DOG), 6, 0, False),
        ((DOG, CAT), 8, 0, False),
        ((CAT, Image("cat", 4, 3)), 8, 0, False),
        ((CAT, DOG), 8, 2, False),
        ((Image("bird", 0, 2),), 8, 0, False),
    ],
)
def test_a_prompt_has_images_in_order_with_one_length_for_each_name(
    images: tuple[Image, ...], num_tokens: int, room: int, expected: bool
) -> None:
    assert are_possible(images, num_tokens, room, {"bird": 1}) is expected
