"""The pool level: our own pool is not refuted, and each planted fault is, under the property it breaks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.isolation import remote_search
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.coverage import PROPERTIES
from kvproof.check.oracle.level import MANAGER, POOL, level_of
from kvproof.check.oracle.pool import PoolJudge
from kvproof.check.oracle.repetition import confirm
from kvproof.check.protocol.capabilities import whole
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Observation, Refused, Unsupported
from kvproof.check.protocol.pool import Find, PoolConfig, Store
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import POOLS
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.registry import find

CACHED = PoolConfig(num_gpu_blocks=4, caching=True)


class ForgetsAReference(OwnPool):
    """share does not count."""

    def share(self, blocks: list[int]) -> None:
        super().share(blocks)
        self.refcounts[blocks[0]] -= 1


class Leaks(OwnPool):
    """The last block of a list is not given back."""

    def free(self, blocks: list[int]) -> None:
        super().free(blocks[:-1] if len(blocks) > 1 else blocks)

    def observe(self) -> Observation:
        return super().observe()._replace(refs=None, free_ids=None)


class HandsOutTwice(OwnPool):
    """A full pool gives a block that is held."""

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        if num_blocks > self.blocks.num_free:
            return list(range(num_blocks))
        return super().allocate(num_blocks)


class IgnoresDoubleFree(OwnPool):
    """A block that nobody holds is freed once more, and nothing changes."""

    capabilities = replace(OwnPool.capabilities, ignores_double_free=True)

    def free(self, blocks: list[int]) -> None:
        super().free([block for block in blocks if self.refcounts[block]])


class TakesBackTwice(IgnoresDoubleFree):
    """What is freed once more is free twice, as in LMCache's issue 5005."""

    def open(self, config: PoolConfig) -> None:
        super().open(config)
        self.twice: list[int] = []

    def free(self, blocks: list[int]) -> None:
        self.twice = [block for block in blocks if not self.refcounts[block]]
        super().free(blocks)

    def observe(self) -> Observation:
        shown = super().observe()
        return shown._replace(free_ids=[*(shown.free_ids or ()), *self.twice])


class RefusesEarly(OwnPool):
    """The last free block is never given."""

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        return Refused("full") if num_blocks >= self.blocks.num_free else super().allocate(num_blocks)


class FindsByLastPage(OwnPool):
    """Content is compared by its last page only."""

    def cache(self, blocks: list[int], pages: list[int]) -> None:
        for block, page in zip(blocks, pages, strict=True):
            super().cache([block], [page])

    def find(self, pages: list[int]) -> list[int]:
        found = [super(FindsByLastPage, self).find([page]) for page in pages]
        return (
            [block for blocks in found[:1] for block in blocks] if not all(found) else [blocks[0] for blocks in found]
        )


class TakesWhileItRefuses(OwnPool):
    """A refused allocation keeps what it got until then."""

    def allocate(self, num_blocks: int) -> list[int] | Refused:
        given = super().allocate(num_blocks)
        if isinstance(given, Refused) and self.blocks.num_free:
            super().allocate(1)
        return given


class Miscounts(OwnPool):
    """A hit on an evictable block is still counted as free."""

    def observe(self) -> Observation:
        seen = super().observe()
        return seen._replace(free=(seen.free[0] + (self.refcounts[0] > 2), 0), free_ids=None)


class Answers(OwnPool):
    """What it finds is no list."""

    def find(self, pages: list[int]) -> Any:
        return iter(super().find(pages))


FAULTS = [
    (ForgetsAReference, {"refcount-exact"}),
    (Leaks, {"conservation", "no-leak-at-rest"}),
    (HandsOutTwice, {"no-use-after-free"}),
    (RefusesEarly, {"admission-sound"}),
    (TakesBackTwice, {"no-double-free"}),
    (FindsByLastPage, {"sharing-equal"}),
    (TakesWhileItRefuses, {"failed-call-changes-nothing"}),
    (Miscounts, {"conservation"}),
]


def test_a_pool_that_ignores_a_double_free_is_not_refuted() -> None:
    done = walk(POOLS, IgnoresDoubleFree(), 1, max_operations=1_000, seconds=100)
    assert (done.counterexample, done.coverage["given up twice"] > 0) == (None, True)


def test_our_own_pool_is_not_refuted_and_meets_every_witness() -> None:
    done = walk(POOLS, OwnPool(), 1, max_operations=10_000, seconds=100)
    assert done.finding is None
    assert done.num_operations == 10_000
    expected = POOL.expected_witnesses(whole(OwnPool.capabilities))
    assert [name for name, is_expected in expected.items() if is_expected and not done.coverage[name]] == []
    assert not done.notes["hit-complete"]


@pytest.mark.parametrize(("faulty", "properties"), FAULTS)
def test_a_planted_fault_is_refuted_and_shortened(faulty: Callable[[], OwnPool], properties: set[str]) -> None:
    done = walk(POOLS, faulty(), 2, max_operations=20_000, seconds=100)
    assert done.counterexample is not None
    found = confirm(faulty, done.counterexample)
    assert found.finding.property in properties
    short = shrink(faulty(), found, 20)
    assert short.finding.kind == found.finding.kind
    assert len(short.operations) <= 4


