"""The diagnosis of a wrong row gives the right class and the true origin of its bytes.

Classify a single row: newly written words and altered words are not confused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from kvproof.check.data_plane.compare.diagnosis import classify, diagnose, finding_of
from kvproof.check.data_plane.memory.layouts import Geometry, Layout
from kvproof.check.data_plane.memory.pattern import Kind, Words, label, row_keys, word_keys
from kvproof.check.data_plane.memory.world import World
from kvproof.check.data_plane.run.results import WrongClass, WrongRow
from kvproof.check.data_plane.steps.moves import Moves, PoolId, Step, Write

CPU = torch.device("cpu")
MOVES = Moves(swap_in=((4, 5),))

EXPECTED, PREVIOUS = label(Kind.DATA, 0, 5, 1), label(Kind.DATA, 1, 9, 1)


def started() -> tuple[World, torch.Tensor, torch.Tensor]:
    """A world in which host block 4 is to come to GPU block 5, and it has; the keys of layer 1 of both pools."""
    geometry = Geometry(Layout.TWO_PLANES, "float16", 4, 2, 64, 2, 8, 6)
    world = World(geometry, CPU)
    step = Step(freed_gpu=(7,), writes=(Write(6, 0, 4),))
    world.release(step)
    world.compute(step)
    world.expect(MOVES)
    caches = world.caches()
    for gpu, cpu in zip(caches.gpu_planes, caches.cpu_planes, strict=True):
        gpu[5] = cpu[4]
    assert not world.wrong()
    return world, caches.gpu_planes[2], caches.cpu_planes[2]  # planes: layer 0 key, value, layer 1 key, value


def only(world: World) -> WrongRow:
    (row,) = diagnose(world, world.wrong())
    return row


HOLDS = "block 5 of the GPU pool, layer 1, key, slot 2 "
DUE = "; it must hold the key of block 4 of the CPU pool, layer 1, slot 2"
SLOT = slice(64, 96)  # the words of slot 2


def moved(gpu: torch.Tensor, cpu: torch.Tensor) -> None:
    gpu[5, SLOT] = cpu[1, :32]


def other_generation(gpu: torch.Tensor, cpu: torch.Tensor) -> None:
    gpu[5, SLOT] = gpu[6, :32]


def poison(gpu: torch.Tensor, cpu: torch.Tensor) -> None:
    gpu[5, SLOT] = gpu[7, SLOT]


def shifted(gpu: torch.Tensor, cpu: torch.Tensor) -> None:
    gpu[5, SLOT] = cpu[4, 62:94]


def zero(gpu: torch.Tensor, cpu: torch.Tensor) -> None:
    gpu[5, SLOT] = 0


def altered(gpu: torch.Tensor, cpu: torch.Tensor) -> None:
    gpu[5, 70] ^= 1 << 20


def unknown(gpu: torch.Tensor, cpu: torch.Tensor) -> None:
    gpu[5, SLOT] = torch.randint(2**62, (32,), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("change", "wrong_class", "text"),
    [
        (moved, WrongClass.MOVED, f"{HOLDS}holds the key of block 1 of the CPU pool, layer 1, slot 0{DUE}"),
        (other_generation, WrongClass.MOVED, f"{HOLDS}holds the key of block 6 of the GPU pool, layer 1, slot 0{DUE}"),
        (
            poison,
            WrongClass.POISON,
            f"{HOLDS}holds the poison of block 7 of the GPU pool, layer 1, slot 2, key, which was free{DUE}",
        ),
        (
            shifted,
            WrongClass.SHIFTED,
            f"{HOLDS}holds the key of block 4 of the CPU pool, layer 1, slot 2, shifted by +16 bytes{DUE}",
        ),
        (zero, WrongClass.ZERO, f"{HOLDS}holds zeros in 32 words{DUE}"),
        (
            altered,
            WrongClass.ALTERED,
            f"{HOLDS}holds in one word some right bits, and other bits that were never written{DUE}",
        ),
        (unknown, WrongClass.UNKNOWN, f"{HOLDS}holds in 32 words values that were never written to either pool{DUE}"),
    ],
)
def test_each_kind_of_wrong_row_is_distinguished(
    change: Callable[[torch.Tensor, torch.Tensor], None], wrong_class: WrongClass, text: str
) -> None:
    world, gpu, cpu = started()
    change(gpu, cpu)
    row = only(world)
    assert (row.wrong_class, row.text) == (wrong_class, text)
    assert (row.pool, row.layer, row.part, row.block, row.row_in_block) == (0, 1, 0, 5, 2)


def before_the_step(world: World) -> torch.Tensor:
    """What GPU block 5, layer 1, key, slot 2 held before: itself."""
    other = World(world.geometry, CPU)
    return other.caches().gpu_planes[2][5, SLOT].clone()


def test_a_row_that_was_not_moved_and_one_that_was_half_moved_are_distinguished() -> None:
    world, gpu, _ = started()
    old = before_the_step(world)
    gpu[5, SLOT] = old
    assert only(world).wrong_class is WrongClass.UNMOVED
    assert "still holds what it held before the step, the key of block 5 of the GPU pool" in only(world).text
    world, gpu, _ = started()
    gpu[5, 64:72] = old[:8]
    row = only(world)
    assert (row.wrong_class, row.num_words) == (WrongClass.TORN, 8)
    assert row.text.endswith("the other words are right")


def test_lanes_of_new_and_old_words_are_seen_as_mixed() -> None:
    world, gpu, _ = started()
    old = before_the_step(world)
    gpu[5, SLOT].view(torch.int16)[1::2] = old.view(torch.int16)[1::2]
    assert only(world).wrong_class is WrongClass.MIXED


def test_an_older_generation_of_the_right_place_is_stale_and_its_age_is_reported() -> None:
    world, gpu, _ = started()
    old = gpu[6].clone()
    world.compute(Step(writes=(Write(6, 0, 4), Write(6, 0, 4))))
    world.expect(Moves())
    gpu[6] = old
    row = diagnose(world, world.wrong())[1]
    assert row.wrong_class is WrongClass.STALE
    assert row.text == (
        "block 6 of the GPU pool, layer 1, key, slot 1 holds the key of block 6 of the GPU pool, layer 1, slot 1, "
        "written two generations ago; it must hold the key of block 6 of the GPU pool, layer 1, slot 1"
    )


def test_a_write_beyond_the_pool_is_found_in_the_guard() -> None:
    world, gpu, cpu = started()
    memory = world.arenas[PoolId.GPU].memory
    end = gpu.storage_offset() // 32 + 2 * 8 * 4  # keys and values of the last layer, 8 blocks of 4 rows each
    memory[end, :2] = cpu[3, :2]
    row = only(world)
    assert (row.block, row.wrong_class, row.num_words) == (-1, WrongClass.MOVED, 2)
    assert row.text.startswith(
        "the guard one row after block 7 of the GPU pool, layer 1 holds in two words the key of block 3 of the CPU pool"
    )
    memory[0] = 0
    assert diagnose(world, world.wrong())[0].text.startswith("the guard in front of the first block of the GPU pool")


def test_a_finding_says_first_what_was_moved_and_counts_all() -> None:
    world, gpu, cpu = started()
    old = before_the_step(world)
    gpu[5, SLOT] = old
    gpu[3] = cpu[0]
    finding = finding_of(world, world.wrong(), step=9)
    assert finding.text.startswith(
        "after step 9, block 3 of the GPU pool, layer 1, key, slot 0 holds the key of block 0"
    )
    assert finding.text.endswith("(five rows in all)")
    assert (finding.num_wrong_rows, finding.num_wrong_words) == (5, 5 * 32)
    assert finding.histogram == {"moved": 4, "unmoved": 1}


def test_of_very_many_rows_a_spread_sample_is_looked_at() -> None:
    world, _, _ = started()
    for arena in world.arenas.values():
        arena.memory.zero_()
    wrong = world.wrong()
    rows = diagnose(world, wrong, rows_max=10)
    assert 10 <= len(rows) <= 20
    assert {row.pool for row in rows} == {0, 1}
    assert finding_of(world, wrong, 1).num_wrong_rows == sum(len(arena.labels) for arena in world.arenas.values())


def right_words(num_words: int) -> Words:
    return row_keys(np.array([EXPECTED], np.uint64)) ^ word_keys(num_words)


def class_of(words: Words) -> WrongClass:
    """With no word that decodes to a place."""
    nothing = np.zeros(len(words), np.bool_)
    return classify(words, EXPECTED, PREVIOUS, np.array([EXPECTED], np.uint64), 0, nothing, words).wrong_class


@pytest.mark.parametrize(("num_words", "num_rows"), [(1, 100), (256, 20)])
def test_random_words_are_unknown_though_some_bytes_are_right_by_chance(num_words: int, num_rows: int) -> None:
    """Of 100 single words three have a right byte; of 256 words eight bytes are right."""
    random = np.random.default_rng(4)
    rows = random.integers(0, 2**64, (num_rows, num_words), dtype=np.uint64)
    right = right_words(num_words)
    num_right = (rows.view(np.uint8) == right.view(np.uint8)).sum()
    assert num_right >= 2
    assert {class_of(row) for row in rows} == {WrongClass.UNKNOWN}


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_one_wrong_bit_of_one_word_is_an_altered_word(bit: int) -> None:
    words = right_words(16)
    words[3] ^= np.uint64(1 << bit)
    assert class_of(words) is WrongClass.ALTERED
