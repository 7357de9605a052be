"""A small store is used as no move of blocks uses it: a lawful one passes, and each wrong one is noticed."""

import os

import pytest

from kvproof.check.data_plane.executors import store_life
from kvproof.check.data_plane.executors.store_life import LostBlock, WrongContent, use_a_small_store
from kvproof.impl.kv_store import DiskSlots, StoreSlots, TieredStore
from kvproof.impl.kv_store.disk import HEADER_BYTES, KEY_BYTES

NUM_SEEDS = 40


def test_the_store_of_kvproof_is_not_refuted() -> None:
    for seed in range(NUM_SEEDS):
        use_a_small_store(seed)


def test_a_store_with_more_slots_on_the_disk_than_it_shows_is_not_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def roomy(*arguments: object, **options: object) -> TieredStore:
        slot_bytes, num_host, directory, num_disk = arguments
        return TieredStore(slot_bytes, num_host, directory, num_disk + 4, **options)  # type: ignore[operator, arg-type]

    monkeypatch.setattr(store_life, "TieredStore", roomy)
    for seed in range(NUM_SEEDS):
        use_a_small_store(seed)


def noticed() -> str:
    """What is noticed of the store as it is now; empty if nothing is."""
    for seed in range(NUM_SEEDS):
        try:
            use_a_small_store(seed)
        except (LostBlock, WrongContent, KeyError) as error:
            return f"{type(error).__name__}: {error}"
    return ""


def test_a_torn_write_that_counts_as_whole_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(self: DiskSlots, slot: int) -> tuple[bytes, bytes] | None:
        place = os.pread(self._file, self.place_bytes, slot * self.place_bytes)
        key_start = HEADER_BYTES - KEY_BYTES
        return (place[key_start:HEADER_BYTES], place[HEADER_BYTES:]) if len(place) == self.place_bytes else None

    monkeypatch.setattr(DiskSlots, "_whole", whole)
    assert noticed() == "WrongContent: a key comes back with other bytes than were saved under it"


def test_a_slot_that_is_lost_in_a_restart_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    adopt = StoreSlots.adopt

    def adopt_and_lose(self: StoreSlots[bytes], key: bytes, slot: int) -> None:
        adopt(self, key, slot)
        if slot == 1:
            self.free = [one for one in self.free if one]

    monkeypatch.setattr(StoreSlots, "adopt", adopt_and_lose)
    assert noticed().startswith("LostBlock: a store of 9 slots has fewer of 9 keys")


def test_a_slot_that_is_given_up_while_a_load_reads_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def spill(self: TieredStore) -> None:
        self.flush()
        for key, entry in list(self.host.entries.items()):
            if not entry.is_staged:
                self.host._evictable[key] = None
                self.host.drop(key)

    monkeypatch.setattr(TieredStore, "spill", spill)
    assert noticed() == "LostBlock: a slot that a load reads is given up"


def test_a_slot_that_is_flushed_before_it_is_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(self: TieredStore) -> None:
        for key, entry in list(self.host.entries.items()):
            self._to_disk(key, self._memory.read(entry.slot))

    monkeypatch.setattr(TieredStore, "flush", flush)
    assert noticed().startswith("WrongContent")


def test_a_use_that_is_not_noted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreSlots, "touch", lambda self, keys: None)
    assert noticed().startswith("LostBlock")
