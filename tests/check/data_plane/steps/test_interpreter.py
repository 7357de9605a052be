"""The specification side: tags move as a worker executes a step."""

from __future__ import annotations

from kvproof.check.data_plane.memory.pattern import Kind, Origin, unpack
from kvproof.check.data_plane.steps.interpreter import Interpreter
from kvproof.check.data_plane.steps.moves import Moves, PoolId, Step

GPU, CPU = PoolId.GPU, PoolId.CPU


def origins(interpreter: Interpreter, pool: PoolId, block: int) -> list[tuple[int, int, int]]:
    """Pool, block and row that each row of a block comes from."""
    found = [unpack(int(tag)) for tag in interpreter.tags[pool][block]]
    return [(origin.pool, *divmod(origin.row, interpreter.rows_per_block)) for origin in found]


def test_lists_are_executed_in_the_order_of_a_worker() -> None:
    interpreter = Interpreter(4, 4, 2)
    interpreter.move(Moves(swap_in=((3, 1),), swap_out=((1, 3),), copy=((1, 2),)))
    for pool, block in ((GPU, 1), (CPU, 3), (GPU, 2)):
        assert origins(interpreter, pool, block) == [(CPU, 3, 0), (CPU, 3, 1)]
    assert origins(interpreter, GPU, 0) == [(GPU, 0, 0), (GPU, 0, 1)]


def test_a_list_is_read_before_it_is_written() -> None:
    interpreter = Interpreter(3, 0, 1)
    interpreter.move(Moves(copy=((0, 1), (1, 2))))
    assert [origins(interpreter, GPU, block) for block in range(3)] == [[(0, 0, 0)], [(0, 0, 0)], [(0, 1, 0)]]


def test_a_write_is_a_new_generation_of_these_rows_only() -> None:
    interpreter = Interpreter(2, 0, 3)
    interpreter.move(Moves(copy=((0, 1),)))
    interpreter.write(1, [2])
    interpreter.write(1, [2])
    tags = [unpack(int(tag)) for tag in interpreter.tags[GPU][1]]
    assert tags == [
        Origin(Kind.DATA, 1, GPU, 0, 0, 0),
        Origin(Kind.DATA, 1, GPU, 0, 0, 1),
        Origin(Kind.DATA, 3, GPU, 0, 0, 5),
    ]


def test_poison_names_the_block_and_the_generation_that_were_freed() -> None:
    interpreter = Interpreter(2, 2, 1)
    interpreter.write(1, [0])
    for pool, block in interpreter.freed(Step(freed_gpu=(1,), freed_cpu=(0,))):
        interpreter.poison(pool, block)
    assert unpack(int(interpreter.tags[GPU][1, 0])) == Origin(Kind.POISON, 2, GPU, 0, 0, 1)
    assert unpack(int(interpreter.tags[CPU][0, 0])) == Origin(Kind.POISON, 1, CPU, 0, 0, 0)
    assert unpack(int(interpreter.tags[GPU][0, 0])).kind == Kind.DATA
