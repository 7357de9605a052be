"""The code that runs refines the rules for all sizes; faulty code does not, and an instance shows where."""

from collections.abc import Iterator

import pytest
import z3

from kvproof.audit.faults.planting import faulty
from kvproof.impl.cached_blocks import CachedBlocks
from kvproof.impl.device_blocks import DeviceBlocks
from kvproof.impl.errors import NoFreeBlocksError
from kvproof.impl.growth import Growth
from kvproof.impl.table import Table
from kvproof.impl.vllm_api.refcount import CopyOnWriteTracker, RefCounter
from kvproof.models import refinement
from kvproof.models.refinement.abstraction import Code
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import NEXT, NO_STATE, Path, Simulation, explore, obligations
from kvproof.models.translation.translator import Translator
from kvproof.spec.sizes import Sizes

INSTANCE = Sizes(num_gpu_blocks=3, num_host_blocks=1, block_size=2, num_seqs=2, num_indexes=3)

# How each call can end in some state; every other path is one that no state takes.
ENDINGS = {
    "DeviceBlocks.take_one refines gain of a free block": {"returns", "raises NoFreeBlocksError"},
    "DeviceBlocks.share refines gain of a block in use": {"returns", NEXT},
    "DeviceBlocks.release refines lose": {"returns", NEXT},
    "DeviceBlocks.require_held refines the guard of lose": {
        "returns",
        "raises UnknownBlockError",
        "raises DoubleFreeError",
    },
    "CopyOnWriteTracker.is_appendable refines a guard of append": {"returns"},
    "DeviceBlocks.num_free refines unused_in": {"returns"},
    "RefCounter.incr refines the count of gain": {"returns", "raises UnknownBlockError"},
    "RefCounter.decr refines the count of lose": {"returns", "raises UnknownBlockError", "raises DoubleFreeError"},
    "the entry that num_tokens names": {"returns"},
    "Growth.append_within_block refines append": {"returns", "raises NoFreeBlocksError"},
    "Growth.append_within_block refines reserve": {"returns", "raises NoFreeBlocksError"},
    "Table.held_ids is what the table holds": {"returns"},
    "Table.fork refines fork": {"returns"},
    "DeviceBlocks.share of a table, entry by entry": {"returns", NEXT},
    "DeviceBlocks.share of a table refines fork": {"returns"},
    "CachedBlocks.pin refines gain of a block that is found": {"returns"},
    "CachedBlocks.num_free refines unused_in": {"returns"},
    "Growth.append_within_block refines append, with a prefix cache": {"returns"},
    "DeviceBlocks.take refines as many times gain of a free block": {"returns", NEXT, "raises NoFreeBlocksError"},
    "DeviceBlocks.take, block by block": {"returns"},
    "DeviceBlocks.null_block refines set_aside, once": {"returns", "raises NoFreeBlocksError"},
    "the list of reserved blocks": {"returns"},
    "DeviceBlocks.num_usable is what the pool has": {"returns"},
    "DeviceBlocks.is_idle is what the pool has": {"returns"},
    "DeviceBlocks.all_free_ids is what the pool has": {"returns"},
    "CachedBlocks.record_access of any number of blocks": {"returns", NEXT},
    "CachedBlocks.register_new of any number of blocks": {"returns", NEXT},
    "BlockManager.free refines the end of a sequence on the GPU": {"returns", NEXT},
    "BlockManager.free refines the end of a sequence on the host": {"returns", NEXT},
    "BlockManager.free, entry by entry": {"returns"},
    "BlockManager.fork refines fork of a table on the GPU": {"returns", NEXT, "raises DuplicateSequenceError"},
    "BlockManager.fork refines fork of a table on the host": {"returns", NEXT, "raises DuplicateSequenceError"},
}

