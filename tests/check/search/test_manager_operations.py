"""The operations of a random run of a block manager."""

from random import Random

import pytest

from kvproof.check.protocol.manager import Config, Pair
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.subjects.builtin.manager import BuiltIn


def lengths_forked(seed: int) -> set[int]:
    """The lengths of the sequences that are forked in a run whose sequences have at most four tokens."""
    run = ManagerOperations(BuiltIn(), Random(seed), Config(block_size=2, num_gpu_blocks=16))
    run.judge.limits = run.judge.limits._replace(num_tokens=4, num_tokens_forked=4)
    lengths = set()
    for _ in range(150):
        operation = run.draw()
        assert operation is not None
        if operation[0] == "fork":
            lengths.add(len(run.judge.seqs[operation[1]].tokens))
        run.judge.apply(operation)
    return lengths


def test_a_sequence_that_cannot_grow_is_not_forked() -> None:
    assert set[int]().union(*map(lengths_forked, range(30))) == {1, 2, 3}


@pytest.mark.parametrize(
    ("pairs", "is_kept"), [([(5, 7), (6, 7)], False), ([(5, 6), (6, 7)], False), ([(5, 7)] * 2, True)]
)
def test_a_step_whose_copies_need_an_order_is_not_moved_by_the_judge_of_bytes(
    pairs: list[Pair], is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ManagerOperations(BuiltIn(), Random(1), Config(block_size=2, num_gpu_blocks=16))
    monkeypatch.setattr(run, "_drawn", lambda: ("run",))
    run.judge.worker.copies = pairs
    run.draw()
    assert run.moved == ([[[], [], [5, 7]]] if is_kept else [])
