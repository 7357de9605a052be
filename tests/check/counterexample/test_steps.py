"""How operations read, with every kind of argument."""

import pytest

from kvproof.check.counterexample.steps import call_of, describe_steps
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

PLAIN, CHUNKED = Config(), Config(chunked=True)


@pytest.mark.parametrize(
    ("operation", "config", "text"),
    [
        (("new", 1, (1,), (0, 1, 1)), PLAIN, "new(group 1, sequence 1, 3 tokens: 0 1 1)"),
        (("new", 1, (1, 2), (5, 5, 5)), PLAIN, "new(group 1, sequences 1 and 2, 3 tokens, all 5)"),
        (
            ("new", 1, (1,), (0,), ("X", 2, "Y"), (("P", 0, 1),), (9, (1, 0))),
            PLAIN,
            "new(group 1, sequence 1, 1 token: 0, adapter X with id 2, salt Y, image P in 1 position from 0, "
            "encoder sequence 9 of 2 tokens: 1 0)",
        ),
        (("admit", 1, 3), PLAIN, "admit(group 1)"),
        (("admit", 1, 3), CHUNKED, "admit(group 1, at most 3 tokens)"),
        (("extend", 4, 1), CHUNKED, "extend(sequence 4, 1 token)"),
        (("sample", 1, (0,)), PLAIN, "sample(group 1, 1 token: 0)"),
        (("fork", 1, 2), PLAIN, "fork(sequence 1, into 2)"),
        (("free", 2), PLAIN, "free(sequence 2)"),
        (("run", 0), PLAIN, "run()"),
        (("run", 1), PLAIN, "run(after 1 s)"),
        (("swap_out", 3), PLAIN, "swap_out(group 3)"),
        (("reset",), PLAIN, "reset()"),
    ],
)
def test_an_operation_reads_as_a_call(operation: Operation, config: Config, text: str) -> None:
    assert call_of(operation, config) == text


def test_hits_copies_swaps_and_tables_are_told() -> None:
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
