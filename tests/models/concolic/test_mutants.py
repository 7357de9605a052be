"""A fault planted in the source of each class is refuted with concrete numbers, seen by running the faulty class."""

import re
from typing import Any

import pytest
from tests.models.concolic import device_scenarios

from kvproof.audit.faults.planting import faulty
from kvproof.models import concolic
from kvproof.models.concolic.scenario import NotReplayed, Scenario, obligations, refutations, replay
from kvproof.models.suites import refutation_of

# The scenario that refutes it, the text of its subject that is replaced once, and by what.
MUTANTS = [
    ("DeviceBlocks.take", "if num_blocks > len(self.free_ids):", "if num_blocks >= len(self.free_ids):"),
    ("DeviceBlocks.take", "        for block_id in taken:\n            refcounts[block_id] = 1\n", ""),
    ("DeviceBlocks.null_block", "if self.null_id == NO_NULL_BLOCK:", "if True:"),
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

SCENARIOS = (*device_scenarios.SCENARIOS, *concolic.SCENARIOS)
MANY_PATHS = ("tables 01 02, 3 free", "queue empty, heap empty, waiting 012")  # no fault needs them


def scenario_named(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS, ids=[f"{m[0]}-{i}" for i, m in enumerate(MUTANTS)])
def test_a_planted_fault_is_refuted_by_numbers_on_which_it_shows(name: str, old: str, new: str) -> None:
    scenario = scenario_named(name)
    changed = faulty(scenario.subject, old, new)
    shapes = [shape for shape in scenario.shapes if shape not in MANY_PATHS]
    refutation = next(refutations(scenario, changed, shapes), None)
    assert refutation is not None
    _, claims = replay(scenario, refutation.shape, refutation.values, changed)
    assert [claim.sentence for claim in claims if not claim.holds] == list(refutation.broken) != []
    _, claims = replay(scenario, refutation.shape, refutation.values)
    assert all(claim.holds for claim in claims), "the class as it is does right with the same numbers"


def test_a_refutation_names_the_numbers_and_the_claims_that_break() -> None:
    scenario = scenario_named("DeviceBlocks.take")
    changed = faulty(scenario.subject, "num_blocks > len(self.free_ids)", "num_blocks >= len(self.free_ids)")
    refutation = next(refutations(scenario, changed, ["1 of 1 free"]))
    assert f"free_0 = {refutation.values['free_0']}" in str(refutation)
    assert "it refuses exactly if too few are free" in str(refutation)


def test_a_refuted_obligation_is_reproduced_by_running_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = scenario_named("DeviceBlocks.take")
    monkeypatch.setattr(concolic, "SCENARIOS", SCENARIOS)
    made = [one for one in obligations(scenario) if one.claim.startswith("2 of 2 free: ")]
    assert [refutation_of(one) for one in made] == [None] * len(made)
    monkeypatch.setattr(scenario.subject, "take", lambda blocks, num: [blocks.free_ids.popleft() for _ in range(num)])
    found = refutation_of(made[0])
    assert found is not None
    text = found.text
    assert text.startswith("DeviceBlocks.take 2 of 2 free: with count_0 = ")
    assert "each has one reference, no other count changes" in text
    assert all(len(number) < 3 for number in re.findall(r"= (\d+)", text)), "small numbers are tried first"


def test_the_classes_as_they_are_are_not_refuted() -> None:
    quick = [one for one in SCENARIOS if one.subject.__name__ == "DeviceBlocks"]
    assert [list(refutations(scenario)) for scenario in quick] == [[]] * len(quick)


def test_what_does_not_show_when_it_is_run_is_not_called_a_refutation() -> None:
    scenario = scenario_named("DeviceBlocks.null_block")
    device = scenario.subject

    class ForgetsOnSymbols(device):  # type: ignore[misc,valid-type]
        """Wrong only where it meets no plain number."""

        def null_block(self) -> Any:
            return super().null_block() if isinstance(self.null_id, int) else 0

    with pytest.raises(NotReplayed):
        list(refutations(scenario, ForgetsOnSymbols))
