"""Stores with a tier below them: one that asks it before it takes slots, and one that copies to it what was stored."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.store import Asked, Copied, Staged, StoreConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import STORES
from kvproof.check.subjects.registry import find

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
Store: type[Any] = type(find(f"{EXAMPLES}/forty_line_store.py:Store")())
TWO = StoreConfig(num_gpu_blocks=2)


class Asks(Store):  # type: ignore[misc]
    """It asks the lower tier for the keys that it does not have."""

    capabilities = replace(Store.capabilities, asks_first=True, refusal_slack=None)
    asked: set[int]

    def open(self, config: StoreConfig) -> None:
        super().open(config)
        self.asked = set()

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Asked:
        wanted = [key for key in keys if key not in self.slots and key not in self.asked]
        self.asked.update(wanted)
        return Asked(wanted)

    def begin_asked(self, transfer: int, request: int, keys: list[int]) -> Staged:
        staged = super().begin_store(transfer, request, keys)
        self.asked -= self.asked if not keys else set(keys)
        return staged if isinstance(staged, Staged) else Staged([], [])


class Copies(Store):  # type: ignore[misc]
    """It copies from the device, and then to the lower tier."""

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Any:
        staged = super().begin_store(transfer, request, keys)
        return staged._replace(from_device=True) if isinstance(staged, Staged) else staged

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied:
        super().end_store(transfer, request, stored, failed)
        return Copied(list(stored), super().begin_load(transfer, request, stored))


class AsksForMore(Asks):
    """It asks for a key that nobody wants."""

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Asked:
        return Asked([*super().begin_store(transfer, request, keys).keys, 99])


class TakesMoreThanIsThere(Asks):
    """It takes slots for all that it asked for."""

    def begin_asked(self, transfer: int, request: int, keys: list[int]) -> Staged:
        return super().begin_asked(transfer, request, [*keys, 7])


class CopiesWithoutHolding(Copies):
    """What is copied to the lower tier may be evicted."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied:
        copied = super().end_store(transfer, request, stored, failed)
        self.end_load(transfer, request, stored)
        return copied


class LeavesOneOut(Copies):
    """It declares that all is copied, and leaves out the last key of each store."""

    capabilities = replace(Copies.capabilities, copies_all=True)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied:
        super().end_store(transfer, request, stored, failed)
        self.end_load(transfer, request, stored)
        return Copied(stored[:-1], super().begin_load(transfer, request, stored[:-1]))


class CopiesFromAnotherSlot(Copies):
    """It copies from the slot that follows."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied:
        copied = super().end_store(transfer, request, stored, failed)
        return Copied(copied.keys, [slot + 1 for slot in copied.slots])


class CopiesWhatIsNotThere(Copies):
    """It copies a key that it has not."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> Copied:
        super().end_store(transfer, request, stored, failed)
        return Copied([8], [0])


def judge(store: Callable[[], Any], *operations: tuple[Any, ...]) -> StoreJudge:
    """The judge after these operations, each of which is enabled. Raises Finding."""
    one = StoreJudge(store(), TWO)
    assert [one.apply(operation) for operation in operations] == [True] * len(operations)
    return one


def test_a_store_takes_slots_for_what_the_lower_tier_has() -> None:
    one = judge(Asks, ("begin_store", 1, 1, (0, 1, 2)), ("begin_store", 2, 1, (2, 3)))
    assert (one.answer, one.observed.free, one.moving(), one.landed()) == ("asks for key 3", 2, [1, 2], [])
    assert one.apply(("land", 1, (1,)))
    assert (one.answer, one.observed.free) == ("writes keys 0, 2 to slots 1, 0", 0)
    assert one.apply(("land", 1))
    assert one.apply(("report", 1))
    assert one.apply(("look_up", 1, (0, 1, 2)))
    assert one.answer == "key 0 hit, key 1 miss, key 2 hit"


def test_a_store_whose_lower_tier_has_nothing_is_over() -> None:
    one = judge(Asks, ("begin_store", 1, 1, (0, 1)), ("land", 1, (0, 1)))
    assert (one.transfers, one.answer) == ({}, "has nothing to write")


