"""Every path is repeated with plain numbers, and does there what its terms say."""

from typing import Any

import pytest
import z3

from kvproof.models import refinement
from kvproof.models.concolic.exploration import GaveUp
from kvproof.models.concolic.refusal import NoProof
from kvproof.models.concolic.scenario import Scenario
from kvproof.models.concolic.symbolic import SymbolicInt
from kvproof.models.refinement.replay import StrictList, is_same
from kvproof.models.refinement.simulation import NO_STATE, Path, Simulation, explore
from kvproof.models.refinement.unbounded import Cells, Ring
from kvproof.models.suites import units_of

# No number takes these: a block has a slot; and what is about the relation alone calls nothing.
WITHOUT_NUMBERS = {
    "the entry that num_tokens names: returns",
    "DeviceBlocks.share of a table refines fork: returns",
    "DeviceBlocks.take, block by block: returns",
    "the list of reserved blocks: returns",
    "BlockManager.free, entry by entry: returns",
    # No state leads there.
    "BlockManager.free refines the end of a sequence on the GPU: raises IndexError",
    "BlockManager.free refines the end of a sequence on the host: raises IndexError",
    "BlockManager.fork refines fork of a table on the GPU: raises IndexError",
    "BlockManager.fork refines fork of a table on the host: raises IndexError",
    "DeviceBlocks.null_block refines set_aside, once: raises IndexError",
    "Growth.append_within_block refines append: raises ArithmeticError",
    "Growth.append_within_block refines reserve: raises ArithmeticError",
    "Growth.append_within_block refines append, with a prefix cache: raises ArithmeticError",
}


@pytest.fixture(scope="module")
def simulations() -> list[Simulation]:
    return list(refinement.simulations())


def paths(simulations: list[Simulation], part: str) -> list[tuple[str, Path]]:
    return [(one.subject, path) for one in simulations if part in one.subject for path in explore(one)]


def test_each_path_that_numbers_take_is_replayed(simulations: list[Simulation]) -> None:
    found = paths(simulations, "")
    assert len(found) > 70
    whole = [(name, one) for name, one in found if not one.is_within]
    assert {f"{name}: {one.ending}" for name, one in whole if not one.is_replayed} == WITHOUT_NUMBERS
    assert {name for name, one in whole if one.is_replayed} >= {name for name, one in found if one.is_within}
    assert not [one.ending for _, one in found if "plain" in one.ending or "refused" in one.ending]


@pytest.mark.parametrize(
    ("said", "computed", "same"),
    [(1, 1, True), (1, True, False), (True, True, True), (True, 1, False), (1, 2, False), (3, 3.0, True)],
)
def test_a_truth_value_is_no_count(said: Any, computed: Any, same: bool) -> None:
    """`refcounts[block] = True` is no count, though it equals 1. Times of a use are numbers with a decimal point."""
    assert is_same(said, computed) is same


@pytest.mark.parametrize(
    ("kind", "name", "fault", "part", "what"),
    [
        (Cells, "append", lambda cells, value: None, "refines append", "Table.ids"),
        (Cells, "copy", lambda cells: cells, "Table.fork", "it returns"),
        (Ring, "appendleft", lambda ring, value: None, "refines lose", "DeviceBlocks.free_ids"),
        (SymbolicInt, "__sub__", lambda one, other: one, "refines lose", "DeviceBlocks.refcounts"),
    ],
)
def test_a_symbolic_value_that_computes_otherwise_is_noticed(
    kind: type,
    name: str,
    fault: Any,
    part: str,
    what: str,
    simulations: list[Simulation],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kind, name, fault)
    different = [one for _, one in paths(simulations, part) if "with plain numbers it does not: " in one.ending]
    assert bool(different) == bool(what)
    for one in different:
        assert [(sentence, z3.is_false(goal)) for sentence, _, goal in one.agreements] == [(NO_STATE, True)]
    assert any(what in one.ending.partition("does not: ")[2] for one in different)


def test_a_list_of_a_replay_does_not_count_from_its_end() -> None:
    items = StrictList([3, 4, 5])
    assert (items[0], items[1:], items[3:]) == (3, [4, 5], [])
    for index in (-1, slice(-1, None), slice(4, None)):
        with pytest.raises(IndexError):
            items[index]
    with pytest.raises(IndexError):
        items[-1] = 2


def test_a_proof_that_comes_to_no_end_is_an_ordinary_error_outside_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(one: Scenario) -> list[Any]:
        raise GaveUp("the solver does not decide it")

    monkeypatch.setattr("kvproof.models.concolic.scenario.obligations", make)
    unit = next(iter(units_of("concolic")))
    with pytest.raises(NoProof, match=f"concolic/{unit.name}: the solver does not decide it"):
        unit.obligations()
