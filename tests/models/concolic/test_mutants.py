"""A fault planted in the source of each class is refuted with concrete numbers, seen by running the faulty class."""

import inspect
import re
import sys
import types
from typing import Any

import pytest

from kvproof.models.concolic.scenario import NotReplayed, Scenario, obligations, refutations, replay
from kvproof.models.concolic.suite import SCENARIOS
from kvproof.models.suites import refutation_of

# The scenario that refutes it, the text of its subject that is replaced once, and by what.
MUTANTS = [
    ("RefCounter.incr", "self.get(block_id) + 1", "self.get(block_id) + 2"),
    ("RefCounter.decr", "        self._counts[block_id] = count - 1\n", ""),
    ("RefCounter.decr", "if count == 0:", "if count == 1:"),
    ("RefCounter.get", "if block_id not in self._ids:", "if block_id > 3:"),
    ("ReadOnlyRefCounter", 'raise ReadOnlyError(f"the refcount of block {block_id}")', "return 0"),
    ("CopyOnWriteTracker.is_appendable", "<= 1", "<= 2"),
    ("CopyOnWriteTracker.is_appendable", "block.block_id is None or ", ""),
    ("CopyOnWriteTracker.record_cow", "is None or trg_block_id is None", "is None and trg_block_id is None"),
    (
        "CopyOnWriteTracker.record_cow",
        "(src_block_id, trg_block_id))\n\n    def clear",
        "(trg_block_id, src_block_id))\n\n    def clear",
    ),
    ("CopyOnWriteTracker.clear_cows", "copies, self._copies = self._copies, []", "copies = self._copies"),
    ("DeviceBlocks.take", "if num_blocks > len(self.free_ids):", "if num_blocks >= len(self.free_ids):"),
    ("DeviceBlocks.take", "        for block_id in taken:\n            refcounts[block_id] = 1\n", ""),
    ("DeviceBlocks.take_one", "        self.refcounts[block_id] = 1\n", ""),
    ("DeviceBlocks.share", "refcounts[block_id] += 1", "refcounts[block_id] = 2"),
    ("DeviceBlocks.share", "refcounts[block_id] += 1", "refcounts[block_id] += 1\n            self.num_kept += 1"),
    ("DeviceBlocks.take_one", "if not self.free_ids:", "if len(self.free_ids) <= self.num_kept:"),
    ("DeviceBlocks.release", "            refcounts[block_id] = left\n", ""),
    (
        "DeviceBlocks.release",
        "            if not left:",
        "            self.null_id = block_id\n            if not left:",
    ),
    ("DeviceBlocks.release", "if not left:", "if left <= 1:"),
    ("DeviceBlocks.release", "free_ids.appendleft(block_id)", "free_ids.append(block_id)"),
    ("DeviceBlocks.null_block", "if self.null_id == NO_NULL_BLOCK:", "if True:"),
    ("DeviceBlocks.require_held", "or block_id == self.null_id", ""),
    ("DeviceBlocks counts", "- self.num_kept - (", "- ("),
    ("LRUEvictor.add", "(last_accessed, -num_hashed_tokens, block_id)", "(last_accessed, num_hashed_tokens, block_id)"),
    ("LRUEvictor.add", "        self._waiting.extend(ranks)\n", ""),
    ("LRUEvictor.remove", "        del self._contents[block_id]\n", ""),
    ("LRUEvictor.evict", "        waiting.sort()\n", ""),
    ("LRUEvictor.evict", "        waiting.clear()\n", ""),
    ("LRUEvictor.evict", "bisect_left(waiting, queue[-1]) if queue else 0", "0"),
    ("LRUEvictor.evict", "bisect_left(waiting, queue[-1]) if", "bisect_left(waiting, queue[0]) if"),
    ("LRUEvictor.evict", "heap and not (queue and queue[0] < heap[0])", "heap and not queue"),
    ("LRUEvictor.evict", "            heapq.heappush(self._heap, rank)\n", "            self._heap.append(rank)\n"),
    ("LRUEvictor.evict", "if ranks.get(block_id) is rank:", "if block_id in ranks:"),
    ("LRUEvictor.add", "        self._waiting[:] = self._ranks.values()\n", "        self._waiting.clear()\n"),
    ("LRUEvictor.add", "        self._queue.clear()\n        self._heap.clear()\n", ""),
    ("LRUEvictor.update", "-rank[1], last_accessed)", "rank[1], last_accessed)"),
    ("swapping.move", "        source.release(held)\n", ""),
    ("swapping.move", "            refcounts[block_id] = 0\n", "            pass\n"),
    ("swapping.move", "    target.free_ids.extend(held_back)\n", ""),
    ("swapping.move", "target.num_free - len(held_back):", "target.num_free:"),
    ("swapping.move", "        table.writable_slots = 0\n", ""),
    ("swapping.move", "        table.writable_slots = 0\n", "        table.writable_slots = table.quiet_tokens = 0\n"),
    ("swapping.move", "table.ids[: table.num_dropped] + moved", "moved"),
]

