"""A mover works on any planes; if their rows lie apart, the bytes between the rows do not change."""

from __future__ import annotations

import pytest
import torch

from kvproof.impl import BlockMover, InvalidValueError, Moved

PAIRS = [(3, 0), (1, 5), (2, 6), (4, 2)]  # 1-2 -> 5-6 is a run


def numbered(num_blocks: int, first: int, stride: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return memory with a different number in each word, and the plane of the first words of every row."""
    memory = torch.arange(first, first + num_blocks * stride).view(num_blocks, stride)
    return memory, memory[:, :words]


@pytest.mark.parametrize("strides", [(5, 5), (5, 3), (3, 5), (3, 3)])
def test_rows_that_lie_apart_are_moved_without_what_lies_between(strides: tuple[int, int]) -> None:
    gpu_memory, gpu = numbered(8, 0, strides[0], 3)
    cpu_memory, cpu = numbered(7, 1000, strides[1], 3)
    expected = gpu_memory.clone()
    for source, target in PAIRS:
        expected[target, :3] = cpu_memory[source, :3]
    before = cpu_memory.clone()
    assert BlockMover([gpu], [cpu]).swap_in(PAIRS) == Moved(4, 3, 4 * 3 * 8)
    assert torch.equal(gpu_memory, expected)
    assert torch.equal(cpu_memory, before)


def test_a_copy_within_rows_that_lie_apart_moves_every_plane() -> None:
    memory = torch.arange(9 * 10).view(9, 10)
    planes = [memory[:, :4], memory[:, 4:8]]  # the last two words of a row are padding
    expected = memory.clone()
    for source, target in [(0, 7), (1, 8), (3, 6)]:
        expected[target, :8] = memory[source, :8]
    BlockMover(planes, [plane.clone() for plane in planes]).copy([(0, 7), (1, 8), (3, 6)])
    assert torch.equal(memory, expected)


@pytest.mark.parametrize(
    ("gpu", "cpu"),
    [
        ([], []),
        ([torch.zeros(2, 3)], []),
        ([torch.zeros(2, 3)], [torch.zeros(2, 4)]),
        ([torch.zeros(2, 3)], [torch.zeros(2, 3, dtype=torch.int32)]),
        ([torch.zeros(3, 2).t()], [torch.zeros(2, 3)]),
        ([torch.zeros(2, 3), torch.zeros(3, 3)], [torch.zeros(2, 3), torch.zeros(2, 3)]),
    ],
)
def test_planes_that_do_not_fit_each_other_are_refused(gpu: list[torch.Tensor], cpu: list[torch.Tensor]) -> None:
    with pytest.raises(InvalidValueError):
        BlockMover(gpu, cpu)


def test_planes_with_and_without_something_between_their_rows_move_in_one_call() -> None:
    memories = [torch.arange(8 * words).view(8, words) + 100 * words for words in (4, 6, 70_000)]
    planes = [memories[0], memories[1][:, 1:5], memories[2]]  # rows of 560 KB are moved by tensor operations
    expected = [memory.clone() for memory in memories]
    for memory, plane in zip(expected, (slice(None), slice(1, 5), slice(None)), strict=True):
        memory[5:7, plane] = memory[1:3, plane]
        memory[0, plane] = memory[4, plane]
    mover = BlockMover(planes, [plane.clone() for plane in planes])
    assert mover.copy(torch.tensor([(2, 6), (4, 0), (1, 5)])).num_runs == 2
    assert all(map(torch.equal, memories, expected))


def test_memory_that_was_put_elsewhere_after_the_mover_was_made_is_found() -> None:
    gpu, cpu = torch.arange(12).view(4, 3), torch.zeros((4, 3), dtype=torch.int64)
    mover = BlockMover([gpu], [cpu])
    gpu.share_memory_()  # type: ignore[no-untyped-call]  # new memory for the same tensor
    gpu[1] = 7
    mover.swap_out([(1, 2)])
    assert cpu[2].tolist() == [7, 7, 7]
    assert int(cpu.count_nonzero()) == 3
