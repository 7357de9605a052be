"""The store of several tiers: its bytes come back, and a writer that is killed leaves every entry whole or absent."""

import hashlib
import os
import signal
from itertools import count
from pathlib import Path
from random import Random

import pytest

from kvproof.impl.kv_store import DiskSlots, NoSlotError, StoreSlots, TieredStore
from kvproof.impl.kv_store.disk import FILE, HEADER_BYTES

SLOT_BYTES, NUM_SLOTS = 1 << 14, 4
PART_BYTES = 1 << 12
NUM_PARTS = -(-(HEADER_BYTES + SLOT_BYTES) // PART_BYTES)  # of a place


def key_of(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


def data_of(number: int, num_bytes: int = 64) -> bytes:
    return number.to_bytes(8, "big") * (num_bytes // 8)


def write_until_killed(folder: Path, num_parts: int) -> None:
    """Write slot after slot in parts of PART_BYTES, in a process that is killed before the next part."""
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        return
    left, write = num_parts, os.pwrite

    def pwrite(file: int, data: memoryview, begin: int) -> int:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return write(file, data[:PART_BYTES], begin)

    os.pwrite = pwrite  # type: ignore[assignment]
    slots = DiskSlots(folder, NUM_SLOTS, SLOT_BYTES)
    for number in count():
        slots.write(number % NUM_SLOTS, key_of(number), data_of(number, SLOT_BYTES))


@pytest.mark.parametrize("num_kills", [20, pytest.param(2_000, marks=pytest.mark.long)])
def test_after_a_kill_every_entry_is_whole_or_absent(tmp_path: Path, num_kills: int) -> None:
    random = Random(1)
    for _ in range(num_kills):
        num_parts = random.randrange(4 * NUM_SLOTS * NUM_PARTS)
        (tmp_path / FILE).unlink(missing_ok=True)
        write_until_killed(tmp_path, num_parts)
        num_whole, num_torn = divmod(num_parts, NUM_PARTS)
        numbers = set(range(max(0, num_whole - NUM_SLOTS), num_whole))
        if num_torn:
            numbers.discard(num_whole - NUM_SLOTS)  # was overwritten in part
        slots = DiskSlots(tmp_path, NUM_SLOTS, SLOT_BYTES)
        assert dict(slots.whole()) == {number % NUM_SLOTS: key_of(number) for number in numbers}
        for number in numbers:
            assert slots.read(number % NUM_SLOTS, key_of(number)) == data_of(number, SLOT_BYTES)
        slots.close()


@pytest.mark.parametrize("place", range(0, HEADER_BYTES + 64, 3))
def test_a_changed_byte_makes_an_entry_absent(tmp_path: Path, place: int) -> None:
    slots = DiskSlots(tmp_path, 2, 64)
    for slot in (0, 1):
        slots.write(slot, key_of(slot), data_of(slot))
    content = bytearray((tmp_path / FILE).read_bytes())
    content[place] ^= 1
    (tmp_path / FILE).write_bytes(content)
    assert (slots.read(0, key_of(0)), slots.read(1, key_of(1))) == (None, data_of(1))
    assert list(slots.whole()) == [(1, key_of(1))]
    assert slots.read(1, key_of(0)) is None
    slots.close()


def test_what_is_put_comes_back_from_either_tier_and_after_a_restart(tmp_path: Path) -> None:
    random, found = Random(1), {"host": 0, "disk": 0, "nothing": 0}
    store = TieredStore(64, 3, tmp_path, 8)
    for _ in range(2_000):
        number = random.randrange(16)
        key = key_of(number)
        if random.random() < 0.4:
            assert store.put(key, data_of(number))
        else:
            tier = "host" if store.host.has(key) else "disk" if store.disk.has(key) else "nothing"
            found[tier] += 1
            assert store.get(key) == (None if tier == "nothing" else data_of(number))
            assert store.host.has(key) == (tier != "nothing"), "what was found comes to memory"
    assert min(found.values()) > 50, found
    store.flush()
    kept = {number for number in range(16) if store.disk.has(key_of(number))}
    assert len(kept) == 8
    store.close()
    store = TieredStore(64, 3, tmp_path, 8)
    assert {number for number in range(16) if store.has(key_of(number))} == kept
    assert all(store.get(key_of(number)) == data_of(number) for number in kept)
    store.close()


def test_content_that_a_disk_has_lost_is_a_miss_and_its_slot_is_free_again(tmp_path: Path) -> None:
    store = TieredStore(64, 1, tmp_path, 2)
    for number in (1, 2):
        store.put(key_of(number), data_of(number))
    assert store.disk.has(key_of(1))
    (tmp_path / FILE).write_bytes(bytes(2 * (HEADER_BYTES + 64)))
    assert store.get(key_of(1)) is None
    assert (store.disk.entries, len(store.disk.free)) == ({}, 2)
    store.close()


def test_what_was_used_last_stays_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    a, b, c, d, e = (key_of(number) for number in range(5))
    store = TieredStore(64, 2, tmp_path / "two", 8)
    assert store.put(a, data_of(0))
    assert store.put(b, data_of(1))
    assert store.is_in_memory(a)
    assert store.put(c, data_of(2))
    assert (store.host.has(a), store.host.has(b)) == (True, False)
    store.close()
    store = TieredStore(64, 1, tmp_path / "one", 2)
    for number, key in enumerate((a, b, c)):
        store.put(key, data_of(number))
    assert store.get(a) == data_of(0)  # the disk has a and c now, c being the newer one
    store.put(d, data_of(3))  # memory evicts a, which the disk has
    store.put(e, data_of(4))
    assert [store.disk.has(key) for key in (a, c, d)] == [True, False, True]
    store.close()


def test_a_disk_that_refuses_a_write_has_no_entry_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TieredStore(64, 1, tmp_path, 2)
    store.put(key_of(1), data_of(1))
    with monkeypatch.context() as patched:
        patched.setattr("kvproof.impl.kv_store.disk.os.pwrite", _full)
        assert store.put(key_of(2), data_of(2))
    assert not store.disk.has(key_of(1))
    assert (store.get(key_of(1)), store.get(key_of(2))) == (None, data_of(2))
    assert (store.disk.entries, len(store.disk.free)) == ({}, 2)
    store.close()


def _full(*call: object) -> int:
    raise OSError(28, "No space left on device")


def test_a_store_that_is_refused_changes_nothing() -> None:
    slots: StoreSlots[int] = StoreSlots(2)
    slots.commit(slots.stage([1, 2]).keys)
    before = (dict(slots.entries), slots.free[:])
    with pytest.raises(NoSlotError, match="1 new entries: 0 slots are free"):
        slots.stage([1, 2, 3])
    assert (slots.entries, slots.free) == before
    assert slots.stage([2, 3]) == ([3], [slots.entries[3].slot], [1])