# The role of a class, the class, the text of it that is replaced once, by what, and what then disagrees.
MUTANTS: list[tuple[str, type, str, str, str]] = [
    ("device", DeviceBlocks, "        self.refcounts[block_id] = 1\n", "", "refcounts are those of the rule"),
    (
        "device",
        DeviceBlocks,
        "        block_id = self.free_ids.popleft()\n        self",
        "        block_id = 0\n        self",
        "as many blocks are free",
    ),
    ("device", DeviceBlocks, "if not self.free_ids:", "if False:", "no state leads here"),
    ("device", DeviceBlocks, "refcounts[block_id] += 1", "refcounts[block_id] += 2", "refcounts are those of the rule"),
    ("device", DeviceBlocks, "if not left:", "if left <= 1:", "as many blocks are free"),
    ("device", DeviceBlocks, "            refcounts[block_id] = left\n", "", "refcounts are those of the rule"),
    (
        "device",
        DeviceBlocks,
        "if not self.refcounts[block_id]:",
        "if self.refcounts[block_id] < 2:",
        "no table names the block",
    ),
    (
        "device",
        DeviceBlocks,
        "        return len(self.free_ids)\n",
        "        return len(self.free_ids) + 1\n",
        "counts what the rules can take",
    ),
    ("device", DeviceBlocks, "refcounts[block_id] += 1", "refcounts[block_id] = 2", "refcounts are those of the rule"),
    (
        "device",
        DeviceBlocks,
        "refcounts[block_id] += 1",
        "refcounts[block_id] += 1\n            self.num_kept += 1",
        "nothing else has changed",
    ),
    (
        "device",
        DeviceBlocks,
        "if not self.free_ids:",
        "if len(self.free_ids) <= self.num_kept:",
        "no block of the pool is free",
    ),
    (
        "device",
        DeviceBlocks,
        "            if not left:",
        "            self.null_id = block_id\n            if not left:",
        "nothing else has changed",
    ),
    ("device", DeviceBlocks, "free_ids.appendleft(block_id)", "free_ids.append(block_id)", "no state leads here"),
    ("device", DeviceBlocks, "or block_id == self.null_id", "", "not the null block"),
    ("counter", RefCounter, "if count == 0:", "if count == 1:", "there is no such reference"),
    (
        "counter",
        RefCounter,
        "        if count == 0:\n            raise DoubleFreeError(block_id)\n",
        "",
        "there is such a reference",
    ),
    ("counter", RefCounter, "        self._counts[block_id] = count - 1\n", "", "that count changes, and no other"),
    ("counter", RefCounter, "if block_id not in self._ids:", "if block_id > 3:", "no state leads here"),
    ("counter", RefCounter, "self.get(block_id) + 1", "self.get(block_id) + 2", "the new count is given"),
    ("tracker", CopyOnWriteTracker, "<= 1", "<= 2", "the guard of append"),
    ("growth", Growth, "            if refcount > 1:", "            if refcount > 2:", "a shared block is replaced"),
    (
        "growth",
        Growth,
        "                blocks.refcounts[source] = refcount - 1\n",
        "",
        "refcounts are those of the rule",
    ),
    (
        "growth",
        Growth,
        "pairs.append((source, target))\n                if",
        "pairs.append((target, source))\n                if",
        "from the shared block to the new one",
    ),
    (
        "growth",
        Growth,
        "pairs.append((source, target))\n                if",
        "pairs += [(source, target)] * 2\n                if",
        "a copy is asked for exactly if the rule copies",
    ),
    ("growth", Growth, "if not seen < end <= num_slots:", "if not seen < end:", "the tokens fit"),
    (
        "growth",
        Growth,
        "table.num_tokens, table.writable_slots = known, num_slots",
        "table.num_tokens, table.writable_slots = end, num_slots",
        "as many tokens have slots",
    ),
    (
        "growth",
        Growth,
        "table.num_tokens, table.writable_slots = known, num_slots",
        "table.num_tokens, table.writable_slots = known, num_slots + size",
        "may write unseen",
    ),
    (
        "growth",
        Growth,
        "            ids.append(blocks.take_one())\n        else",
        "            blocks.take_one()\n        else",
        "the table is as long",
    ),
    (
        "table",
        Table,
        "        child.num_dropped = self.num_dropped\n",
        "",
        "the sliding window has left the same entries",
    ),
    (
        "table",
        Table,
        "Table(self.ids.copy(), self.num_tokens)",
        "Table(self.ids, self.num_tokens)",
        "the parent's table is its own",
    ),
    ("table", Table, "        self.writable_slots = 0\n        child", "        child", "neither writes unseen"),
    ("table", Table, "self.ids[self.num_dropped :]", "self.ids[self.num_dropped - 1 :]", "as many as the table names"),
    (
        "cached",
        CachedBlocks,
        "            self.evictor.remove(block_id)\n",
        "            pass\n",
        "the evictor has exactly the evictable blocks",
    ),
    ("cached", CachedBlocks, "if not refcount:", "if refcount:", "no state leads here"),
    ("cached", CachedBlocks, "= refcount + 1", "= 1", "refcounts are those of the rule"),
    ("cached", CachedBlocks, " + self.evictor.num_blocks", "", "counts what the rules can take"),
]


