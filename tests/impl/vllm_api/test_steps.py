"""The block objects within one step of a worker, which swaps in, then copies, then computes.

The pairs that a call returns must still be right when the step is executed: no block of a pair is released before, and
no two swaps land on one block.
"""

from __future__ import annotations

from kvproof.impl import BlockTable, CpuGpuBlockAllocator, Device

GPU, CPU = Device.GPU, Device.CPU


def table_of(allocator: CpuGpuBlockAllocator, tokens: list[int], window: int | None = None) -> BlockTable:
    table = BlockTable(allocator.block_size, allocator, max_block_sliding_window=window)
    table.allocate(tokens)
    return table


def swap(allocator: CpuGpuBlockAllocator, table: BlockTable, source: Device, target: Device) -> set[int]:
    """Move a table to the other device; returns its new ids."""
    moved = allocator.swap(table.blocks, source, target)
    table.update(table.blocks)
    return set(moved.values())


def computed(allocator: CpuGpuBlockAllocator, tokens: list[int]) -> BlockTable:
    """Return a table whose full blocks are computed."""
    table = table_of(allocator, tokens)
    allocator.mark_blocks_as_computed([])
    return table


def test_a_shared_block_that_is_filled_is_exchanged_and_not_copied_first() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 6, 0, 4)
    twin, table = computed(allocator, [1, 2, 3, 4]), table_of(allocator, [1, 2, 3])
    table.fork()
    table.append_token_ids([4])
    assert table.physical_block_ids == twin.physical_block_ids
    assert allocator.clear_copy_on_writes() == []
    assert allocator.get_num_free_blocks(GPU) == 4


def test_no_block_of_a_copy_is_given_up_for_a_cached_one_in_the_same_step() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 6, 0, 4)
    twin, first = computed(allocator, [1, 2, 3, 4]), table_of(allocator, [1, 2, 3])
    second, third = first.fork(), first.fork()
    (source,) = first.physical_block_ids
    for table, token in ((first, 5), (second, 4), (third, 4)):
        table.append_token_ids([token])
    (target,) = first.physical_block_ids
    assert allocator.clear_copy_on_writes() == [(source, target)]
    assert second.physical_block_ids == twin.physical_block_ids
    assert third.physical_block_ids == [source]  # its last holder keeps it
    assert [allocator.get_refcount(block_id) for block_id in (source, target)] == [1, 1]


def test_an_append_that_fills_a_new_block_evicts_nothing_for_content_that_is_cached() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 3, 0, 1)
    cached = computed(allocator, [1, 2, 3])
    hashes = [block.content_hash for block in cached.blocks]
    cached.free()
    table = table_of(allocator, [1])
    table.append_token_ids([2])
    assert table.physical_block_ids == [0, 1]
    assert allocator.find_cached_blocks_prefix(hashes) == hashes


def test_a_block_whose_append_failed_has_no_content() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 1, 0, 2)
    table = table_of(allocator, [1])
    (block,) = table.blocks
    table.fork()
    for _ in range(2):
        try:
            block.append_token_ids([2])
        except allocator.NoFreeBlocksError:
            assert (block.token_ids, block.content_hash) == ([1], None)
        else:
            raise AssertionError("there is no block for a copy")


def test_a_block_that_is_computed_after_its_return_to_the_gpu_is_a_hit() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 4, 4, 2)
    table = table_of(allocator, [1, 2, 3, 4])
    hashes = [block.content_hash for block in table.blocks]
    swap(allocator, table, GPU, CPU)
    swap(allocator, table, CPU, GPU)
    assert allocator.find_cached_blocks_prefix(hashes) == []
    allocator.mark_blocks_as_computed(table.physical_block_ids)
    assert allocator.find_cached_blocks_prefix(hashes) == hashes


def test_a_computed_block_is_found_when_the_equal_one_found_before_is_not_computed() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 4, 0, 2)
    filled, other = table_of(allocator, [1]), table_of(allocator, [1, 2])
    filled.append_token_ids([2])
    allocator.mark_blocks_as_computed(filled.physical_block_ids)
    other.free()
    (block,) = filled.blocks
    assert allocator.find_cached_blocks_prefix([block.content_hash]) == [block.content_hash]


def test_a_block_keeps_its_last_access_when_it_is_swapped() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 2, 2, 1)
    old, new = computed(allocator, [1]), computed(allocator, [2])
    for table, time in ((old, 1.0), (new, 2.0)):
        allocator.mark_blocks_as_accessed(table.physical_block_ids, time)
    hashes = [table.blocks[0].content_hash for table in (old, new)]
    swap(allocator, new, GPU, CPU)
    swap(allocator, new, CPU, GPU)
    for table in (new, old):
        table.free()
    table_of(allocator, [3])
    assert [allocator.find_cached_blocks_prefix([each]) for each in hashes] == [[], [hashes[1]]]


def test_a_block_taken_after_a_swap_is_not_computed_for_the_one_that_left() -> None:
    allocator = CpuGpuBlockAllocator.create("prefix_caching", 1, 1, 2)
    table = table_of(allocator, [1, 2])
    swap(allocator, table, GPU, CPU)
    other = table_of(allocator, [5])
    allocator.mark_blocks_as_computed(other.physical_block_ids)
    assert not allocator.find_cached_blocks_prefix([table.blocks[0].content_hash])


def test_two_swaps_of_a_step_land_on_different_blocks() -> None:
    allocator = CpuGpuBlockAllocator.create("naive", 8, 8, 1)
    keep, first, second = table_of(allocator, [1]), table_of(allocator, [1] * 4, 1), table_of(allocator, [1, 1])
    for table in (first, second):
        swap(allocator, table, GPU, CPU)
    allocator.get_and_reset_swaps()

    landed = swap(allocator, first, CPU, GPU)
    first.append_token_ids([1], num_computed_slots=4)  # the window gives up three blocks, one of them free again
    assert allocator.num_held_back_blocks(GPU) > 0
    assert not landed & swap(allocator, second, CPU, GPU)
    allocator.get_and_reset_swaps()
    assert allocator.num_held_back_blocks(GPU) == 0
    assert keep.physical_block_ids == [0]
