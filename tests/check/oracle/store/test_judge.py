"""The store level: the store of the examples is not refuted, and each liar is, under the property that it breaks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kvproof.check.oracle.level import STORE, level_of
from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import HIT, PENDING, Staged, StoreConfig, StoreObservation
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.random_walk import walk
from kvproof.check.search.shrinking import shrink
from kvproof.check.search.strategies import STORES
from kvproof.check.subjects.registry import find

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
Broken: type[Any] = type(find(f"{EXAMPLES}/forty_line_store_broken.py:Store")())
Store: type[Any] = Broken.__bases__[0]
STORED = [("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1)]


class EvictsWhatIsRead(Store):  # type: ignore[misc]
    """A key that a load holds is evicted like any other."""

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        held = {key: loads for key, loads in self.loads.items() if loads > 0 and key not in keys}
        self.loads.update(dict.fromkeys(held, 0))
        staged = super().begin_store(transfer, request, keys)
        self.loads.update({key: loads for key, loads in held.items() if key in self.loads})
        return cast(Staged | Refused, staged)


class HitsWhatIsWritten(Store):  # type: ignore[misc]
    """A staged key is a hit."""

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        return [HIT if answer == PENDING else answer for answer in super().look_up(request, keys)]


class EndsForAnotherWriter(Store):  # type: ignore[misc]
    """When one store ends, every key that is still written becomes readable."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        super().end_store(transfer, request, stored, failed)
        self.loads.update({key: max(0, loads) for key, loads in self.loads.items()})


class LeaksWhatFailed(Store):  # type: ignore[misc]
    """The slot of a store that failed is not given back."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        super().end_store(transfer, request, stored, failed)
        self.free[:] = [slot for slot in self.free if not failed or slot != self.free[-1]]


class KeepsWhatFailed(Store):  # type: ignore[misc]
    """A store that failed is found."""

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        super().end_store(transfer, request, stored + failed, [])


class EndsTheLoadsOfOthers(Store):  # type: ignore[misc]
    """The first load that ends ends the other loads of its keys too."""

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        self.loads.update(dict.fromkeys(keys, 0))


class RefusesEarly(Store):  # type: ignore[misc]
    """It refuses instead of evicting."""

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        new = [key for key in keys if key not in self.slots]
        return Refused() if len(new) > len(self.free) else cast(Staged, super().begin_store(transfer, request, keys))


class GivesASlotTwice(Store):  # type: ignore[misc]
    """A slot of an evicted key is given to two keys."""

    def drop(self, key: int) -> None:
        self.free.append(self.slots[key])
        super().drop(key)


class EvictsWhileItRefuses(Store):  # type: ignore[misc]
    """A refused store has evicted already."""

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        staged = super().begin_store(transfer, request, keys)
        if isinstance(staged, Refused):
            for key in [key for key, loads in self.loads.items() if loads == 0][:1]:
                self.drop(key)
        return cast(Staged | Refused, staged)


class AnswersAnotherSlot(Store):  # type: ignore[misc]
    """The slots of a load are in another order."""

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        return sorted(super().begin_load(transfer, request, keys))


class LosesWhatIsTouched(Store):  # type: ignore[misc]
    """A key that is touched, and that nobody reads, is gone."""

    def touch(self, request: int, keys: list[int]) -> None:
        for key in [key for key in keys if self.loads.get(key) == 0]:
            self.drop(key)


class Leases(Store):  # type: ignore[misc]
    """What a transfer holds is given up when its lease is over."""

    capabilities = replace(Store.capabilities, leases=True)

    def open(self, config: StoreConfig) -> None:
        super().open(config)
        self.now, self.seconds = 0, config.lease_seconds
        self.held: dict[int, tuple[int, bool, list[int]]] = {}

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        self.held[transfer] = (self.now + self.seconds, True, keys)
        return cast(list[int], super().begin_load(transfer, request, keys))

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        staged: Staged | Refused = super().begin_store(transfer, request, keys)
        if isinstance(staged, Staged):
            self.held[transfer] = (self.now + self.seconds, False, staged.keys)
        return staged

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        if self.held.pop(transfer, None):
            super().end_load(transfer, request, keys)

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        if self.held.pop(transfer, None):
            super().end_store(transfer, request, stored, failed)

    def advance(self, seconds: int) -> None:
        self.now += seconds
        for transfer in [one for one, (until, _, _) in self.held.items() if until <= self.now]:
            _, is_load, keys = self.held.pop(transfer)
            super().end_load(transfer, 0, keys) if is_load else self.give_up(keys)

    def give_up(self, keys: list[int]) -> None:
        """A lease of a writer is over."""
        for key in keys:
            self.drop(key)

    def clear(self) -> None:
        self.held.clear()
        super().clear()


class ReadsWhatNobodyWrote(Leases):
    """When the lease of a writer is over, what it did not write is a hit, as in LMCache's issue 4967."""

    def give_up(self, keys: list[int]) -> None:
        self.loads.update(dict.fromkeys(keys, 0))