def disagreements(simulation: Simulation, text: str = "") -> Iterator[str]:
    """The sentences that are false for some values of the instance; only those that contain `text`."""
    solver = z3.Solver()
    solver.add(*(one.formula for one in simulation.hypotheses))
    for path in explore(simulation):
        for sentence, _, formula in path.agreements:
            if text in sentence and solver.check(path.condition, z3.Not(formula)) == z3.sat:
                yield sentence


def test_every_function_has_obligations_with_a_name_and_a_place() -> None:
    """`tests/models/proofs` proves them for all sizes."""
    made = list(refinement.obligations())
    assert len({obligation.id for obligation in made}) == len(made) > 100
    assert {obligation.id.split("/")[1] for obligation in made} == set(ENDINGS)
    assert all(obligation.place.startswith("impl/") for obligation in made)


# What these are given has any length, and what is known of it is known of every number: an instance knows it of some.
OF_ANY_LENGTH = {
    "DeviceBlocks.take refines as many times gain of a free block",
    "CachedBlocks.record_access of any number of blocks",
    "CachedBlocks.register_new of any number of blocks",
}


@pytest.fixture(scope="module")
def instance() -> list[Simulation]:
    return list(refinement.simulations(Setting(Translator(INSTANCE))))


def is_taken(path: Path, solver: z3.Solver) -> bool:
    """Whether a state takes a path, as far as the claim that none does relies on what is true of a loop."""
    relied_on = [z3.Not(formula) for sentence, _, formula in path.agreements if sentence.startswith(NO_STATE)]
    return solver.check(path.condition, *relied_on) == z3.sat


def test_each_call_ends_in_every_way_it_can_for_some_state_and_in_no_other(instance: list[Simulation]) -> None:
    found: dict[str, set[str]] = {}
    for simulation in instance:
        solver = z3.Solver()
        solver.add(*(one.formula for one in simulation.hypotheses))
        for path in explore(simulation):
            if is_taken(path, solver):
                found.setdefault(simulation.subject, set()).add(path.ending)
    assert found.keys() == ENDINGS.keys()
    assert {name: found[name] for name in ENDINGS if name not in OF_ANY_LENGTH} == {
        name: endings for name, endings in ENDINGS.items() if name not in OF_ANY_LENGTH
    }
    assert all(ENDINGS[name] <= found[name] for name in OF_ANY_LENGTH)


def test_in_an_instance_nothing_disagrees(instance: list[Simulation]) -> None:
    within = [one for one in instance if one.subject not in OF_ANY_LENGTH]
    assert len(instance) - len(within) == len(OF_ANY_LENGTH)
    assert [one for simulation in within for one in disagreements(simulation)] == []


@pytest.mark.parametrize(
    ("role", "original", "old", "new", "sentence"), MUTANTS, ids=[f"{m[0]}-{i}" for i, m in enumerate(MUTANTS)]
)
def test_faulty_code_disagrees_with_its_rule_for_some_values(
    role: str, original: type, old: str, new: str, sentence: str
) -> None:
    code = Code(**{role: faulty(original, old, new)})
    for simulation in refinement.simulations(Setting(Translator(INSTANCE), code)):
        if original.__name__ in simulation.subject and any(disagreements(simulation, sentence)):
            break
    else:
        pytest.fail(f"{sentence!r} does not break")


def test_a_pool_without_a_free_block_is_refused_by_the_error_the_manager_knows() -> None:
    simulation = next(one for one in refinement.simulations() if "take_one" in one.subject)
    assert simulation.raises == (NoFreeBlocksError,)
    claims = [one.claim for one in obligations(simulation)]
    assert "raises NoFreeBlocksError: no block of the pool is free" in claims
