"""The disk of the built-in store is attacked: no read gives wrong bytes, and no write leaves the directory."""

import hashlib
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest

from kvproof.impl.kv_store import StoreFileError, TieredStore
from kvproof.impl.kv_store.disk import CHECKSUM_BYTES, FILE, HEADER_BYTES, MARK

SLOT_BYTES, NUM_SLOTS, NUM_KEYS = 48, 4, 12
PLACE_BYTES = HEADER_BYTES + SLOT_BYTES
FOREIGN = b"the diary of somebody else\n" * 40


def key_of(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


@cache
def data_of(number: int, num_bytes: int = SLOT_BYTES) -> bytes:
    return hashlib.shake_256(b"%d" % number).digest(num_bytes)


def filled(folder: Path, keys: range = range(NUM_SLOTS)) -> Path:
    """A directory in which these keys are. Returns the file."""
    store = TieredStore(SLOT_BYTES, NUM_SLOTS, folder, NUM_SLOTS)
    for number in keys:
        store.put(key_of(number), data_of(number))
    store.flush()
    store.close()
    return folder / FILE


def right(store: TieredStore, num_bytes: int = SLOT_BYTES) -> int:
    """How many keys the store has, all of them with the right bytes."""
    found = {number: store.get(key_of(number)) for number in range(NUM_KEYS)}
    assert all(data in (None, data_of(number, num_bytes)) for number, data in found.items())
    return sum(data is not None for data in found.values())


def _link(path: Path, foreign: Path) -> None:
    path.symlink_to(foreign)


def _dangling(path: Path, foreign: Path) -> None:
    path.symlink_to(foreign.with_name("not there"))


def _hard_link(path: Path, foreign: Path) -> None:
    os.link(foreign, path)


def _owned(path: Path, foreign: Path) -> None:
    filled(path.parent)
    os.chown(path, 12345, 12345)


def _open_to_others(path: Path, foreign: Path) -> None:
    filled(path.parent).chmod(0o666)


def _device(path: Path, foreign: Path) -> None:
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero


REFUSED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "a link": (_link, "it is a link"),
    "a link to nothing": (_dangling, "it is a link"),
    "a second name of a foreign file": (_hard_link, "it has another name"),
    "a FIFO": (lambda path, foreign: os.mkfifo(path), "it is not a regular file"),
    "a directory": (lambda path, foreign: path.mkdir(), "Is a directory"),
    "a device": (_device, "it is not a regular file"),
    "a foreign file": (lambda path, foreign: path.write_bytes(FOREIGN), "it holds something else"),
    "a file of another user": (_owned, "it belongs to another user"),
    "a file that everybody can change": (_open_to_others, "others can write to it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_file_of_a_store_is_refused_and_stays_as_it_is(name: str, tmp_path: Path) -> None:
    make, words = REFUSED[name]
    foreign, path = tmp_path / "foreign", tmp_path / "store" / FILE
    foreign.write_bytes(FOREIGN)
    path.parent.mkdir()
    try:
        make(path, foreign)
    except PermissionError:
        pytest.skip("only root can make this")
    before = os.lstat(path)
    with pytest.raises(StoreFileError, match=words) as refused:
        TieredStore(SLOT_BYTES, 2, path.parent, NUM_SLOTS)
    assert str(refused.value).startswith(f"{path} cannot be the file of a store: ")
    assert (os.lstat(path).st_mtime_ns, os.lstat(path).st_size) == (before.st_mtime_ns, before.st_size)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["foreign", "store"]
    assert foreign.read_bytes() == FOREIGN


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(FOREIGN)
    with pytest.raises(StoreFileError, match="cannot be the file of a store"):
        TieredStore(SLOT_BYTES, 2, tmp_path / "store", NUM_SLOTS)


def test_one_store_at_a_time_has_a_directory(tmp_path: Path) -> None:
    ready, begins = os.pipe()
    child = os.fork()
    if not child:
        store = TieredStore(SLOT_BYTES, 2, tmp_path, NUM_SLOTS)
        os.write(begins, b"x")
        signal.pause()
    os.read(ready, 1)
    try:
        with pytest.raises(StoreFileError, match="another store uses it"):
            TieredStore(SLOT_BYTES, 2, tmp_path, NUM_SLOTS)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    store = TieredStore(SLOT_BYTES, 2, tmp_path, NUM_SLOTS)
    store.close()
    os.close(ready)
    os.close(begins)


def damaged(content: bytes, random: Random) -> bytes:
    """The content of a file after one accident, at a drawn place of a header or of data."""
    slot, other = random.sample(range(NUM_SLOTS), 2)
    begin, part = slot * PLACE_BYTES, random.choice([0, len(MARK), len(MARK) + CHECKSUM_BYTES, HEADER_BYTES])
    at = begin + part + random.randrange(8)
    place = content[other * PLACE_BYTES : (other + 1) * PLACE_BYTES]
    return random.choice(
        [
            content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :],
            content[: max(1, at)],
            content[:at] + random.randbytes(random.randrange(100)) + content[at:],
            content[:at] + bytes(32) + content[at + 32 :],
            content[:begin] + place + content[begin + PLACE_BYTES :],  # of another slot
            content[:at] + place[part:][:40] + content[at + 40 :],
            content + random.randbytes(random.randrange(3 * PLACE_BYTES)),
        ]
    )


@pytest.mark.parametrize("num_cases", [60, pytest.param(100_000, marks=pytest.mark.long)])
def test_no_accident_of_the_file_gives_wrong_bytes(tmp_path: Path, num_cases: int) -> None:
    random, path = Random(1), filled(tmp_path)
    whole, kept, num_refused = path.read_bytes(), 0, 0
    for _ in range(num_cases):
        path.write_bytes(damaged(whole, random))
        try:
            store = TieredStore(SLOT_BYTES, 2, tmp_path, NUM_SLOTS)
        except StoreFileError:  # no place is where it was
            num_refused += 1
            continue
        kept += right(store)
        path.write_bytes(damaged(path.read_bytes().ljust(len(whole), b"\0"), random))  # while it is open
        right(store)
        for number in range(NUM_SLOTS, NUM_KEYS):
            store.put(key_of(number), data_of(number))
        right(store)
        store.close()
    assert num_cases < kept < NUM_SLOTS * num_cases
    assert num_refused < num_cases / 10


@pytest.mark.parametrize(("slot_bytes", "num_slots"), [(16, NUM_SLOTS), (96, NUM_SLOTS), (SLOT_BYTES, 2)])
def test_a_file_of_other_sizes_gives_no_wrong_bytes(tmp_path: Path, slot_bytes: int, num_slots: int) -> None:
    filled(tmp_path)
    store = TieredStore(slot_bytes, 2, tmp_path, num_slots)
    assert right(store, slot_bytes) == (num_slots if slot_bytes == SLOT_BYTES else 0)
    store.close()


def test_a_full_disk_keeps_what_it_has_room_for(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (PLACE_BYTES * 5 // 2, PLACE_BYTES * 5 // 2))
            store = TieredStore(SLOT_BYTES, 1, tmp_path, NUM_SLOTS)
            for number in range(NUM_KEYS):
                assert store.put(key_of(number), data_of(number))
                assert 1 <= right(store) <= 3, "one in memory, and at most two on the disk"
            store.flush()
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store = TieredStore(SLOT_BYTES, 1, tmp_path, NUM_SLOTS)
    assert right(store) == 2
    store.close()


def test_a_directory_that_is_removed_while_it_is_open(tmp_path: Path) -> None:
    path = filled(tmp_path / "store")
    store = TieredStore(SLOT_BYTES, 1, path.parent, NUM_SLOTS)
    path.unlink()
    path.parent.rmdir()
    assert right(store) == NUM_SLOTS
    assert store.put(key_of(7), data_of(7))
    store.flush()
    store.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("num_kills", [5, pytest.param(500, marks=pytest.mark.long)])
def test_a_kill_during_a_flush_leaves_entries_whole_or_absent(tmp_path: Path, num_kills: int) -> None:
    random, num_bytes, found = Random(1), 1 << 17, 0
    for _ in range(num_kills):
        (tmp_path / FILE).unlink(missing_ok=True)
        ready, begins = os.pipe()
        child = os.fork()
        if not child:
            store = TieredStore(num_bytes, NUM_KEYS, tmp_path, NUM_KEYS)
            for number in range(NUM_KEYS):
                store.put(key_of(number), data_of(number, num_bytes))
            os.write(begins, b"x")
            store.flush()
            signal.pause()
        os.read(ready, 1)
        time.sleep(random.uniform(0, 0.006))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(begins)
        store = TieredStore(num_bytes, NUM_KEYS, tmp_path, NUM_KEYS)
        found += right(store, num_bytes)
        store.close()
    assert 0 < found < NUM_KEYS * num_kills


def test_a_key_of_another_size_is_refused_before_anything_changes(tmp_path: Path) -> None:
    store = TieredStore(SLOT_BYTES, 1, tmp_path, NUM_SLOTS)
    with pytest.raises(ValueError, match="a key has 32 bytes and a value 48, not 3 and 48"):
        store.put(b"abc", data_of(1))
    assert store.put(key_of(1), data_of(1))
    assert right(store) == 1
    store.close()