class EndsTwice(Leases):
    """A load that ends after its lease takes the count of another."""

    def end_load(self, transfer: int, request: int, keys: list[int]) -> None:
        if not self.held.pop(transfer, None):
            keys = [key for key in keys if self.loads.get(key, 0) > 0]
        Store.end_load(self, transfer, request, keys)


class EvictsOnCall(Leases):
    """It evicts those keys that its caller names and nobody holds. It counts a load until its end is reported."""

    capabilities = replace(Leases.capabilities, evicts_on_call=True)

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        new = [key for key in keys if key not in self.slots]
        return Refused() if len(new) > len(self.free) else super().begin_store(transfer, request, keys)

    def advance(self, seconds: int) -> None:
        self.now += seconds
        for transfer, (until, is_load, keys) in list(self.held.items()):
            if until <= self.now and not is_load:
                del self.held[transfer]
                self.give_up(keys)

    def evict(self, keys: list[int]) -> list[int]:
        evicted = [key for key in keys if self.loads.get(key) == 0]
        for key in evicted:
            self.drop(key)
        return evicted


class EvictsWhatIsNamed(EvictsOnCall):
    """It evicts every key that is there, also one that is read or written."""

    def evict(self, keys: list[int]) -> list[int]:
        evicted = [key for key in keys if key in self.loads]
        for key in evicted:
            self.drop(key)
        return evicted


class EvictsNothing(EvictsOnCall):
    """It evicts no key."""

    def evict(self, keys: list[int]) -> list[int]:
        return []


class TakesWhatFits(Store):  # type: ignore[misc]
    """A store that finds too few slots takes the first of its keys."""

    capabilities = replace(Store.capabilities, refusal_slack=None, stores_what_fits=True)
    num_left = 0  # slots that could be had, and are not taken when a store does not fit

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        num_evictable = sum(loads == 0 and key not in keys for key, loads in self.loads.items())
        new = [key for key in keys if key not in self.slots]
        room = len(self.free) + num_evictable
        left = set(new[max(0, room - self.num_left) :]) if len(new) > room else set()
        staged = super().begin_store(transfer, request, [key for key in keys if key not in left])
        return cast(Staged | Refused, staged)


class TakesLessThanFits(TakesWhatFits):
    """It leaves out one key too many."""

    num_left = 1


class Hides(Store):  # type: ignore[misc]
    """It shows no counts and no free list; it misses every key, and does not say which keys it evicts."""

    def observe(self) -> StoreObservation:
        return cast(StoreObservation, super().observe()._replace(refs=None, free_ids=None))

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        staged = super().begin_store(transfer, request, keys)
        return staged._replace(evicted=None) if isinstance(staged, Staged) else staged


class HidesAndEvictsItsOwn(Hides, Broken):  # type: ignore[misc]
    """The same, over the broken store."""


LIARS = [
    (Broken, {"evict-unreferenced"}),
    (EvictsWhatIsRead, {"evict-unreferenced"}),
    (HitsWhatIsWritten, {"hit-written"}),
    (EndsForAnotherWriter, {"hit-written"}),
    (LeaksWhatFailed, {"abort-unseen"}),
    (KeepsWhatFailed, {"abort-unseen"}),
    (EndsTheLoadsOfOthers, {"pin-own"}),
    (RefusesEarly, {"refusal-needed"}),
    (GivesASlotTwice, {"no-double-free", "no-use-after-free", "conservation", "abort-unseen"}),
    (EvictsWhileItRefuses, {"failed-call-changes-nothing"}),
    (AnswersAnotherSlot, {"arrived-whole"}),
    (LosesWhatIsTouched, {"frame-kept", "conservation"}),
    (HidesAndEvictsItsOwn, {"evict-unreferenced"}),
    (ReadsWhatNobodyWrote, {"hit-written"}),
    (EndsTwice, {"pin-own"}),
    (EvictsWhatIsNamed, {"evict-unreferenced", "one-writer"}),
    (EvictsNothing, {"refusal-needed"}),
    (TakesLessThanFits, {"refusal-needed"}),
]


