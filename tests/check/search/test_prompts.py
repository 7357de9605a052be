"""What prompts are made of: images side by side and apart, and the next turns of chats."""

from itertools import pairwise
from random import Random

from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.search.prompts import PICTURES, Prompts
from kvproof.check.search.scheduler_operations import SchedulerOperations
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.spec.trace import Operation


def drawn(seed: int) -> tuple[tuple[str, int, int], ...]:
    prompts = Prompts(Random(seed), Config(images=True), 6)
    prompts.pictures = PICTURES
    return prompts.images(6)


DRAWN = [drawn(seed) for seed in range(2000)]


def test_images_come_in_order_and_do_not_overlap_and_their_names_fix_their_rows() -> None:
    assert {(name, length) for images in DRAWN for name, _, length in images} == set(PICTURES)
    for images in DRAWN:
        assert all(start + length <= other for (_, start, length), (_, other, _) in pairwise(images))
        assert all(start + length <= 6 for _, start, length in images)


def test_images_lie_side_by_side_and_the_same_image_lies_at_several_positions() -> None:
    pairs = [pair for images in DRAWN for pair in pairwise(images)]
    assert {start + length == other for (_, start, length), (_, other, _) in pairs} == {True, False}
    assert {images[0][1] for images in DRAWN if images and images[0][0] == "P"} == set(range(6))


def test_a_prompt_of_a_manager_continues_what_was_sampled() -> None:
    run = ManagerOperations(BuiltIn(), Random(6), Config(block_size=2, num_gpu_blocks=16))
    run.chats.share = 1.0
    run.samples = [(7000, 7001, 7002, 7003)] * 4  # values that no prompt is drawn from
    operations: list[Operation] = []
    run.run(operations, 200)
    assert any(7000 in operation[3] for operation in operations if operation[0] == "new")


def test_a_prompt_of_a_scheduler_continues_what_was_sampled() -> None:
    config = SchedulerConfig(block_size=2, num_gpu_blocks=16)
    run = SchedulerOperations(BuiltInScheduler(), Random(5), config)
    run.chats.share, run.samples = 1.0, [(7000,)] * 4
    operations: list[Operation] = []
    run.run(operations, 200)
    assert any(7000 in operation[3] for operation in operations if operation[0] == "add")
