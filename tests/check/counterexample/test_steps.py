"""The steps of a run as text: what the engine asked for, and what the manager answered."""

from kvproof.check.counterexample.steps import describe_steps
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation


def test_hits_copies_swaps_and_tables_are_described() -> None:
    config = Config(block_size=2, num_gpu_blocks=4, num_host_blocks=3, caching=True)
    operations: list[Operation] = [
        ("new", 1, (1,), (0, 0, 0)),
        ("admit", 1, 3),
        ("append", 7),
        ("run", 0),
        ("fork", 1, 2),
        ("sample", 1, (0, 1)),
        ("append", 1),
        ("run", 0),
        ("new", 2, (3,), (0, 0)),
        ("admit", 2, 2),
        ("run", 0),
        ("free", 3),
        ("swap_out", 1),
        ("run", 0),
        ("reset",),
    ]

    assert describe_steps(find("kvproof"), config, operations) == [
        "new(group 1, sequence 1, 3 tokens, all 0)",
        "admit(group 1)             admitted; sequence 1: blocks 0, 1",
        "append(group 7)            (not possible here, passed over)",
        "run()                      computes 3 tokens of sequence 1",
        "fork(sequence 1, into 2)   sequence 2: blocks 0, 1",
        "sample(group 1, 2 tokens: 0 1)",
        "append(group 1)            copy 1 -> 2; sequence 1: blocks 0, 2",
        "run()                      computes 1 token of sequence 1, 1 token of sequence 2",
        "new(group 2, sequence 3, 2 tokens: 0 0)",
        "admit(group 2)             hit 2; sequence 3: block 0",
        "run()                      computes 1 token of sequence 3",
        "free(sequence 3)",
        "swap_out(group 1)          0 -> 0, 2 -> 1, 1 -> 2; "
        "sequence 1: blocks host 0, host 1; sequence 2: blocks host 0, host 2",
        "run()                      moves blocks only",
        "reset()                    refused",
    ]
