"""The operations of a random run of a block manager."""

from random import Random

from kvproof.check.protocol.manager import Config
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
