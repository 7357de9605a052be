"""Stores whose loads are offers: readers far away hold a lease, and each says when it is done."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from docs.generate.broken import EndsOneLeaseAtATime, SaysThatAllCounts

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.store import StoreConfig
from kvproof.check.search.exhaustive.store import SHORT_SCOPES
from kvproof.check.search.exhaustive.subject import explore
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import STORES
from kvproof.check.subjects.builtin.store import OwnOffers, OwnStore
from kvproof.impl.kv_store.offers import Offer
from kvproof.spec.trace import Operation

TWO = StoreConfig(num_gpu_blocks=2, lease_seconds=1, num_parts=2)
STORED: list[Operation] = [("begin_store", 1, 1, (0,)), ("land", 1), ("report", 1)]
OFFERED: list[Operation] = [*STORED, ("begin_load", 2, 1, (0,))]


class KeepsUntilDone(OwnOffers):
    """It sees its readers, and keeps what they read until they are done, though the lease has run out."""

    capabilities = replace(OwnOffers.capabilities, ends_leases=False, refusal_slack=None)

    def advance(self, seconds: int) -> None:
        self.offers.now += seconds

    def notice(self, transfer: int, part: int) -> bool:
        offer = self.offers.open.get(transfer)
        return super().notice(transfer, part) and offer is not None and self.offers.now < offer.until


class HasReadersBeside(OwnStore):
    """Its loads have several readers, and no lease."""

    capabilities = replace(OwnStore.capabilities, parts=True)

    def open(self, config: StoreConfig) -> None:
        super().open(config)
        self.num_parts = config.num_parts
        self.done: dict[int, set[int]] = {}
        self.held: dict[int, list[int]] = {}

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        self.done[transfer], self.held[transfer] = set(), keys
        return super().begin_load(transfer, request, keys)

    def notice(self, transfer: int, part: int) -> None:
        done = self.done.get(transfer, set())
        if part not in done and transfer in self.done:
            done.add(part)
            if len(done) == self.num_parts:
                super().end_load(transfer, 0, self.held.pop(transfer))
                del self.done[transfer]

    def clear(self) -> None:
        super().clear()
        self.done.clear()


class HasOneReader(OwnOffers):
    """Its loads have one reader each, and end by a report."""

    capabilities = replace(OwnOffers.capabilities, parts=False)

    def end_load(self, transfer: int, request: int, keys: list[int]) -> bool:
        return self.offers.end(transfer)


LAWFUL = [OwnOffers, KeepsUntilDone, HasReadersBeside, HasOneReader]


class TellsNothingOfOneReader(HasOneReader):
    """What was read counts, also after its lease."""

    def end_load(self, transfer: int, request: int, keys: list[int]) -> bool:
        super().end_load(transfer, request, keys)
        return True


class GivesUpTooMuch(OwnOffers):
    """What was read does not count, though the lease is in force."""

    def notice(self, transfer: int, part: int) -> bool:
        super().notice(transfer, part)
        return False


class KeepsWhatIsPartlyRead(OwnOffers):
    """A lease does not end where one reader is done and another is not."""

    def advance(self, seconds: int) -> None:
        kept = {number: offer for number, offer in self.offers.open.items() if offer.done}
        for number in kept:
            del self.offers.open[number]
        super().advance(seconds)
        self.offers.open |= kept


class CountsNotices(OwnOffers):
    """It counts notices, and not readers."""

    def notice(self, transfer: int, part: int) -> bool:
        offer = self.offers.open.get(transfer, Offer([], 0))
        return super().notice(transfer, len(offer.done))


class EndsWithTheFirst(OwnOffers):
    """The first notice ends the load of all readers."""

    def notice(self, transfer: int, part: int) -> bool:
        return self.offers.end(transfer)


class WaitsForOneMore(OwnOffers):
    """It waits for one reader more than there are."""

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        return self.offers.begin(transfer, keys, self.num_parts + 1)


class RaisesOnALateNotice(OwnOffers):
    """A notice of an offer that is over raises."""

    def notice(self, transfer: int, part: int) -> bool:
        assert self.offers.open[transfer]
        return super().notice(transfer, part)


class EndsAnother(OwnOffers):
    """A notice of an offer that is over ends the one that began first."""

    def notice(self, transfer: int, part: int) -> bool:
        if transfer not in self.offers.open and self.offers.open:
            self.offers.end(next(iter(self.offers.open)))
            return False
        return super().notice(transfer, part)


WRONG = [
    (SaysThatAllCounts, "void-told"),
    (TellsNothingOfOneReader, "void-told"),
    (GivesUpTooMuch, "pin-own"),
    (EndsOneLeaseAtATime, "lease-ends"),
    (KeepsWhatIsPartlyRead, "lease-ends"),
    (CountsNotices, "pin-own"),
    (EndsWithTheFirst, "pin-own"),
    (WaitsForOneMore, "pin-own"),
    (RaisesOnALateNotice, "total-calls"),
    (EndsAnother, "pin-own"),
]


@pytest.mark.parametrize("subject", LAWFUL)
def test_a_store_that_ends_its_offers_is_not_refuted(subject: type[OwnStore]) -> None:
    done = walk(STORES, subject(), 1, max_operations=4_000, seconds=60.0)
    assert done.finding is None, (done.finding.text, done.counterexample and done.counterexample.operations)
    expected = ["noticed again"] if subject.capabilities.parts else []
    expected += ["lost its source", "ended after its lease"] if subject.capabilities.remote_loads else []
    assert all(done.coverage[one] for one in expected)


@pytest.mark.parametrize("subject", [OwnOffers, KeepsUntilDone])
def test_it_is_not_refuted_in_a_small_scope(subject: type[OwnStore]) -> None:
    found = explore(STORES, subject(), SHORT_SCOPES["slots"], seconds=5.0, max_transitions=2_000)
    assert found.counterexample is None


@pytest.mark.parametrize(("subject", "property"), WRONG)
def test_a_wrong_neighbour_is_refuted(subject: type[OwnOffers], property: str) -> None:
    found = walk(STORES, subject(), 1, max_operations=20_000, seconds=60.0).finding
    assert found is not None
    assert found.property == property


def judged(subject: Any, *operations: Operation) -> StoreJudge:
    """The judge of a store after these operations, each of which must be possible."""
    judge = StoreJudge(subject, TWO)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


def test_a_reader_keeps_nothing_that_lost_its_source_and_others_may_use_the_slot_before_it_is_done() -> None:
    operations: list[Operation] = [*OFFERED, ("wait", 1), ("begin_store", 3, 1, (1, 2)), ("land", 3), ("report", 3)]
    judge = judged(OwnOffers(), *operations, ("land", 2), ("notice", 2, 0), ("notice", 2, 1), ("notice", 2, 1))
    assert sorted(judge.observed.entries) == [1, 2]
    assert judge.coverage["lost its source"] == judge.coverage["noticed again"] == 1
    with pytest.raises(Finding, match="lost its source"):
        judged(SaysThatAllCounts(), *operations, ("land", 2), ("notice", 2, 0), ("notice", 2, 1))


def test_what_was_read_in_time_may_count_after_the_lease() -> None:
    read = [*OFFERED, ("land", 2), ("wait", 1), ("notice", 2, 0), ("notice", 2, 1)]
    for subject in (OwnOffers(), SaysThatAllCounts()):
        assert judged(subject, *read).explained.state.kind == judged(OwnOffers()).explained.state.kind


def test_a_load_ends_by_notices_and_not_by_a_report() -> None:
    judge = judged(OwnOffers(), *OFFERED, ("land", 2))
    assert not judge.apply(("report", 2))
    assert not judge.apply(("notice", 2, 2))
    assert judge.apply(("notice", 2, 1))


def test_an_answer_that_is_no_truth_value_is_the_adapters_fault() -> None:
    class Silent(OwnOffers):
        def notice(self, transfer: int, part: int) -> None:  # type: ignore[override]
            super().notice(transfer, part)

    with pytest.raises(AdapterError, match="notice"):
        judged(Silent(), *OFFERED, ("land", 2), ("notice", 2, 0), ("notice", 2, 1))


def test_a_reset_withdraws_offers_from_readers_that_are_not_done() -> None:
    judge = judged(OwnOffers(), *OFFERED, ("land", 2), ("notice", 2, 0), ("clear",), *STORED)
    assert Counter(judge.explained.state.kind) == Counter(judged(OwnOffers()).explained.state.kind)
