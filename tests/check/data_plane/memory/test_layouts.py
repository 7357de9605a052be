"""Every layout is rows of one memory, guards around, and typed tensors that see the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvproof.check.data_plane.memory.layouts import DTYPES, Geometry, Layout, UnknownSetting, dtype_named, layout_named
from kvproof.check.data_plane.memory.pattern import Kind, unpack
from kvproof.check.data_plane.memory.world import Arena, World
from kvproof.check.data_plane.steps.moves import PoolId

CPU = torch.device("cpu")


def geometry(layout: Layout, dtype: str = "float16", heads: int = 2, head_size: int = 16) -> Geometry:
    return Geometry(layout, dtype, 4, 1 if layout is Layout.LATENT else heads, head_size, 3, 6, 5)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("pool", PoolId)
def test_no_two_blocks_share_a_row_and_guards_lie_at_both_ends(layout: Layout, pool: PoolId) -> None:
    shape = geometry(layout)
    taken: list[int] = []
    for strip in shape.strips(pool):
        for block in range(shape.num_blocks(pool)):
            first = strip.first_row + block * strip.block_stride
            taken += range(first, first + shape.rows_per_part)
    assert len(taken) == len(set(taken)) == 3 * len(shape.parts) * shape.num_blocks(pool) * shape.rows_per_part
    stride = next(shape.strips(pool)).block_stride
    assert min(taken) >= 2 * stride
    assert max(taken) < shape.num_rows(pool) - stride  # a block written past the end lands inside the memory


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_new_world_is_right_in_every_row(layout: Layout, dtype: str) -> None:
    world = World(geometry(layout, dtype), CPU)
    assert world.wrong() == {}
    kinds = {unpack(int(packed)).kind for packed in world.arenas[PoolId.GPU].labels}
    assert kinds == {Kind.DATA, Kind.GUARD}


def wrong_places(world: World) -> set[tuple[int, int, int, int]]:
    """Pool, layer, block and row in the block of each row that is wrong; keys, or what there is of them."""
    found = set()
    for pool, rows in world.wrong().items():
        for row in rows.tolist():
            origin = unpack(int(world.arenas[pool].labels[row]))
            assert origin.kind == Kind.DATA
            found.add((int(pool), origin.layer, *divmod(origin.row, world.geometry.rows_per_part)))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
def test_typed_tensors_name_the_slots_as_the_layout_says(dtype: str) -> None:
    """Slot 2 of block 3 in layer 1; in HND of head 1."""
    index = {
        Layout.TWO_PLANES: (0, 3, 2),
        Layout.NHD: (3, 0, 2),
        Layout.PACKED: (3, 0, 2),
        Layout.LATENT: (3, 2),
        Layout.HND: (3, 0, 1, 2),
    }
    for layout, place in index.items():
        world = World(geometry(layout, dtype), CPU)
        world.caches().gpu[1][place].view(torch.uint8).bitwise_xor_(1)
        row = 1 * 4 + 2 if layout is Layout.HND else 2
        assert wrong_places(world) == {(0, 1, 3, row)}, layout


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_key_split_by_x_is_cut_into_stripes(dtype: str) -> None:
    world = World(geometry(Layout.KEY_SPLIT, dtype), CPU)
    keys = world.caches().cpu[2][0]
    assert keys.shape == (5, 4 * 2 * 16)
    keys[4, -1:].view(torch.uint8).bitwise_xor_(1)
    assert wrong_places(world) == {(1, 2, 4, 3)}


@pytest.mark.parametrize("layout", Layout)
def test_planes_are_the_same_memory_as_typed_tensors(layout: Layout) -> None:
    """Clearing all planes clears all elements, and no guard."""
    world = World(geometry(layout), CPU)
    caches = world.caches()
    for plane in caches.gpu_planes:
        plane.zero_()
    assert all(not tensor.view(torch.int16).any() for tensor in caches.gpu)
    arena = world.arenas[PoolId.GPU]
    is_guard = np.array([unpack(int(packed)).kind == Kind.GUARD for packed in arena.labels])
    assert set(arena.bad_rows().tolist()) == set(np.flatnonzero(~is_guard).tolist())
    num_planes = {Layout.TWO_PLANES: 6, Layout.KEY_SPLIT: 6}.get(layout, 3)
    assert len(caches.gpu_planes) == num_planes


@pytest.mark.parametrize(
    ("layout", "heads", "head_size", "dtype", "rows"),
    [
        (Layout.NHD, 2, 16, "float16", 4),
        (Layout.HND, 2, 16, "float16", 8),
        (Layout.LATENT, 1, 576, "bfloat16", 4),
        (Layout.NHD, 1, 4, "int8", 2),  # 4 bytes a slot: two share a word
        (Layout.HND, 2, 4, "int8", 4),
        (Layout.NHD, 3, 2, "int8", 1),  # 24 bytes a block, 6 a slot
    ],
)
def test_a_row_is_a_slot_where_slots_are_whole_words(
    layout: Layout, heads: int, head_size: int, dtype: str, rows: int
) -> None:
    shape = geometry(layout, dtype, heads, head_size)
    assert shape.rows_per_part == rows
    assert shape.rows_per_part * shape.row_bytes == shape.part_bytes


def test_rows_of_slots_are_those_that_hold_them() -> None:
    assert geometry(Layout.NHD).rows_of_slots(1, 2) == [1, 2]
    assert geometry(Layout.HND).rows_of_slots(1, 2) == [1, 2, 5, 6]
    assert geometry(Layout.NHD, "int8", 1, 4).rows_of_slots(1, 2) == [0, 1]
    assert geometry(Layout.HND, "int8", 2, 4).rows_of_slots(1, 1) == [0, 1, 2, 3]


def test_what_there_is_not_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnknownSetting, match=r"no layout is named 'nhb'; choose one of two-planes, nhd, hnd"):
        layout_named("nhb")
    with pytest.raises(UnknownSetting, match=r"no element type is named 'fp4'; choose one of float32, float16"):
        dtype_named("fp4")
    with pytest.raises(UnknownSetting, match="no element type"):
        geometry(Layout.NHD, "fp4")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 0}, "block_size is 0; it must be at least 1"),
        ({"num_gpu_blocks": -1}, "fewer than 0 blocks"),
        ({"num_layers": 2000}, "2000 layers are too many; a label can encode 1024"),
        ({"layout": Layout.LATENT}, "a latent cache has one head, not 2"),
        ({"head_size": 1, "block_size": 1}, "a block of 4 bytes is not a whole number of words"),
        ({"num_gpu_blocks": 2**27}, "a pool has more than"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, object], message: str) -> None:
    sizes: dict[str, object] = {
        "layout": Layout.NHD,
        "dtype": "float16",
        "block_size": 4,
        "num_heads": 2,
        "head_size": 16,
        "num_layers": 1,
        "num_gpu_blocks": 4,
        "num_cpu_blocks": 4,
    }
    with pytest.raises(UnknownSetting, match=message):
        Geometry(**{**sizes, **changes})  # type: ignore[arg-type]


def test_an_empty_pool_is_all_guard() -> None:
    shape = Geometry(Layout.NHD, "float16", 4, 2, 16, 2, 3, 0)
    arena = Arena(shape, PoolId.CPU, CPU)
    arena.fill()
    assert {unpack(int(packed)).kind for packed in arena.labels} == {Kind.GUARD}
    assert not len(arena.bad_rows())
