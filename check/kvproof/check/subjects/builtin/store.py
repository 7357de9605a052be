"""kvproof's own store of KV outside the device, as a subject of store level."""

from dataclasses import replace

from kvproof.check.protocol.capabilities import StoreCan
from kvproof.check.protocol.manager import Assumption, Refused, Unsupported
from kvproof.check.protocol.store import HIT, LRU, MISS, PENDING, Staged, StoreAdapter, StoreConfig, StoreObservation
from kvproof.impl.kv_store.offers import Offers
from kvproof.impl.kv_store.slots import NoSlotError, StoreSlots
from kvproof.spec.text.eviction_policy import KEY_LRU

STAGED_REFS = -1


class OwnStore(StoreAdapter):
    """`kvproof.impl.kv_store.StoreSlots` behind the protocol: the slots of one tier, host memory or a disk."""

    name = "kvproof-store"
    capabilities = StoreCan(reset=True, lost_hits=0, refusal_slack=0, eviction=KEY_LRU)
    assumptions: tuple[Assumption, ...] = (
        Assumption("loads-what-is-there", "The caller loads only keys that a look-up finds at that moment."),
        Assumption("reports-once", "Each transfer is reported once, with the keys that it began with."),
        Assumption("fences-resets", "When the store is cleared, no transfer that is under way moves bytes any more."),
    )

    def open(self, config: StoreConfig) -> None:
        if config.replacement != LRU:
            raise Unsupported(
                f"{self.name} evicts the least recently used entry first; there is no {config.replacement}"
            )
        self.slots: StoreSlots[int] = StoreSlots(config.num_slots)

    def look_up(self, request: int, keys: list[int]) -> list[str]:
        """For each key HIT if it is resident, PENDING if it is staged, else MISS."""
        entries = [self.slots.entries.get(key) for key in keys]
        return [MISS if entry is None else PENDING if entry.is_staged else HIT for entry in entries]

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        return self.slots.hold(keys)

    def end_load(self, transfer: int, request: int, keys: list[int]) -> bool | None:
        self.slots.release(keys)
        return None

    def begin_store(self, transfer: int, request: int, keys: list[int]) -> Staged | Refused:
        try:
            return Staged(*self.slots.stage(keys))
        except NoSlotError as error:
            return Refused(str(error))

    def end_store(self, transfer: int, request: int, stored: list[int], failed: list[int]) -> None:
        self.slots.commit(stored)
        self.slots.abandon(failed)

    def touch(self, request: int, keys: list[int]) -> None:
        self.slots.touch(keys)

    def clear(self) -> None:
        self.slots.clear()

    def observe_part(self) -> StoreObservation:
        return StoreObservation({}, len(self.slots.free))

    def observe(self) -> StoreObservation:
        entries = self.slots.entries
        refs = {key: STAGED_REFS if entry.is_staged else entry.num_loads for key, entry in entries.items()}
        return StoreObservation(
            {key: entry.slot for key, entry in entries.items()}, len(self.slots.free), refs, [*self.slots.free]
        )


class OwnOffers(OwnStore):
    """The same, whose loads are offers to readers far away: `kvproof.impl.kv_store.offers`."""

    name = "kvproof-offers"
    capabilities = replace(OwnStore.capabilities, leases=True, remote_loads=True, ends_leases=True, parts=True)

    def open(self, config: StoreConfig) -> None:
        super().open(config)
        self.num_parts = config.num_parts
        self.offers = Offers(self.slots, config.lease_seconds)

    def begin_load(self, transfer: int, request: int, keys: list[int]) -> list[int]:
        return self.offers.begin(transfer, keys, self.num_parts)

    def notice(self, transfer: int, part: int) -> bool:
        return self.offers.notice(transfer, part)

    def advance(self, seconds: int) -> None:
        self.offers.advance(seconds)

    def clear(self) -> None:
        super().clear()
        self.offers.open.clear()
