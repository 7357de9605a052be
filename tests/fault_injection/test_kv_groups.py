"""A small right manager of several KV groups is not refuted; with one line of it wrong it is, by the right property."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kvproof.check import Capabilities, Config, ManagerAdapter
from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.counterexample.steps import describe_steps
from kvproof.check.counterexample.store import make_trace, save
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.oracle.replay import finding_of as run_on
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import NULL_BLOCK, Scheduled
from kvproof.check.runs.replay import replay
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import MANAGERS
from kvproof.spec.trace import Operation

NUM_OPERATIONS = 6_000
SHORTEN_SECONDS_MAX = 60.0


class NoRoom(Exception):
    """There are too few free blocks."""


class HybridManager:
    """Tables of each sequence, one for each KV group, over one pool. windows: as in `Config.windows`."""

    def __init__(self, num_blocks: int, block_size: int, windows: tuple[int, ...], caching: bool) -> None:
        self.block_size, self.windows, self.caching = block_size, windows, caching
        self.refs = [0] * num_blocks
        self.free_ids = list(range(num_blocks))  # the next to be taken first, cached or not
        self.tables: dict[int, list[list[int]]] = {}
        self.num_done: dict[int, int] = {}
        self.cached: dict[Any, int] = {}
        self.key_of: dict[int, Any] = {}

    def key(self, group: int, tokens: list[int], index: int) -> Any:
        return group, tuple(tokens[: (index + 1) * self.block_size])

    def first_read(self, window: int, num_done: int) -> int:
        if window < 0:
            return num_done // -window * -window // self.block_size
        return max(0, num_done - window + 1) // self.block_size if window else 0

    def num_found(self, tokens: list[int]) -> int:
        """Blocks of the longest prefix that every group has, as far back as it reads; a token is left to compute."""
        for num in range((len(tokens) - 1) // self.block_size, 0, -1):
            if all(
                self.key(group, tokens, index) in self.cached
                for group, window in enumerate(self.windows)
                for index in range(self.first_read(window, num * self.block_size), num)
            ):
                return num
        return 0

    def allocate(self, seq: int, tokens: list[int]) -> int:
        num_found = self.num_found(tokens) if self.caching else 0
        tables = []
        for group, window in enumerate(self.windows):
            first = self.first_read(window, num_found * self.block_size)
            found = [self.cached.get(self.key(group, tokens, index)) for index in range(first, num_found)]
            tables.append([NULL_BLOCK] * first + [block for block in found if block is not None])
        self.num_entries = -(-len(tokens) // self.block_size)
        num_new = sum(self.num_entries - len(table) for table in tables)
        if num_new + sum(block in self.free_ids for table in tables for block in table) > len(self.free_ids):
            raise NoRoom
        for do, table in product((self.touch, self.fill), tables):
            do(table)
        self.tables[seq], self.num_done[seq] = tables, num_found * self.block_size
        return self.num_done[seq]

    def touch(self, table: list[int]) -> None:
        for block in table:
            if block != NULL_BLOCK:
                self.refs[block] += 1
                if block in self.free_ids:
                    self.free_ids.remove(block)

    def fill(self, table: list[int]) -> None:
        while len(table) < self.num_entries:
            block = self.free_ids.pop(0)
            self.cached.pop(self.key_of.pop(block, None), None)
            self.refs[block] = 1
            table.append(block)

    def append(self, seq: int, num_tokens: int) -> None:
        tables, num_done = self.tables[seq], self.num_done[seq]
        for table, window in zip(tables, self.windows, strict=True):
            for index in range(self.first_read(window, num_done)):
                self.drop(table[index])
                table[index] = NULL_BLOCK
        self.num_entries = max(len(tables[0]), -(-(num_done + num_tokens) // self.block_size))
        if (self.num_entries - len(tables[0])) * len(tables) > len(self.free_ids):
            raise NoRoom
        for table in tables:
            self.fill(table)

    def computed(self, seq: int, tokens: list[int], stop: int) -> None:
        self.num_done[seq] = stop
        for group, table in enumerate(self.tables[seq]):
            for index, block in enumerate(table[: stop // self.block_size]):
                key = self.key(group, tokens, index)
                if block != NULL_BLOCK and self.caching and key not in self.cached and block not in self.key_of:
                    self.cached[key], self.key_of[block] = block, key

    def free(self, seq: int) -> None:
        for table in self.tables.pop(seq):
            for block in table:
                self.drop(block)

    def drop(self, block: int) -> None:
        if block != NULL_BLOCK:
            self.refs[block] -= 1
            if not self.refs[block]:
                self.free_ids.append(block)


class Adapter(ManagerAdapter):
    """The manager, as kvproof asks for it."""

    name = "hybrid"
    capabilities = Capabilities(
        has_admission_query=False,
        window=True,
        caching=True,
        window_with_caching=True,
        local_attention=True,
        chunked=True,
        kv_groups=True,
        window_drop_when_refused=True,
    )
    refusals = (NoRoom,)
    manager: HybridManager

    def make(self, config: Config) -> HybridManager:
        return HybridManager(config.num_gpu_blocks, config.block_size, config.windows, config.caching)

    def hits(self, group: int) -> int:
        tokens = self.tokens[self.groups[group][0]]
        return self.manager.num_found(tokens) * self.config.block_size

    def allocate(self, seq: int, tokens: list[int]) -> int:
        return self.manager.allocate(seq, tokens)

    def append(self, seq: int, num_tokens: int) -> None:
        self.manager.append(seq, num_tokens)

    def release(self, seq: int) -> None:
        self.manager.free(seq)

    def step_done(self, step: list[Scheduled]) -> None:
        for one in step:
            self.manager.computed(one.seq, self.tokens[one.seq], one.stop)

    def tables(self) -> dict[int, list[list[int]]]:
        return self.manager.tables

    def num_free(self) -> int:
        return len(self.manager.free_ids)

    def refcounts(self) -> list[int]:
        return self.manager.refs


HYBRID = {"kv_groups": ("full", "window"), "window": 3, "block_size": 2, "num_gpu_blocks": 12}
CACHED = {"caching": True, "chunked": False}
LOCAL = {"kv_groups": ("full", "local"), "window": None, "local_chunk": 3}  # a chunk that ends within a block


@dataclass(frozen=True)
class Fault:
    """One line of the manager, wrong. properties: of which one must be refuted."""

    name: str
    function: str
    line: str
    replacement: str
    properties: set[str]
    config: dict[str, Any] = field(default_factory=dict)


FAULTS = (
    Fault("a block of another group is shared", "key", "return group,", "return 0,", {"sharing-equal"}, CACHED),
    Fault(
        "the window frees a block too early",
        "first_read",
        "num_done - window + 1)",
        "num_done - window + 1 + self.block_size)",
        {"window-kept"},
    ),
    Fault(
        "the hit is that of the first group",
        "num_found",
        "enumerate(self.windows)",
        "enumerate(self.windows[:1])",
        {"hit-computed", "sharing-equal"},  # the entry found too many is empty, or another's
        CACHED,
    ),
    Fault(
        "one group leaks when a sequence is over",
        "free",
        "self.tables.pop(seq):",
        "self.tables.pop(seq)[:1]:",
        {"refcount-exact"},
    ),
    Fault(
        "what the window left is dropped again at the end",
        "append",
        "table[index] = NULL_BLOCK",
        "pass",
        {"refcount-exact"},
    ),
    Fault(
        "one group takes blocks before another has touched its hits",
        "allocate",
        "for do, table in product((self.touch, self.fill), tables):",
        "for table, do in product(tables, (self.touch, self.fill)):",
        {"no-use-after-free", "hit-computed"},
        CACHED | {"num_gpu_blocks": 8},
    ),
    Fault(
        "the second group gets no room",
        "append",
        "* len(tables) > len",
        "> len",
        {"admission-sound"},
    ),
    Fault(
        "a chunk is left one block early",
        "first_read",
        "* -window // self.block_size",
        "* -window // self.block_size + num_done // -window",
        {"window-kept"},
        LOCAL,
    ),
    Fault(
        "a chunk is never left",
        "first_read",
        "return num_done // -window * -window // self.block_size",
        "return 0",
        {"window-kept"},
        LOCAL,
    ),
    Fault(
        "a hit needs no block of the chunk",
        "num_found",
        "range(self.first_read(window, num * self.block_size), num)",
        "range(self.first_read(window, num * self.block_size) if window >= 0 else num, num)",
        {"hit-computed", "sharing-equal", "window-kept"},
        LOCAL | CACHED,
    ),
    Fault(
        "the window is kept in no group",
        "first_read",
        "if window else 0",
        "if not window else 0",
        {"window-kept"},
    ),
)

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_one_wrong_line_is_found_and_named(fault: Fault, plant: Plant) -> None:
    with plant(__name__, f"HybridManager.{fault.function}", fault.line, fault.replacement):
        done = walk(
            MANAGERS, Adapter(), 1, max_operations=NUM_OPERATIONS, seconds=float("inf"), fixed=HYBRID | fault.config
        )
        found = done.counterexample
        assert found is not None, "not found"
        assert found.finding.property in fault.properties, found.finding.text
        short = shrink(Adapter(), found, SHORTEN_SECONDS_MAX)
        assert (len(short.operations) <= 12, short.finding.kind) == (True, found.finding.kind)
    assert run_on(Adapter(), short.config, short.operations) is None


@pytest.mark.parametrize("chunk", [3, 4])
def test_the_right_manager_with_local_attention_is_not_refuted(chunk: int) -> None:
    fixed = HYBRID | LOCAL | {"caching": True, "local_chunk": chunk}
    done = walk(MANAGERS, Adapter(), 2, max_operations=NUM_OPERATIONS, seconds=float("inf"), fixed=fixed)
    assert (done.finding, done.num_operations) == (None, NUM_OPERATIONS)
    assert {"local attention left an entry", "pool full", "hit", "hit past a window", "evict"} <= done.coverage.keys()


@pytest.mark.parametrize("groups", [("full", "window"), ("window", "full"), ("full", "window", "window"), ("full",)])
@pytest.mark.parametrize("caching", [False, True], ids=["no-cache", "cache"])
def test_the_right_manager_is_not_refuted(groups: tuple[str, ...], caching: bool) -> None:
    fixed = HYBRID | {"kv_groups": groups, "caching": caching, "num_gpu_blocks": 6 * len(groups)}
    done = walk(MANAGERS, Adapter(), 2, max_operations=NUM_OPERATIONS, seconds=float("inf"), fixed=fixed)
    assert (done.finding, done.num_operations) == (None, NUM_OPERATIONS)
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


def test_a_table_of_another_group_may_not_change_by_a_call_that_is_not_about_it(plant: Plant) -> None:
    config = Config(block_size=1, kv_groups=("full", "full"))
    judge = ManagerJudge(Adapter(), config)
    for number in (1, 2):
        judge.apply(("new", number, (number,), (0,)))
        judge.apply(("admit", number, 1))
    judge.apply(("run", 0))
    subject = judge.subject
    assert isinstance(subject, Adapter)
    subject.manager.tables[1][1] = [7]
    with pytest.raises(
        Finding, match=r"sequence 1 in KV group 1, which it is not about, went \[1\] -> \[7\]"
    ) as caught:
        judge.apply(("free", 2))
    assert caught.value.property == "frame-kept"


def test_a_counterexample_of_several_groups_is_saved_and_replayed(plant: Plant, tmp_path: Path) -> None:
    config = Config(block_size=1, kv_groups=("full", "full"))
    operations: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0), ("free", 1)]
    with plant(__name__, "HybridManager.free", "self.tables.pop(seq):", "self.tables.pop(seq)[:1]:"):
        finding = run_on(Adapter(), config, operations)
        assert finding is not None
        path = save(
            tmp_path, make_trace("hybrid", Counterexample(config, operations, finding), "walker", 1, make=Adapter)
        )
        assert replay(path, Adapter).status is ReplayStatus.FAILED
    assert replay(path, Adapter).status is ReplayStatus.FIXED