def test_what_was_asked_for_is_fenced_when_the_store_is_cleared() -> None:
    one = judge(Asks, ("begin_store", 1, 1, (0,)), ("clear",))
    assert (one.transfers, len(one.explained.free_owners)) == ({}, len(judge(Asks).explained.free_owners))


def test_copies_from_the_device_land_and_end_in_order_and_none_fails() -> None:
    one = judge(Copies, ("begin_store", 1, 1, (0,)), ("begin_store", 2, 1, (1,)))
    assert one.moving() == [1]
    assert one.apply(("land", 1, (0,)))
    assert one.apply(("land", 2))
    assert one.landed() == [1]
    assert one.memory == {1: 0, 0: 1}


def test_what_is_copied_to_the_lower_tier_is_held_until_it_has_landed() -> None:
    one = judge(Copies, ("begin_store", 1, 1, (0, 1)), ("land", 1), ("report", 1), ("begin_store", 2, 1, (2,)))
    assert one.answer == "refused"
    assert one.apply(("land", 1))
    assert one.apply(("report", 1))
    assert one.apply(("begin_store", 2, 1, (2,)))
    assert one.answer == "writes key 2 to slot 1, evicted key 0"


@pytest.mark.parametrize("store", [Asks, Copies])
def test_a_store_with_a_lower_tier_is_not_refuted(store: type[Any]) -> None:
    done = walk(STORES, store(), 1, max_operations=1_500, seconds=100)
    assert done.counterexample is None
    assert done.coverage["a lower tier answered"] + done.coverage["copied to a lower tier"] > 50


@pytest.mark.parametrize(
    ("store", "property", "operations"),
    [
        (AsksForMore, "frame-kept", (("begin_store", 1, 1, (0,)),)),
        (TakesMoreThanIsThere, "frame-kept", (("begin_store", 1, 1, (0,)), ("land", 1))),
        (CopiesWithoutHolding, "refcount-exact", (("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1))),
        (CopiesFromAnotherSlot, "arrived-whole", (("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1))),
        (LeavesOneOut, "tiers-agree", (("begin_store", 1, 1, (0, 1)), ("land", 1), ("report", 1))),
        (CopiesWhatIsNotThere, "hit-written", (("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1))),
    ],
)
def test_a_liar_about_its_lower_tier_is_refuted(
    store: type[Any], property: str, operations: tuple[tuple[Any, ...], ...]
) -> None:
    one = judge(store, *operations[:-1])
    with pytest.raises(Finding) as found:
        one.apply(operations[-1])
    assert found.value.property == property


def test_a_store_that_does_not_declare_to_copy_all_may_leave_keys_out_and_one_that_does_may_lose_them_before() -> None:
    undeclared: Any = type("Undeclared", (LeavesOneOut,), {"capabilities": Copies.capabilities})
    judge(undeclared, ("begin_store", 1, 1, (0, 1)), ("land", 1), ("report", 1))
    whole: Any = type("Whole", (Copies,), {"capabilities": LeavesOneOut.capabilities})
    assert walk(STORES, whole(), 1, max_operations=1_500, seconds=100).counterexample is None


def test_a_store_that_does_not_say_so_asks_no_lower_tier() -> None:
    silent: Any = type("Silent", (Asks,), {"capabilities": Store.capabilities})
    with pytest.raises(AdapterError, match="begin_store must return Staged or Refused"):
        judge(silent, ("begin_store", 1, 1, (0,)))
    incomplete: Any = type("Incomplete", (Asks,), {"begin_asked": None})
    with pytest.raises(AdapterError, match="asks a lower tier first, and has no begin_asked"):
        judge(incomplete)


def test_a_copy_of_numbers_that_do_not_fit_is_a_fault_of_the_adapter() -> None:
    wrong: Any = type("Wrong", (Copies,), {"end_store": lambda self, *arguments: Copied([1], [])})
    with pytest.raises(AdapterError, match="one slot for each key"):
        judge(wrong, ("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1))