MANY_PATHS = ("tables 01 02, 3 free", "queue empty, heap empty, waiting 012")  # no fault needs them


def mutant(scenario: Scenario, old: str, new: str) -> Any:
    """The subject of a scenario, from a source in which one text of it is replaced."""
    module = sys.modules[scenario.subject.__module__]
    source, original = inspect.getsource(module), inspect.getsource(scenario.subject)
    assert old in original, "the source has changed: choose another fault"
    rewritten = types.ModuleType(module.__name__)
    rewritten.__package__ = module.__package__
    exec(compile(source.replace(original, original.replace(old, new, 1)), "a mutant", "exec"), vars(rewritten))
    return getattr(rewritten, scenario.subject.__name__)


def scenario_named(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS, ids=[f"{m[0]}-{i}" for i, m in enumerate(MUTANTS)])
def test_a_planted_fault_is_refuted_by_numbers_on_which_it_shows(name: str, old: str, new: str) -> None:
    scenario = scenario_named(name)
    faulty = mutant(scenario, old, new)
    shapes = [shape for shape in scenario.shapes if shape not in MANY_PATHS]
    refutation = next(refutations(scenario, faulty, shapes), None)
    assert refutation is not None
    _, claims = replay(scenario, refutation.shape, refutation.values, faulty)
    assert [claim.sentence for claim in claims if not claim.holds] == list(refutation.broken) != []
    _, claims = replay(scenario, refutation.shape, refutation.values)
    assert all(claim.holds for claim in claims), "the class as it is does right with the same numbers"


def test_a_refutation_names_the_numbers_and_the_claims_that_break() -> None:
    scenario = scenario_named("DeviceBlocks.release")
    faulty = mutant(scenario, "if not left:", "if left <= 1:")
    refutation = next(refutations(scenario, faulty))
    block = refutation.values["block_0"]
    assert refutation.values[f"count_{block}"] == 2
    assert f"block_0 = {block}" in str(refutation)
    assert "exactly the blocks that nobody holds are free, each once" in str(refutation)


def test_a_refuted_obligation_is_reproduced_by_running_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = scenario_named("DeviceBlocks.share")
    made = list(obligations(scenario))
    assert [refutation_of(one) for one in made] == [None] * len(made)
    monkeypatch.setattr(
        scenario.subject, "share", lambda blocks, ids: [blocks.refcounts.__setitem__(i, 2) for i in ids]
    )
    found = refutation_of(made[0])
    assert found is not None
    text = found.text
    assert text.startswith("DeviceBlocks.share 2 ids, 1 free: with count_0 = ")
    assert text.endswith("it returns, but each has one reference more, no other count changes")
    assert all(len(number) < 3 for number in re.findall(r"= (\d+)", text)), "small numbers are tried first"


def test_the_classes_as_they_are_are_not_refuted() -> None:
    quick = [one for one in SCENARIOS if one.subject.__name__ in ("RefCounter", "CopyOnWriteTracker")]
    assert [list(refutations(scenario)) for scenario in quick] == [[]] * len(quick)


def test_what_does_not_show_when_it_is_run_is_not_called_a_refutation() -> None:
    scenario = scenario_named("RefCounter.incr")
    counter = scenario.subject

    class ForgetsOnSymbols(counter):  # type: ignore[misc,valid-type]
        """Wrong only where it meets no plain number."""

        def incr(self, block_id: Any) -> Any:
            return super().incr(block_id) if isinstance(block_id, int) else self.get(block_id)

    with pytest.raises(NotReplayed):
        list(refutations(scenario, ForgetsOnSymbols))
