"""A manager may forget what windows and states read, but for some boundaries: what is missing there is a finding."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fault_injection.hybrid_manager import Adapter, HybridManager

from kvproof.check import Config
from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import NULL_BLOCK
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.spec.trace import Operation

NUM_OPERATIONS, NUM_OPERATIONS_LONG = 500, 20_000
HYBRID = {"kv_groups": ("full", "window"), "window": 3, "block_size": 2, "num_gpu_blocks": 16, "caching": True}
LENGTHS = [NUM_OPERATIONS, pytest.param(NUM_OPERATIONS_LONG, marks=pytest.mark.long)]


class FindsTwins(HybridManager):
    """Of two blocks with one content it finds the one that is left: it misses nothing."""

    def fill(self, table: list[int], end: int) -> None:
        super().fill(table, end)
        for block, key in self.key_of.items():
            self.cached.setdefault(key, block)

    def computed(self, seq: int, tokens: list[int], stop: int) -> None:
        super().computed(seq, tokens, stop)
        for group, table in enumerate(self.tables[seq] if self.caching else []):
            for index, block in enumerate(table[: stop // self.sizes[group]]):
                if block != NULL_BLOCK:
                    self.key_of.setdefault(block, self.key(group, tokens, index))


class Forgets(FindsTwins):
    """Of a window and of states, it caches only what is read from the end of a prompt, a junction or the interval."""

    interval = 0  # tokens; 0: none
    keeps_junctions = keeps_ends = True

    def allocate(self, seq: int, tokens: list[int]) -> int:
        if not hasattr(self, "boundaries"):
            self.boundaries: dict[int, set[int]] = {}
            self.num_prompt: dict[int, int] = {}
        whole, self.windows = self.windows, tuple(min(window, 0) for window in self.windows)
        some, self.sizes = self.sizes, tuple(self.sizes[at] for at in range(len(whole)) if not whole[at])
        shared = self.num_found(tokens) if self.caching and self.sizes else 0
        self.windows, self.sizes = whole, some
        num_found = super().allocate(seq, tokens)
        self.boundaries[seq] = {shared} if shared > num_found and self.keeps_junctions else set()
        if self.keeps_ends:
            num_prompt = self.num_prompt.setdefault(seq, len(tokens))
            self.boundaries[seq].add((num_prompt - 1) // self.common * self.common)
        return num_found

    def computed(self, seq: int, tokens: list[int], stop: int) -> None:
        known = set(self.key_of)
        super().computed(seq, tokens, stop)
        for block in self.key_of.keys() - known:
            group, prefix = self.key_of[block]
            if self.windows[group] > 0 and not self.is_kept(seq, group, len(prefix)):
                key = self.key_of.pop(block)
                if self.cached.get(key) == block:
                    del self.cached[key]

    def is_kept(self, seq: int, group: int, stop: int) -> bool:
        """Whether the block that ends there is read from a boundary."""
        multiples = range(0, stop + self.windows[group] + self.interval, self.interval) if self.interval else ()
        return any(
            stop <= boundary and self.first_read(group, boundary) < stop // self.sizes[group]
            for boundary in (*self.boundaries[seq], *multiples)
        )

    def free(self, seq: int) -> None:
        super().free(seq)
        del self.boundaries[seq]


class KeepsAll(FindsTwins):
    """It caches everything, whatever it is configured to forget: more than it has to."""


class ForgetsEnds(Forgets):
    """It forgets what the same prompt will look for."""

    keeps_ends = False


class ForgetsJunctions(Forgets):
    """It forgets what another prompt with the same beginning will look for."""

    keeps_junctions = False


class ForgetsOneBlock(Forgets):
    """Of what is read from a boundary it keeps a block less."""

    def is_kept(self, seq: int, group: int, stop: int) -> bool:
        return super().is_kept(seq, group, stop) and super().is_kept(seq, group, stop - self.sizes[group])


def adapter_of(kind: type[HybridManager]) -> type[Adapter]:
    """The adapter of a manager that can forget."""

    class OfKind(Adapter):
        name = kind.__name__
        capabilities = replace(Adapter.capabilities, retention=True, lost_hits=0)

        def make(self, config: Config) -> HybridManager:
            made = super().make(config)
            is_dense = config.retention is None
            manager = (FindsTwins if is_dense else kind)(
                config.num_gpu_blocks, made.sizes, made.windows, made.caching, made.states
            )
            if isinstance(manager, Forgets):
                manager.interval = config.retention or 0
            return manager

    return OfKind


@pytest.mark.parametrize("num_operations", LENGTHS)
@pytest.mark.parametrize("interval", [0, 4, None])
@pytest.mark.parametrize("groups", [("full", "window"), ("window",), ("full", "window", "state")])
@pytest.mark.parametrize("kind", [Forgets, KeepsAll])
def test_a_manager_that_keeps_what_it_has_to_is_not_refuted(
    kind: type[HybridManager], groups: tuple[str, ...], interval: int | None, num_operations: int
) -> None:
    fixed: dict[str, Any] = HYBRID | {"kv_groups": groups, "retention": interval, "chunked": "state" not in groups}
    subject = adapter_of(kind)()
    done = walk(MANAGERS, subject, 2, max_operations=num_operations, seconds=float("inf"), fixed=fixed)
    assert (done.finding, done.num_operations) == (None, num_operations)
    assert "hit" in done.coverage or "state" in groups  # in one step only the last state is left


@pytest.mark.parametrize("kind", [ForgetsEnds, ForgetsJunctions, ForgetsOneBlock])
def test_a_manager_that_forgets_more_is_refuted(kind: type[HybridManager]) -> None:
    fixed: dict[str, Any] = HYBRID | {"retention": 0, "keys": 1}
    done = walk(MANAGERS, adapter_of(kind)(), 2, max_operations=20_000, seconds=float("inf"), fixed=fixed)
    assert done.finding is not None
    assert done.finding.property == "hit-found"


def at_the_end(interval: int | None, prompts: list[list[int]]) -> ManagerJudge:
    """The judge after prompts that were computed, one by one, by a manager that forgets all that it may."""
    config = Config(
        block_size=2, num_gpu_blocks=40, caching=True, window=3, kv_groups=("full", "window"), retention=interval
    )
    judge = ManagerJudge(adapter_of(Forgets)(), config)
    for number, prompt in enumerate(prompts, 1):
        operations: list[Operation] = [("new", number, (number,), tuple(prompt)), ("admit", number, len(prompt))]
        for operation in [*operations, ("run", 0), ("free", number)]:
            judge.apply(operation)
    return judge


PROMPT = list(range(9))
ENDS_OTHERWISE = [*PROMPT[:7], 99, 98]


@pytest.mark.parametrize(
    ("interval", "prompts", "hit"),
    [
        (0, [PROMPT, PROMPT], 8),  # the same prompt again
        (0, [PROMPT, ENDS_OTHERWISE], 0),  # it differs within its last block: nothing was promised of that boundary
        (0, [PROMPT, ENDS_OTHERWISE, ENDS_OTHERWISE[:-1]], 6),  # but it was left there once, so the next one finds it
        (4, [PROMPT, ENDS_OTHERWISE], 4),
        (None, [PROMPT, ENDS_OTHERWISE], 6),
    ],
)
def test_a_boundary_is_kept_where_a_prompt_ends_or_was_left(
    interval: int | None, prompts: list[list[int]], hit: int
) -> None:
    judge = at_the_end(interval, prompts[:-1])
    judge.apply(("new", 9, (9,), tuple(prompts[-1])))
    judge.apply(("lookup", 9))
    assert judge.reply.text == f"hit {hit}"


def test_a_missing_boundary_is_named() -> None:
    judge = at_the_end(0, [PROMPT])
    subject = judge.subject
    assert isinstance(subject, Adapter)
    subject.manager.cached.clear()
    judge.apply(("new", 9, (9,), tuple(PROMPT)))
    with pytest.raises(Finding, match="a hit of 0 tokens of sequence 9, but 8 are cached") as caught:
        judge.apply(("lookup", 9))
    assert caught.value.property == "hit-found"