@pytest.mark.parametrize(("liar", "properties"), LIARS, ids=lambda one: getattr(one, "__name__", ""))
def test_each_liar_is_refuted_in_a_short_run(liar: Callable[[], Any], properties: set[str]) -> None:
    done = walk(STORES, liar(), 2, max_operations=20_000, seconds=100, fixed={"num_gpu_blocks": 3})
    assert done.counterexample is not None
    found = shrink(liar(), done.counterexample, 5)
    assert found.finding.property in properties
    assert len(found.operations) <= 9


@pytest.mark.parametrize(
    "kind", [Store, Leases, EvictsOnCall, TakesWhatFits], ids=["plain", "with leases", "on call", "in part"]
)
def test_a_correct_store_is_not_refuted_and_every_witness_is_reached(kind: type[Any]) -> None:
    done = walk(STORES, kind(), 1, max_operations=5_000, seconds=100)
    assert done.counterexample is None
    expected = STORE.expected_witnesses(kind.capabilities)
    assert {name for name, is_expected in expected.items() if is_expected and not done.coverage[name]} == set()


def test_a_small_scope_is_searched_to_its_end() -> None:
    scope = STORES.exhaustive.short["slots"]
    done = explore(STORES, Store(), scope, seconds=100)
    assert (done.counterexample, done.is_exhausted) == (None, True)
    found = explore(STORES, Broken(), scope, seconds=100).counterexample
    assert found is not None
    assert (found.finding.property, len(found.operations)) == ("evict-unreferenced", 4)


def test_a_large_store_is_compared_at_intervals() -> None:
    done = walk(STORES, Store(), 3, max_operations=600, seconds=100, fixed={"num_gpu_blocks": 300})
    assert (done.counterexample, done.coverage["commit"] > 300) == (None, True)
    found = walk(STORES, LosesWhatIsTouched(), 3, max_operations=5_000, seconds=100, fixed={"num_gpu_blocks": 300})
    assert found.counterexample is not None
    assert found.counterexample.operations[-1][0] == "touch"


def judge(config: StoreConfig, *operations: tuple[Any, ...]) -> StoreJudge:
    one = StoreJudge(Store(), config)
    assert [one.apply(operation) for operation in operations] == [True] * len(operations)
    return one


def test_an_operation_that_is_not_enabled_is_skipped() -> None:
    one = judge(StoreConfig(num_gpu_blocks=2), *STORED, ("begin_store", 2, 1, (1,)))
    before = one.subject.observe()
    for operation in (
        ("begin_load", 3, 1, (1,)),  # staged
        ("begin_load", 3, 1, (7,)),  # absent
        ("begin_load", 2, 1, (0,)),  # the number is in use
        ("begin_store", 3, 1, (4, 4)),
        ("report", 2),  # has not landed
        ("land", 1),
        ("finish", 9),
        ("wait", 1),  # no leases
    ):
        assert not one.apply(operation), operation
    assert one.subject.observe() == before


def test_a_store_with_nothing_to_write_is_over_at_once() -> None:
    one = judge(StoreConfig(num_gpu_blocks=2), *STORED, ("begin_store", 1, 1, (0,)))
    assert (one.transfers, one.answer) == ({}, "has nothing to write")


def test_bytes_that_were_overwritten_are_found_when_the_load_lands() -> None:
    one = judge(StoreConfig(num_gpu_blocks=2), *STORED, ("begin_load", 1, 1, (0,)))
    one.memory[one.transfers[1].slots[0]] = 5
    with pytest.raises(Finding, match="has the content of key 5") as found:
        one.apply(("land", 1))
    assert found.value.property == "arrived-whole"


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (("look_up", 1, (0,)), ["perhaps"]),
        (("look_up", 1, (0,)), []),
        (("begin_store", 1, 1, (0,)), Staged([1], [])),
        (("begin_store", 1, 1, (0,)), Staged([], [], ())),  # type: ignore[arg-type]
        (("begin_store", 1, 1, (0,)), [1]),
    ],
)
def test_a_wrong_answer_is_a_fault_of_the_adapter(operation: tuple[Any, ...], answer: Any) -> None:
    wrong: Any = type("Wrong", (Store,), {operation[0]: lambda self, *arguments: answer})
    one = StoreJudge(wrong(), StoreConfig(num_gpu_blocks=1))
    with pytest.raises(AdapterError, match=operation[0]):
        one.apply(operation)


def test_a_wrong_observation_is_a_fault_of_the_adapter() -> None:
    wrong: Any = type("Wrong", (Store,), {"observe": lambda self: StoreObservation({0: "a"}, 1)})  # type: ignore[dict-item]
    with pytest.raises(AdapterError, match="entries must be a dict of ints"):
        StoreJudge(wrong(), StoreConfig(num_gpu_blocks=1))


def test_a_store_is_recognised_by_its_calls() -> None:
    assert level_of(Store()) is STORE
