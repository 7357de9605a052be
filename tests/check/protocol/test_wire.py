"""The memory of the wire: what a cell of several heads holds, where it lies, and what each rank gets."""

from kvproof.check.protocol.wire import Copy, Message, Wire


def test_the_heads_of_a_block_lie_one_after_another() -> None:
    memory = Wire().memory(0, 2, 2, heads=(0, 1))
    assert [list(memory.places(cell)) for cell in range(4)] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert memory.address_of(1, 1) == memory.address + 5 * memory.cell_bytes


def test_a_number_is_another_one_in_each_head_and_layer_and_none_can_be_taken_for_another() -> None:
    wire = Wire()
    first, second = (wire.memory(0, 1, 1, heads=(0, 1)) for _ in range(2))
    assert (first.layer, second.layer) == (0, 1)
    for memory in (first, second):
        memory.write(0, 7)
    assert len({*first.numbers, *second.numbers}) == 4
    assert first.read(0) == second.read(0) == 7
    first.numbers[0], first.numbers[1] = first.numbers[1], first.numbers[0]
    assert first.read(0) is None


def test_memory_that_nobody_has_written_holds_nothing() -> None:
    wire = Wire()
    assert [wire.memory(0, 1, 1, heads=(0, 1)).read(0) for _ in range(2)] == [0, 0]


def test_ranks_that_keep_the_same_head_hold_the_same() -> None:
    wire = Wire()
    ranks = [wire.memory(0, 1, 1, rank=rank, layer=0, heads=(0,)) for rank in range(2)]
    ranks[0].write(0, 3)
    wire.land(wire.begin(0, [Copy(ranks[0].address, ranks[1].address, ranks[0].cell_bytes)]))
    assert ranks[1].read(0) == 3


def test_each_rank_takes_its_own_messages() -> None:
    wire = Wire()
    for rank in range(2):
        wire.send(Message(1, "done", (), f"for rank {rank}", rank))
        wire.deliver(rank + 1)
    assert wire.take(1, 1) == ["for rank 1"]
    assert wire.take(1, 1) == []
    assert wire.take(1) == ["for rank 0"]
