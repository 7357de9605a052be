"""The judge of stores, and what searches and reports read of it.

They draw a frame of a store: one lane for the entries of the store, and one for each transfer, as an arrow between
tiers.
"""

from collections.abc import Iterator

from kvproof.check.oracle.enabled import RuledJudge, observation_checked
from kvproof.check.oracle.store.ending import EndJudge
from kvproof.check.oracle.store.looking_up import LoadingJudge, LookUpJudge
from kvproof.check.oracle.store.oracle import StoreOracle
from kvproof.check.oracle.store.rules import TIER
from kvproof.check.oracle.store.storing import StoringJudge
from kvproof.check.oracle.store.transfer import Transfer
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.store import StoreConfig, StoreObservation, StoreOperation, StoreSubject
from kvproof.reports.frames import Block, EntryFrame, Lane, Move, PoolFrame, StepFrame
from kvproof.spec.store.state import EVICTABLE, FREE, HELD, RESERVED

NAME = "store"
LISTS = {FREE: "free", RESERVED: "reserved", HELD: "used", EVICTABLE: "evictable"}
NUM_SLOTS_SHOWN = 64  # of a larger store, only those with an entry


class StoreJudge(RuledJudge):
    """One opened store in lockstep with the specification."""

    kinds = StoreOperation.kinds()
    config: StoreConfig

    def __init__(self, subject: StoreSubject, config: StoreConfig, identities: object = None) -> None:
        self.store = store = StoreOracle(subject, config)
        self.subject, self.config, self.capabilities = subject, config, store.capabilities
        self.coverage, self.notes, self.explained = store.coverage, store.notes, store.explained
        self.requests, self.transfers, self.recency, self.memory = (
            store.requests,
            store.transfers,
            store.recency,
            store.memory,
        )
        self.moving, self.landed, self.loadable = store.moving, store.landed, store.loadable
        storing = StoringJudge(store)
        super().__init__(store.reply, LookUpJudge(store), storing, LoadingJudge(store), EndJudge(store, storing))

    @property
    def observed(self) -> StoreObservation:
        """What the store showed last."""
        return self.store.observed

    @property
    def is_sparse(self) -> bool:
        """Whether only the count of free slots is compared after a call."""
        return self.store.is_sparse

    @is_sparse.setter
    def is_sparse(self, is_sparse: bool) -> None:
        self.store.is_sparse = is_sparse

    @observation_checked
    def compare_all(self, context: str) -> None:
        """Compare everything that the store shows."""
        self.store.compare_all(context)

    def check_observed(self) -> None:
        """Raise AdapterError if what the subject last showed has a wrong type; types are not checked at each call."""
        self.store.check_observed()


def frame_of_store(judge: StoreJudge, finding: Finding | None) -> StepFrame:
    """The frame of a judge; `finding` is what it found, if it is the last."""
    expected = len(judge.explained.entries())
    free = judge.explained.num_slots - expected
    observed = judge.observed.free
    pool = PoolFrame(NAME, free, observed if finding is not None and observed != free else None)
    return StepFrame("", tuple(_lanes(judge)), tuple(_slots(judge, finding)), (pool,), tuple(_moves(judge)))


def _moves(judge: StoreJudge) -> Iterator[Move]:
    for one in judge.transfers.values():
        words = _phase(one)
        for place, slot in enumerate(one.slots):
            status = f"transfer {one.number}, {'failed' if place in one.failed else words}"
            yield Move("load", slot, None, status) if one.is_load else Move("store", None, slot, status)


def _phase(one: Transfer) -> str:
    """What a transfer does, as text."""
    return "asking" if one.is_asking else "landed" if one.has_landed else "moving"


def _lanes(judge: StoreJudge) -> Iterator[Lane]:
    state = judge.explained.state
    for key, slot in sorted(judge.explained.entries().items()):
        is_ready = state.status[slot] in (HELD, EVICTABLE)
        yield Lane(f"key {key}", "resident" if is_ready else "staged", (EntryFrame(slot, 1, int(is_ready)),))
    for one in judge.transfers.values():
        arrow = f"{NAME} → device" if one.is_load else f"device → {NAME}"
        landed = one.has_landed
        entries = tuple(
            EntryFrame(slot, 1, int(landed and place not in one.failed)) for place, slot in enumerate(one.slots)
        )
        yield Lane(f"{arrow}, transfer {one.number}", _phase(one), entries)


def _slots(judge: StoreJudge, finding: Finding | None) -> Iterator[Block]:
    explained, state = judge.explained, judge.explained.state
    named = set(finding.blocks) if finding is not None else set[int]()
    observed = {slot: key for key, slot in judge.observed.entries.items()}
    for slot in range(explained.num_slots):
        number = state.key[slot]
        differences = []
        expected = explained.keys[number] if number >= 0 and state.entry[TIER][number] == slot else None
        if finding is not None and observed.get(slot) != expected and not judge.is_sparse:
            differences.append("the store: no key" if slot not in observed else f"the store: key {observed[slot]}")
        is_plain = state.status[slot] == FREE and not differences and slot not in named
        if is_plain and explained.num_slots > NUM_SLOTS_SHOWN:
            continue
        yield Block(
            slot,
            state.reads[slot],
            LISTS[state.status[slot]],
            state.status[slot] in (HELD, EVICTABLE),
            int(slot in judge.memory),
            int(any(slot in one.slots for one in judge.transfers.values())),
            tuple(differences),
            slot in named,
        )
