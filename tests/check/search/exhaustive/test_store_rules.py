"""Every reachable state of the specification of stores, in small scopes: how many there are, and faults found there."""

from collections.abc import Hashable
from itertools import permutations, product
from typing import Any

import pytest

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.audit.mutation.operators import changed, changed_statement, deletions
from kvproof.check.search.exhaustive.store_rules import StoreRuleSpace, StoreScope, explore_stores
from kvproof.models.translation.text import specification
from kvproof.spec.store.machine import STORES, StoreMachine
from kvproof.spec.store.state import NONE, StoreState

SMALL = StoreScope()
LEASES = StoreScope(leases=True, ends=True, promises=True, drops=True)
MOVES = StoreScope((1, 1), num_pins=2, moves=True)
PROMISES = StoreScope(promises=True)
PARTS = StoreScope(ends=True, parts=2)
FROM_NOTHING = StoreScope((2,), is_built=False)


@pytest.mark.parametrize(
    ("scope", "counts"),
    [
        (SMALL, (25, 53, 10)),
        (LEASES, (246, 962, 13)),
        (MOVES, (348, 1281, 16)),
        (FROM_NOTHING, (278, 870, 15)),
        (StoreScope((1, 1), num_keys=2, num_pins=2, loads=False, moves=True, ranges=True), (3475, 13584, 30)),
        (StoreScope((1, 1), num_pins=2, leases=True, loads=False, moves=True), (1688, 7735, 18)),
        (PARTS, (200, 778, 13)),
    ],
    ids=["small", "leases", "moves", "from-nothing", "ranges", "void", "parts"],
)
def test_every_state_of_a_small_scope_satisfies_every_claim(scope: StoreScope, counts: tuple[int, int, int]) -> None:
    found = explore_stores(scope)
    assert (found.counterexample, found.is_exhausted) == (None, True)
    assert (found.num_states, found.num_operations, found.depth) == counts


class EveryOrder(StoreRuleSpace):
    """The same search with another key, which permutes everything and sorts nothing."""

    def state_key(self, state: StoreState) -> Hashable:
        """The least of all renamings of blocks, pins, owners and transfers."""
        tidied(state)
        sizes = [len(one) for one in (state.tier, state.kind, state.live, state.phase)]
        orders = product(*(permutations(range(size)) for size in sizes))
        return min(_renamed(state, dict(zip(("Block", "Pin", "Owner", "Flight"), one, strict=True))) for one in orders)


def _renamed(state: StoreState, orders: dict[str, tuple[int, ...]]) -> tuple[Any, ...]:
    return tuple(
        _field(getattr(state, name), [domain.name for domain in field.domains], field.to.name, orders)
        for name, field in STORES.fields.items()
        if field.kind == "real"
    )


def _field(value: Any, domains: list[str], to: str, orders: dict[str, tuple[int, ...]]) -> Any:
    if not domains:
        return orders[to].index(value) if to in orders and value in orders[to] else value
    order = orders.get(domains[0], range(len(value)))
    return tuple(_field(value[place], domains[1:], to, orders) for place in order)


def tidied(state: StoreState) -> None:
    """Forget the fields of pins that have ended."""
    for pin, kind in enumerate(state.kind):
        if kind == NONE:
            state.pinned[pin] = state.owner[pin] = state.until[pin] = NONE


@pytest.mark.parametrize("scope", [MOVES, PARTS, StoreScope((2,), num_pins=2, num_owners=2)])
def test_another_key_gives_as_many_states(scope: StoreScope) -> None:
    found = explore_stores(scope)
    other = explore_stores(scope, space=EveryOrder(scope))
    assert (other.num_states, other.num_operations) == (found.num_states, found.num_operations)


def test_a_fault_is_found_by_the_shortest_run() -> None:
    text = text_with(specification(STORES), Edit("commit", "is_written(state, block)", "True"))
    found = explore_stores(SMALL, space=StoreRuleSpace(SMALL, StoreMachine(SMALL.sizes, text=text.functions)))
    assert found.counterexample is not None
    assert found.counterexample.finding.property == "hit-written"
    assert [operation[0] for operation in found.counterexample.operations] == ["begin_store", "commit"]


def test_a_rule_that_leads_to_another_state_is_noticed_though_as_many_are_reached() -> None:
    fault = next(one for one in deletions("store") if one.id == "store/redeem: state.kind[pin] = READ -> nothing")
    function = changed(fault)
    text = specification(STORES).replaced("redeem", function).functions
    spaces = [StoreRuleSpace(PROMISES), StoreRuleSpace(PROMISES, StoreMachine(PROMISES.sizes, text=text))]
    found = [explore_stores(PROMISES, space=space) for space in spaces]
    assert found[0].num_operations == found[1].num_operations
    assert spaces[0].edges != spaces[1].edges


def test_faults_of_stores_have_the_name_of_their_specification_in_front() -> None:
    ids = [one.id for one in deletions("store")]
    assert len(ids) == len(set(ids)) > 150
    assert all(one.startswith("store/") for one in ids)
    assert changed_statement("evict", "x", suite="store").row == "store/evict"
