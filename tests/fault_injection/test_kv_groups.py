"""A small right manager of several KV groups is not refuted; with one line of it wrong it is, by the right property."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import product
from math import lcm
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
from kvproof.check.protocol.manager import NULL_BLOCK, Scheduled, common_block_size
from kvproof.check.runs.replay import replay
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import MANAGERS
from kvproof.spec.trace import Operation

NUM_OPERATIONS, NUM_OPERATIONS_LONG = 2_000, 6_000
SHORTEN_SECONDS_MAX = 60.0
LENGTH_MAX = 1 << 20  # tokens of a sequence


class NoRoom(Exception):
    """There are too few free blocks."""


class HybridManager:
    """Tables of each sequence, one for each KV group, over one pool.

    sizes: tokens of a block of each group. windows: as in `Config.windows`. states: the groups of which a block holds
    the state after a prefix, so that a step leaves one block for all that it computes.
    """

    def __init__(
        self, num_blocks: int, sizes: tuple[int, ...], windows: tuple[int, ...], caching: bool, states: set[int]
    ) -> None:
        self.sizes, self.windows, self.caching, self.states = sizes, windows, caching, states
        self.common = lcm(*sizes)
        self.refs = [0] * num_blocks
        self.free_ids = list(range(num_blocks))  # the next to be taken first, cached or not
        self.tables: dict[int, list[list[int]]] = {}
        self.num_done: dict[int, int] = {}
        self.cached: dict[Any, int] = {}
        self.key_of: dict[int, Any] = {}

    def key(self, group: int, tokens: list[int], index: int) -> Any:
        return group, tuple(tokens[: (index + 1) * self.sizes[group]])

    def first_read(self, group: int, num_done: int) -> int:
        window, size = self.windows[group], self.sizes[group]
        if window < 0:
            return num_done // -window * -window // size
        return max(0, num_done - window + 1) // size if window else 0

    def num_found(self, tokens: list[int]) -> int:
        """Tokens of the longest prefix that every group has, as far back as it reads; a token is left to compute."""
        for num in range((len(tokens) - 1) // self.common * self.common, 0, -self.common):
            if all(
                self.key(group, tokens, index) in self.cached
                for group, size in enumerate(self.sizes)
                for index in range(self.first_read(group, num), num // size)
            ):
                return num
        return 0

    def ends(self, num_tokens: int) -> list[int]:
        """How many entries the table of each group has for so many tokens."""
        return [-(-num_tokens // size) for size in self.sizes]

    def allocate(self, seq: int, tokens: list[int]) -> int:
        num_found = self.num_found(tokens) if self.caching else 0
        tables, ends = [], self.ends(len(tokens))
        for group, size in enumerate(self.sizes):
            first = self.first_read(group, num_found)
            found = [self.cached.get(self.key(group, tokens, index)) for index in range(first, num_found // size)]
            tables.append([NULL_BLOCK] * first + [block for block in found if block is not None])
        self.pass_over(tables, ends)
        num_new = sum(end - len(table) for end, table in zip(ends, tables, strict=True))
        if num_new + sum(block in self.free_ids for table in tables for block in table) > len(self.free_ids):
            raise NoRoom
        for do, (end, table) in product((self.touch, self.fill), zip(ends, tables, strict=True)):
            do(table, end)
        self.tables[seq], self.num_done[seq] = tables, num_found
        return num_found

    def pass_over(self, tables: list[list[int]], ends: list[int]) -> None:
        """A step leaves its last state only."""
        for group in self.states:
            tables[group] += [NULL_BLOCK] * (ends[group] - 1 - len(tables[group]))

    def touch(self, table: list[int], end: int) -> None:
        for block in table:
            if block != NULL_BLOCK:
                self.refs[block] += 1
                if block in self.free_ids:
                    self.free_ids.remove(block)

    def fill(self, table: list[int], end: int) -> None:
        while len(table) < end:
            block = self.free_ids.pop(0)
            self.cached.pop(self.key_of.pop(block, None), None)
            self.refs[block] = 1
            table.append(block)

    def append(self, seq: int, num_tokens: int) -> None:
        tables, num_done = self.tables[seq], self.num_done[seq]
        for group, table in enumerate(tables):
            for index in range(self.first_read(group, num_done)):
                self.drop(table[index])
                table[index] = NULL_BLOCK
        ends = [max(len(table), end) for table, end in zip(tables, self.ends(num_done + num_tokens), strict=True)]
        if sum(end - len(table) for end, table in zip(ends, tables, strict=True)) > len(self.free_ids):
            raise NoRoom
        self.pass_over(tables, ends)
        for end, table in zip(ends, tables, strict=True):
            self.fill(table, end)

    def computed(self, seq: int, tokens: list[int], stop: int) -> None:
        self.num_done[seq] = stop
        for group, table in enumerate(self.tables[seq]):
            for index, block in enumerate(table[: stop // self.sizes[group]]):
                key = self.key(group, tokens, index)
                if block != NULL_BLOCK and self.caching and key not in self.cached and block not in self.key_of:
                    self.cached[key], self.key_of[block] = block, key

    def free(self, seq: int) -> None:
        for table in self.tables.pop(seq):
            for block in table:
                self.drop(block)

    def moved(self, table: list[int]) -> list[int]:
        """The table, with another block in the place of each."""
        new = [self.free_ids.pop(0) if self.free_ids else block for block in table]
        for old, block in zip(table, new, strict=True):
            self.refs[block] += block != old
            self.drop(old if block != old else NULL_BLOCK)
        return new

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
        block_sizes=True,
        states=True,
        window_drop_when_refused=True,
    )
    refusals = (NoRoom,)
    manager: HybridManager

    def make(self, config: Config) -> HybridManager:
        in_place = {group for group, layout in enumerate(config.layouts) if layout.is_in_place}
        sizes = tuple(LENGTH_MAX if group in in_place else size for group, size in enumerate(config.block_sizes))
        states = {group for group, layout in enumerate(config.layouts) if layout.is_state}
        return HybridManager(config.num_gpu_blocks, sizes, config.windows, config.caching, states - in_place)

    def hits(self, group: int) -> int:
        return self.manager.num_found(self.tokens[self.groups[group][0]])

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
SIZES = {"kv_groups": ("window:2", "full:4"), "block_size": 4}
STATES = {"kv_groups": ("full", "state"), "window": None} | CACHED
STATES_IN_PLACE = {"kv_groups": ("full", "state"), "window": None, "caching": False}
LOCAL = {"kv_groups": ("full", "local"), "window": None, "local_chunk": 3}  # a chunk that ends within a block


@dataclass(frozen=True)
class Fault:
    """One line of the manager, wrong. properties: of which one must be refuted. seed: of a walk that finds it soon."""

    name: str
    function: str
    line: str
    replacement: str
    properties: set[str]
    config: dict[str, Any] = field(default_factory=dict)
    seed: int = 1


FAULTS = (
    Fault("a block of another group is shared", "key", "return group,", "return 0,", {"sharing-equal"}, CACHED, seed=0),
    Fault(
        "the window frees a block too early",
        "first_read",
        "num_done - window + 1)",
        "num_done - window + 1 + size)",
        {"window-kept"},
    ),
    Fault(
        "the hit is that of the first group",
        "num_found",
        "enumerate(self.sizes)",
        "enumerate(self.sizes[:1])",
        {"hit-computed", "sharing-equal"},  # the entry found too many is empty, or another's
        CACHED,
        seed=8,
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
        "for do, (end, table) in product((self.touch, self.fill), zip(ends, tables, strict=True)):",
        "for (end, table), do in product(zip(ends, tables, strict=True), (self.touch, self.fill)):",
        {"no-use-after-free", "hit-computed"},
        CACHED | {"num_gpu_blocks": 8},
        seed=4,
    ),
    Fault(
        "the second group gets no room",
        "append",
        "zip(ends, tables, strict=True)) > len",
        "zip(ends, tables[:1], strict=False)) > len",
        {"admission-sound"},
        seed=2,
    ),
    Fault(
        "a chunk is left one block early",
        "first_read",
        "* -window // size",
        "* -window // size + num_done // -window",
        {"window-kept"},
        LOCAL,
    ),
    Fault(
        "a chunk is never left",
        "first_read",
        "return num_done // -window * -window // size",
        "return 0",
        {"window-kept"},
        LOCAL,
    ),
    Fault(
        "a hit needs no block of the chunk",
        "num_found",
        "range(self.first_read(group, num), num // size)",
        "range(self.first_read(group, num) if self.windows[group] >= 0 else num // size, num // size)",
        {"hit-computed", "sharing-equal", "window-kept"},
        LOCAL | CACHED,
        seed=4,
    ),
    Fault(
        "the window is kept in no group",
        "first_read",
        "if window else 0",
        "if not window else 0",
        {"window-kept"},
    ),
    Fault(
        "a hit ends where one group has no boundary",
        "num_found",
        "(len(tokens) - 1) // self.common * self.common, 0, -self.common",
        "(len(tokens) - 1) // min(self.sizes) * min(self.sizes), 0, -min(self.sizes)",
        {"hit-computed"},
        SIZES | CACHED,
    ),
    Fault(
        "every group gets the entries of the largest blocks",
        "ends",
        "num_tokens // size)",
        "num_tokens // self.common)",
        {"admission-sound", "read-back"},
        SIZES,
    ),
    Fault(
        "a window is left in blocks of the other group",
        "first_read",
        "num_done - window + 1) // size",
        "num_done - window + 1) // min(self.sizes)",
        {"window-kept", "total-calls", "admission-sound"},
        SIZES | {"kv_groups": ("full:2", "window:4")},
        seed=2,
    ),
    Fault(
        "a block is cached before its last token",
        "computed",
        "stop // self.sizes[group]",
        "-(-stop // self.sizes[group])",
        {"hit-computed", "sharing-equal", "cow-copied"},
        SIZES | {"caching": True, "chunked": True},  # after a whole prompt such a block has a key that nobody asks for
        seed=2,
    ),
    Fault(
        "a state is found under the boundary before its own",
        "key",
        "(index + 1)",
        "(index + 1 - (group in self.states))",
        {"hit-computed", "sharing-equal"},
        STATES,
        seed=0,
    ),
    Fault(
        "a state is given up before the next token has read it",
        "first_read",
        "num_done - window + 1)",
        "num_done - window + 2)",
        {"window-kept"},
        STATES,
    ),
    Fault(
        "a step leaves its first state",
        "pass_over",
        "tables[group] += [NULL_BLOCK] * (ends[group] - 1 - len(tables[group]))",
        "ends[group] = min(ends[group], len(tables[group]) + 1)",
        {"admission-sound", "read-back"},
        STATES,
    ),
    Fault(
        "the state of a sequence moves to another block",
        "append",
        "ends = [max(",
        "tables[-1][:] = self.moved(tables[-1])\n        ends = [max(",
        {"frame-kept", "cow-copied"},
        STATES_IN_PLACE,
    ),
)

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_one_wrong_line_is_found_and_named(fault: Fault, plant: Plant) -> None:
    with plant(__name__, f"HybridManager.{fault.function}", fault.line, fault.replacement):
        done = walk(
            MANAGERS,
            Adapter(),
            fault.seed,
            max_operations=NUM_OPERATIONS_LONG,
            seconds=float("inf"),
            fixed=HYBRID | fault.config,
        )
        found = done.counterexample
        assert found is not None, "not found"
        assert found.finding.property in fault.properties, found.finding.text
        short = shrink(Adapter(), found, SHORTEN_SECONDS_MAX)
        assert (len(short.operations) <= 12, short.finding.kind) == (True, found.finding.kind)
    assert run_on(Adapter(), short.config, short.operations) is None


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
