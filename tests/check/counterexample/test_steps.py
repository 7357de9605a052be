"""The steps of a run as text: what the engine asked for, and what the manager answered."""

import pytest

from kvproof.check.counterexample.steps import describe_steps, narrated
from kvproof.check.protocol.finding import Finding
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


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("p", "admit(7, 1) raised KeyError: 7"), "admit(group 7) raised KeyError: 7"),
        (Finding("p", "wrong", call="hits(7)"), "hits(group 7): wrong"),
        (Finding("p", "wrong", call="reserve(8, 2)"), "reserve(sequence 8, 2): wrong"),
        (Finding("p", "wrong", call="schedule()"), "schedule(): wrong"),
        (
            Finding("p", "the table went $expected -> $observed", expected=[1], observed=[2]),
            "the table went [1] -> [2]\nexpected: [1]   observed: [2]",
        ),
        (
            Finding("p", "tables $expected and $observed", expected=[10**9] * 6, observed=[2]),
            f"tables {[10**9] * 6} and [2]\nexpected: {[10**9] * 6}\nobserved: [2]",
        ),
        (Finding("p", "block $observed of $expected", expected=3, observed=7), "block 7 of 3"),
        (Finding("p", "overtaken", expected=0, observed=1), "overtaken"),
        (Finding("p", "it is $observed", expected=0, observed=1), "it is 1\nexpected: 0   observed: 1"),
    ],
)
def test_a_finding_is_in_the_words_of_the_steps(finding: Finding, text: str) -> None:
    assert narrated(finding, Config(), [("new", 7, (8,), (0,), (None, 0, None)), ("admit", 7, 1)]) == text


def test_an_operation_with_tuples_of_tuples_is_replaced_whole() -> None:
    new = ("new", 7, (8,), (0,), (None, 0, None), ((("image"), 0, 1),))
    finding = Finding("p", "new(7, (8,), (0,), (None, 0, None), (('image', 0, 1),)) raised ValueError")
    assert narrated(finding, Config(), [new]) == (
        "new(group 7, sequence 8, 1 token: 0, image image in 1 position from 0) raised ValueError"
    )