def test_the_same_seed_gives_the_same_walk() -> None:
    one, other = (walk(POOLS, OwnPool(), 7, max_operations=1_000, seconds=100) for _ in range(2))
    assert (one.kinds, one.coverage) == (other.kinds, other.coverage)
    assert one.kinds != walk(POOLS, OwnPool(), 8, max_operations=1_000, seconds=100).kinds


def test_one_page_and_one_block_are_named_in_the_singular() -> None:
    judge = PoolJudge(OwnPool(), CACHED)
    assert judge.apply(("store", 1, (0,)))
    assert judge.answer == "block 0"
    texts = [Find((0,)).text(CACHED), Store(1, (0,)).text(CACHED), Store(1, (0, 1)).text(CACHED)]
    assert texts == ["find(page 0)", "store(holder 1, page 0)", "store(holder 1, pages 0 1)"]


def test_a_hit_is_by_the_whole_prefix_and_evictable_blocks_are_hit() -> None:
    judge = PoolJudge(OwnPool(), CACHED)
    assert judge.apply(("store", 1, (0, 1)))
    assert judge.apply(("give", 1))
    assert judge.apply(("find", (1,)))
    assert judge.answer == "no block"
    assert judge.apply(("reuse", 2, (0, 1, 1)))
    assert judge.answer == "blocks 0, 1"
    assert judge.blocks_of(2) == [0, 1]
    assert judge.coverage["hit on an evictable block"] == 2
    assert judge.apply(("share", 2, 3))
    assert judge.state.refcount[:2] == [2, 2]
    assert judge.apply(("forget",))
    assert judge.answer == "refused"
    assert not judge.apply(("give", 9))
    assert not judge.apply(("take", 2, 1))


def test_a_missed_hit_is_a_note() -> None:
    class Blind(OwnPool):
        capabilities = replace(OwnPool.capabilities, lost_hits=None)

        def find(self, pages: list[int]) -> list[int]:
            return []

    judge = PoolJudge(Blind(), CACHED)
    judge.apply(("store", 1, (0,)))
    judge.apply(("reuse", 2, (0,)))
    assert judge.notes["hit-complete"] == 1


def test_an_answer_of_the_wrong_type_is_the_adapters_fault() -> None:
    judge = PoolJudge(Answers(), CACHED)
    with pytest.raises(AdapterError, match="find must return list"):
        judge.apply(("find", (0,)))


def test_what_raises_is_named_by_its_call() -> None:
    class Raises(OwnPool):
        def free(self, blocks: list[int]) -> None:
            raise RuntimeError("double free of block 0")

    judge = PoolJudge(Raises(), CACHED)
    judge.apply(("take", 1, 1))
    with pytest.raises(Finding) as found:
        judge.apply(("give", 1))
    assert found.value.kind == ("no-double-free", "free RuntimeError")


def test_what_needs_tables_is_unsupported_and_not_passed() -> None:
    pool = OwnPool()
    assert level_of(pool) is POOL
    assert level_of(find("kvproof")()) is MANAGER
    facts = POOL.facts_of(pool)
    assert POOL.unsupported("read-back", facts) == "judged only for subjects with sequences and tables"
    assert {name for name in PROPERTIES if POOL.unsupported(name, facts) is None} == {
        "refcount-exact",
        "no-double-free",
        "no-use-after-free",
        "conservation",
        "no-leak-at-rest",
        "hit-computed",
        "hit-complete",
        "hit-found",
        "sharing-equal",
        "evict-unreferenced",
        "eviction-order",
        "lists-agree",
        "admission-sound",
        "failed-call-changes-nothing",
        "total-calls",
    }


def test_a_pool_is_walked_in_a_process_of_its_own_as_in_ours() -> None:
    factory = RemoteFactory("kvproof-pool")
    there = remote_search.walk(POOLS, factory(), 3, max_operations=500, seconds=100)
    here = walk(POOLS, OwnPool(), 3, max_operations=500, seconds=100)
    factory.close()
    assert (there.finding, there.kinds, there.coverage) == (None, here.kinds, here.coverage)


def test_a_hunt_of_a_pool_saves_a_trace_that_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(
        "from kvproof.check.subjects.builtin.pool import OwnPool\n\n\nclass Faulty(OwnPool):\n"
        "    def share(self, blocks):\n        super().share(blocks)\n        self.refcounts[blocks[0]] -= 1\n"
    )
    options = ("--level", "pool", "--budget", "5", "--seed", "1", "--no-isolation", "--stop-at-first")
    done = CliRunner().invoke(app, ["hunt", "--subject", "faulty.py:Faulty", *options])
    assert done.exit_code == 1, done.output
    (saved,) = (tmp_path / ".kvproof" / "crashes").glob("*.json")
    operations = json.loads(saved.read_text())["operations"]
    assert operations == [["take", 1, 1], ["share", 1, 2]]
    assert "  1  take(holder 1, 1 block)" in done.output
    again = CliRunner().invoke(app, ["replay", str(saved), "--subject", "kvproof-pool"])
    assert (again.exit_code, again.output.split()[0]) == (0, "FIXED")


def test_a_pool_whose_blocks_hold_several_pages_is_refused_before_it_is_opened() -> None:
    with pytest.raises(Unsupported, match=r"block_size is 1, and not 2"):
        PoolJudge(OwnPool(), PoolConfig(block_size=2, num_gpu_blocks=4))
