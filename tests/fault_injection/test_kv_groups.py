"""A small right manager of several KV groups is not refuted, whatever its groups, and its runs tell all its tables."""

import pytest
from tests.fault_injection.hybrid_manager import Adapter

from kvproof.check import Config
from kvproof.check.counterexample.steps import describe_steps
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import common_block_size
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.spec.trace import Operation

NUM_OPERATIONS, NUM_OPERATIONS_LONG = 2_000, 6_000
HYBRID = {"kv_groups": ("full", "window"), "window": 3, "block_size": 2, "num_gpu_blocks": 12}
LOCAL = {"kv_groups": ("full", "local"), "window": None, "local_chunk": 3}  # a chunk that ends within a block
LENGTHS = [NUM_OPERATIONS, pytest.param(NUM_OPERATIONS_LONG, marks=pytest.mark.long)]


@pytest.mark.parametrize("num_operations", LENGTHS)
@pytest.mark.parametrize("chunk", [3, 4])
def test_the_right_manager_with_local_attention_is_not_refuted(chunk: int, num_operations: int) -> None:
    fixed = HYBRID | LOCAL | {"caching": True, "local_chunk": chunk}
    done = walk(MANAGERS, Adapter(), 2, max_operations=num_operations, seconds=float("inf"), fixed=fixed)
    assert (done.finding, done.num_operations) == (None, num_operations)
    assert {"local attention left an entry", "pool full", "hit", "hit past a window", "evict"} <= done.coverage.keys()


@pytest.mark.parametrize("num_operations", LENGTHS)
@pytest.mark.parametrize(
    "groups",
    [
        ("full", "window"),
        ("window", "full"),
        ("full", "window", "window"),
        ("full",),
        ("full:2", "window:1"),
        ("full", "window", "state"),
    ],
)
@pytest.mark.parametrize("caching", [False, True], ids=["no-cache", "cache"])
def test_the_right_manager_is_not_refuted(groups: tuple[str, ...], caching: bool, num_operations: int) -> None:
    size = common_block_size(groups, 2)
    fixed = HYBRID | {"kv_groups": groups, "caching": caching, "num_gpu_blocks": 6 * len(groups), "block_size": size}
    fixed["chunked"] = "state" not in ",".join(groups)  # this manager may pass over states from boundaries only
    done = walk(MANAGERS, Adapter(), 2, max_operations=num_operations, seconds=float("inf"), fixed=fixed)
    assert (done.finding, done.num_operations) == (None, num_operations)
    wanted = {"slide", "pool full", "admitted", *({"hit", "hit past a window", "evict"} if caching else ())}
    assert wanted <= done.coverage.keys()


def test_a_run_tells_the_tables_of_every_group() -> None:
    config = Config(block_size=1, num_gpu_blocks=6, caching=True, window=2, kv_groups=("full", "window"))
    operations: list[Operation] = [("new", 1, (1,), (0, 0, 0)), ("admit", 1, 3), ("run", 0), ("free", 1)]
    again: list[Operation] = [("new", 2, (2,), (0, 0, 0)), ("admit", 2, 3)]
    assert describe_steps(Adapter, config, [*operations, *again]) == [
        "new(group 1, sequence 1, 3 tokens, all 0)",
        "admit(group 1)   admitted; sequence 1: blocks 0, 1, 2, KV group 1: blocks 3, 4, 5",
        "run()            computes 3 tokens of sequence 1",
        "free(sequence 1)",
        "new(group 2, sequence 2, 3 tokens, all 0)",
        "admit(group 2)   hit 2; sequence 2: blocks 0, 1, 2, KV group 1: blocks null, 4, 3",
    ]


def test_an_adapter_that_shows_too_few_tables_is_no_finding_about_its_manager() -> None:
    class OneTable(Adapter):
        def tables(self) -> dict[int, list[list[int]]]:
            return {seq: tables[:1] for seq, tables in self.manager.tables.items()}

    judge = ManagerJudge(OneTable(), Config(kv_groups=("full", "full")))
    judge.apply(("new", 1, (1,), (0,)))
    with pytest.raises(AdapterError, match="lists of 2 tables"):
        judge.apply(("admit", 1, 1))


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ([[0], [7]], r"sequence 1 in KV group 1, which it is not about, went \[1\] -> \[7\]"),
        ([], r"sequence 1, which it is not about, went \[0\] -> gone"),
    ],
)
def test_a_table_of_another_group_may_not_change_by_a_call_that_is_not_about_it(
    shown: list[list[int]], words: str
) -> None:
    config = Config(block_size=1, kv_groups=("full", "full"))
    judge = ManagerJudge(Adapter(), config)
    for number in (1, 2):
        judge.apply(("new", number, (number,), (0,)))
        judge.apply(("admit", number, 1))
    judge.apply(("run", 0))
    subject = judge.subject
    assert isinstance(subject, Adapter)
    subject.manager.tables[1] = shown
    with pytest.raises(Finding, match=words) as caught:
        judge.apply(("free", 2))
    assert caught.value.property == "frame-kept"
