"""Schedulers of models that have states beside attention, and KV groups with blocks of different sizes."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.fault_injection.hybrid_manager import LENGTH_MAX, HybridManager, NoRoom

from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import NULL_BLOCK, STATE, Observation, Unsupported
from kvproof.check.protocol.scheduler import Chunk, ScheduledStep, SchedulerConfig
from kvproof.check.protocol.scheduler_adapter import Request, SchedulerAdapter
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.spec.trace import Operation

CAN: dict[str, Any] = {"has_admission_query": False, "caching": True, "chunked": True, "window": True}
CAN |= {"window_with_caching": True, "kv_groups": True, "states": True, "block_sizes": True}
CAN |= {"fills_steps": True, "begins_prompts": True, "serves_running": True, "refusal_slack": 0, "policies": ("fcfs",)}


class Hybrid(SchedulerAdapter):
    """First come, first served; a prompt that is cut ends a chunk where a state can be kept."""

    name = "hybrid"
    capabilities = Capabilities(**CAN, window_drop_when_refused=True)

    def make(self, config: SchedulerConfig) -> HybridManager:
        if config.chunked and config.max_num_batched_tokens < config.block_size:
            raise Unsupported("a chunk has room for a block")
        if not config.chunked and config.max_num_batched_tokens < config.max_model_len:
            raise Unsupported("a step has room for a prompt")
        if len(config.kv_groups) * (config.max_model_len + 1) > config.num_gpu_blocks:
            raise Unsupported("one sequence fits")
        sizes = [LENGTH_MAX if layout.is_in_place else layout.num_tokens for layout in config.layouts]
        windows = [0 if size == LENGTH_MAX else w for w, size in zip(config.windows, sizes, strict=True)]
        self.states = {at for at, kind in enumerate(config.kinds) if kind == STATE and config.caching}
        self.state_size = sizes[min(self.states)] if self.states else 1
        self.manager = HybridManager(config.num_gpu_blocks, tuple(sizes), tuple(windows), config.caching, self.states)
        self.tokens: dict[int, list[int]] = {}
        self.waiting: list[int] = []
        self.running: list[int] = []
        return self.manager

    def add(self, request: Request) -> None:
        self.tokens[request.seq] = request.tokens[:]
        self.waiting.append(request.seq)

    def cancel(self, request: Request) -> None:
        self.end(request.seq)

    def end(self, seq: int) -> None:
        if seq in self.running:
            self.running.remove(seq)
            self.manager.free(seq)
        else:
            self.waiting.remove(seq)

    def cut(self, start: int, stop: int, known: int) -> int:
        """Where a chunk of at most so many tokens ends."""
        if not self.states:
            return stop
        size = self.state_size
        ends = [stop if stop == known else stop // size * size, known // size * size]
        if start % size:
            ends.append(-(-start // size) * size)
        return min((end for end in ends if start < end <= stop), default=start)

    def next_step(self) -> tuple[list[Chunk], ScheduledStep]:
        budget, chunks, manager = self.config.max_num_batched_tokens, list[Chunk](), self.manager
        for seq in self.running[:]:
            start, known = manager.num_done[seq], len(self.tokens[seq])
            stop = self.cut(start, min(known, start + budget), known)
            while seq in self.running and stop > start:
                try:
                    manager.append(seq, stop - start)
                    chunks.append(Chunk(seq, start, stop))
                    budget -= stop - start
                    break
                except NoRoom:
                    victim = self.running.pop()
                    manager.free(victim)
                    self.waiting.insert(0, victim)
        while self.waiting and len(self.running) < self.config.max_num_seqs:
            seq = self.waiting[0]
            tokens = self.tokens[seq]
            found = manager.num_found(tokens) if self.config.caching else 0
            stop = self.cut(found, min(len(tokens), found + budget), len(tokens))
            if stop <= found or (stop < len(tokens) and not self.config.chunked and not self.states):
                break
            try:
                hit = manager.allocate(seq, tokens[:stop])
            except NoRoom:
                break
            self.running.append(self.waiting.pop(0))
            chunks.append(Chunk(seq, hit, stop, hit))
            budget -= stop - hit
        return chunks, ScheduledStep(chunks)

    def take_results(self, output: list[Chunk], sampled: dict[int, int], finished: list[int]) -> None:
        for chunk in output:
            if chunk.seq in self.running:
                self.manager.computed(chunk.seq, self.tokens[chunk.seq], chunk.stop)
        for seq, token in sampled.items():
            self.tokens[seq].append(token)
        for seq in finished:
            self.end(seq)

    def observe(self) -> Observation:
        manager = self.manager
        tables = {seq: [row[:] for row in rows] for seq, rows in manager.tables.items()}
        return Observation(tables, (len(manager.free_ids), 0), (), manager.refs[:], manager.free_ids[:])


class CutsAnywhere(Hybrid):
    """A chunk ends where the step has no token left; the next one goes past the boundary, where it leaves no state."""

    def cut(self, start: int, stop: int, known: int) -> int:
        return stop


class CutsTooSmall(Hybrid):
    """Chunks are cut at the blocks of the group that has the smallest ones."""

    def make(self, config: SchedulerConfig) -> HybridManager:
        manager = super().make(config)
        self.state_size = min(manager.sizes)
        return manager


class KeepsAState(Hybrid):
    """A state that the next step does not read stays until the request is over."""

    def make(self, config: SchedulerConfig) -> HybridManager:
        manager = super().make(config)
        drop = manager.append

        def append(seq: int, num_tokens: int) -> None:
            kept = [row[0] for row in manager.tables[seq]]
            drop(seq, num_tokens)
            for group in self.states:
                row = manager.tables[seq][group]
                if kept[group] != NULL_BLOCK and row[0] == NULL_BLOCK and kept[group] in manager.free_ids:
                    manager.free_ids.remove(kept[group])
                    row[0] = kept[group]
                    manager.refs[row[0]] = 1

        manager.append = append  # type: ignore[method-assign]
        return manager


GROUPS = ["full", "state"], ["state"], ["full:2", "state:4"], ["full:4", "state:2", "window:4"]


def fields(groups: list[str], caching: bool) -> dict[str, Any]:
    """A configuration with these groups in a pool that few sequences fill."""
    wide = {"block_size": 4, "num_gpu_blocks": 60, "max_model_len": 12, "max_num_batched_tokens": 7}
    return wide | {"kv_groups": groups, "window": 3 if "window:4" in groups else None, "caching": caching}


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("groups", GROUPS)
def test_a_lawful_scheduler_of_states_is_not_refuted(groups: list[str], caching: bool) -> None:
    fixed = fields(groups, caching) | {"chunked": True}
    done = walk(SCHEDULERS, Hybrid(), 1, max_operations=1_000, seconds=100.0, fixed=fixed)
    assert done.finding is None, done.finding
    assert not caching or all(done.coverage[name] > 5 for name in ("state left an entry", "hit"))


@pytest.mark.parametrize(
    ("faulty", "groups", "properties"),
    [
        (CutsAnywhere, ["full", "state"], {"hit-computed"}),
        (CutsTooSmall, ["full:2", "state:4"], {"admission-exact"}),
        (KeepsAState, ["full", "state"], {"window-kept"}),
    ],
)
def test_a_state_that_is_not_there_and_one_too_many_are_found(
    faulty: Callable[[], Hybrid], groups: list[str], properties: set[str]
) -> None:
    fixed = fields(groups, True) | {"chunked": True}
    done = walk(SCHEDULERS, faulty(), 1, max_operations=10_000, seconds=100.0, fixed=fixed)
    assert done.finding is not None
    assert done.finding.property in properties


def test_a_step_that_goes_past_the_block_in_which_it_begins_leaves_no_state_there() -> None:
    config = SchedulerConfig(
        block_size=2,
        num_gpu_blocks=30,
        caching=True,
        chunked=True,
        kv_groups=("state",),
        max_num_batched_tokens=3,
        max_model_len=12,
    )
    step: list[Operation] = [("schedule",), ("launch",), ("complete", (0,))]
    for subject, expected in ((Hybrid(), [True, True]), (CutsAnywhere(), [False, True])):
        judge = SchedulerJudge(subject, config)
        for operation in [("add", 1, (1,), (1, 2, 3, 4, 5, 6, 7), 1), *step, *step]:
            assert judge.apply(operation)
        blocks = [block for block in judge.seqs[1].observed_table if block != NULL_BLOCK]
        assert [judge.state.computed[block] for block in blocks] == expected


class Drafts(Hybrid):
    """It declares drafts."""

    capabilities = Capabilities(**CAN, speculative_tokens=1)

    def accepted(self, drafts: dict[int, list[int]]) -> None: ...

    def propose(self, drafts: dict[int, list[int]]) -> None: ...


def test_states_are_judged_without_drafts() -> None:
    with pytest.raises(Unsupported, match="without drafts"):
        SchedulerJudge(Drafts(), SchedulerConfig(kv_groups=("full", "state"), speculative_tokens=1))
