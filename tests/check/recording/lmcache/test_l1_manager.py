"""LMCache's L1 manager is recorded while several threads use it, and judged: a correct one, and one with a fault."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvproof.check.protocol.store import StoreConfig
from kvproof.check.recording import RecordingRefused, record
from kvproof.check.recording.example_run import record_run
from kvproof.check.recording.segments import wait_until_written
from kvproof.check.recording.validate import Validation, unjudged_properties, validate
from kvproof.check.subjects.lmcache import LMCacheL1
from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine
RELEASE, NUM_OBJECTS, NUM_THREADS, NUM_KEYS, NUM_REQUESTS = "0.5.6", 12, 4, 24, 150
FOREVER = 600.0  # seconds


@dataclass(frozen=True)
class Key:
    """The fields of LMCache's `ObjectKey`."""

    chunk_hash: bytes
    model_name: str = "model"
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""


class TimedLock:
    """`TTLLock` by the clock of the machine."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.count, self.until = seconds, 0, 0.0

    def lock(self) -> None:
        self.count = self.count + 1 if self.is_locked() else 1
        self.until = time.monotonic() + self.seconds

    def unlock(self) -> None:
        self.count = max(0, self.count - 1)

    def is_locked(self) -> bool:
        return self.count > 0 and time.monotonic() < self.until


@pytest.fixture
def subject() -> Any:
    download.add(f"lmcache=={RELEASE}")
    return LMCacheL1(RELEASE)


def manager_of(subject: Any, seconds: float) -> Any:
    """A manager whose leases are so long."""
    subject.open(StoreConfig(num_gpu_blocks=NUM_OBJECTS))
    subject._module.TTLLock = TimedLock
    manager = subject._manager
    manager.config.write_ttl_seconds = manager._write_ttl_seconds = seconds
    manager.config.read_ttl_seconds = manager._read_ttl_seconds = seconds
    return manager


class Client:
    """One thread of a server: it stores, loads and evicts objects, as the controllers of LMCache do."""

    def __init__(self, manager: Any, seed: int, seconds: float) -> None:
        self.manager, self.random, self.seconds = manager, Random(seed), seconds
        self.tag = f"writer {seed % 2}"
        self.raised: Exception | None = None

    def run(self, num_requests: int) -> None:
        """So many requests. An exception ends the thread."""
        try:
            for _ in range(num_requests):
                keys = [Key(b"%d" % at) for at in self.random.sample(range(NUM_KEYS), self.random.randint(1, 3))]
                self.random.choice((self.store, self.load, self.load, self.evict))(keys)
        except Exception as error:
            self.raised = error

    def wait(self) -> None:
        """Let other threads run; sometimes until the lease is over."""
        time.sleep(1.2 * self.seconds if self.seconds < 1 and self.random.random() < 0.1 else 0)

    def store(self, keys: list[Key]) -> None:
        manager, draw = self.manager, self.random.random()
        is_temporary = draw > 0.9
        answers = manager.reserve_write(keys, [is_temporary] * len(keys), None, tag=self.tag)
        taken = [key for key, (error, _) in answers.items() if error.name == "SUCCESS"]
        self.wait()
        if draw < 0.2:
            manager.finish_write_and_delete(taken, tag=self.tag)
        elif draw < 0.6:
            manager.finish_write(taken, self.tag)
        else:
            answers = manager.finish_write_and_reserve_read(taken, 2, tag=self.tag)
            for _ in range(2):
                self.wait()
                manager.finish_read([key for key, (error, _) in answers.items() if error.name == "SUCCESS"])

    def load(self, keys: list[Key]) -> None:
        answers = self.manager.reserve_read(keys)
        found = [key for key, (_, one) in answers.items() if one is not None]
        self.wait()
        if self.random.random() < 0.3:
            self.manager.unsafe_read(found)
        self.manager.finish_read(found)

    def evict(self, keys: list[Key]) -> None:
        draw = self.random.random()
        if draw < 0.02:
            self.manager.clear(force=draw < 0.01)
        else:
            self.manager.delete(keys)


def recorded(subject: Any, path: Path, seconds: float = FOREVER, may_raise: bool = False, **options: Any) -> Validation:
    """The verdict on a recording of a run with several threads. may_raise: a planted fault may end a thread."""
    manager = manager_of(subject, seconds)
    clients = [Client(manager, seed, seconds) for seed in range(NUM_THREADS)]
    with record(manager, path, **options) as recorder:
        for client in clients[:2]:  # that two write one key at a time does not depend on the threads
            manager.reserve_write([Key(b"both")], [False], None, tag=client.tag)
        for client in clients[:2]:
            manager.finish_write([Key(b"both")], client.tag)
        threads = [threading.Thread(target=client.run, args=(NUM_REQUESTS,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert may_raise or [client.raised for client in clients] == [None] * NUM_THREADS
    assert "reserve_read" not in vars(manager)
    assert may_raise or recorder.num_lines > NUM_THREADS * NUM_REQUESTS
    return validate(path)


@pytest.mark.parametrize("shows_pool", [False, True])
def test_a_run_of_several_threads_is_consistent(subject: Any, tmp_path: Path, shows_pool: bool) -> None:
    done = recorded(subject, tmp_path / "run.jsonl", shows_pool=shows_pool)
    assert (done.finding, done.reason) == (None, "")
    assert {"two loads of a key", "two writers of a key", "abort", "evict"} <= set(done.witnesses)
    assert ("lists-agree" in unjudged_properties(done.header)) is not shows_pool


def test_leases_that_end_by_time_are_consistent(subject: Any, tmp_path: Path) -> None:
    done = recorded(subject, tmp_path / "run.jsonl", seconds=0.004, shows_pool=True)
    assert (done.finding, done.reason) == (None, "")
    assert done.witnesses["lease over"] > 20


def reservation_is_a_hit(before: Callable[..., Any]) -> Callable[..., Any]:
    def put(self: Any, key: Any, tag: str, entry: Any) -> None:
        before(self, key, tag, entry)
        self._objects.setdefault(key, entry)

    return put


FAULTS: dict[str, tuple[str, Callable[[Any], Any], set[str]]] = {
    "the locks of two readers go with one": (
        "finish_read",
        lambda before: lambda self, keys, read_locks=1: before(self, keys, read_locks + 1),
        {"pin-own", "evict-unreferenced"},
    ),
    "a reservation is a hit": ("_put_staging", reservation_is_a_hit, {"hit-written", "hit-found", "conservation"}),
    "memory is given back twice": (
        "_free_and_report_deleted",
        lambda before: lambda self, keys, objects: before(self, keys, objects * 2),
        {"conservation", "no-use-after-free"},
    ),
    "the memory of what goes is kept": (
        "_free_and_report_deleted",
        lambda before: lambda self, keys, objects: before(self, keys, []),
        {"conservation", "no-leak-at-rest"},
    ),
    "what is read is evicted": (
        "delete",
        lambda before: lambda self, keys, force=False: before(self, keys, True),
        {"evict-unreferenced", "one-writer"},
    ),
    "a failed write is kept": (
        "finish_write_and_delete",
        lambda before: lambda self, keys, tag: self.finish_write(keys, tag),
        {"abort-unseen", "hit-written", "conservation", "no-leak-at-rest"},
    ),
    "a write is kept although its lease is over": (
        "_take_staging",
        lambda before: lambda self, key, tag, op: (self._errors.SUCCESS, self._pop_staging(key, tag)),
        {"pin-own"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_planted_in_the_manager_is_found(
    name: str, subject: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, fault, properties = FAULTS[name]
    kind = subject._module.L1Manager
    monkeypatch.setattr(kind, "_errors", subject._errors, raising=False)
    monkeypatch.setattr(kind, method, fault(getattr(kind, method)))
    done = recorded(subject, tmp_path / "run.jsonl", 0.004 if "lease" in name else FOREVER, may_raise=True)
    assert done.finding is not None, done.reason
    assert done.finding.property in properties


def test_a_fault_of_the_recorder_does_not_reach_the_server(subject: Any, tmp_path: Path) -> None:
    manager, path = manager_of(subject, FOREVER), tmp_path / "run.jsonl"
    with record(manager, path) as recorder, pytest.warns(RuntimeWarning, match="no attribute 'chunk_hash'"):
        answers = [manager.reserve_write([7], [False], None, tag="a"), manager.finish_write([7], tag="a")]
    assert [one.name for one in answers[1].values()] == ["SUCCESS"]
    assert not recorder.is_on
    wait_until_written([path])
    assert validate(path).reason.startswith("the recorder stopped here: reserve_write: AttributeError")
    assert "allocate" not in vars(subject._memory)


def test_a_subject_whose_leases_end_by_the_clock_of_the_judge_is_not_recorded(subject: Any, tmp_path: Path) -> None:
    with pytest.raises(RecordingRefused, match="leases, which end by the clock of the judge"):
        record_run(lambda: subject, 1, 10, tmp_path / "run.jsonl", {})
