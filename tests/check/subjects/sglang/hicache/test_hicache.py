"""SGLang's HiCache: what a run of the host pool, the controller and the tree shows."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.store import PAGES_BEFORE, StoreConfig, path_to
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.stub_modules import nothing
from kvproof.check.subjects.sglang.hicache.machine import Device, Event, Operations, Storage, Waits


def test_a_storage_gives_what_it_has_and_says_before_it_lacks_a_page() -> None:
    storage, said = Storage(), list[str]()
    storage.begin(3, 1)
    storage.before_it_lacks = lambda: said.append("lacks")
    assert [storage.batch_exists([page]) for page in "abcd"] == [1, 1, 1, 0]
    assert storage.batch_get(["a"], [7]) == [7]
    assert said == []
    assert storage.batch_get(["b", "c"], [8, 9]) == [None, None]
    assert said == ["lacks"]
    storage.begin(2, 2)
    assert (storage.batch_exists(["a", "b", "c"]), storage.before_it_lacks) == (2, nothing)


def test_an_event_happens_at_once_unless_the_device_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    event = Event()
    event.record()
    assert event.query()
    monkeypatch.setattr(Device, "busy", True)
    event.record()
    assert not event.query()


def test_a_thread_that_waits_for_its_queue_ends() -> None:
    operations = Operations()
    operations.put(1)
    assert operations.get(timeout=1) == 1
    with pytest.raises(Waits):
        operations.get(timeout=1)


FETCHED = (("begin_store", 1, 1, (0, 1, 2, 3)), ("land", 1, (1,)), ("report", 1))
LOST = (("begin_store", 2, 1, (0, 1, 2, 3)), ("land", 2, (2,)), ("report", 2))


def test_a_page_names_those_before_it_and_the_next_tree_has_the_same_shape() -> None:
    size = len(PAGES_BEFORE)
    assert [path_to(key) for key in (0, 3, 5, 7)] == [(0,), (0, 1, 2, 3), (0, 1, 4, 5), (6, 7)]
    assert path_to(size + 5) == tuple(key + size for key in path_to(5))


Judged = Callable[..., Any]


@pytest.fixture(scope="module")
def judged() -> Iterator[Judged]:
    """The judge of a run of a release, and which of its operations were possible. Raises Finding."""
    factories: dict[str, RemoteFactory] = {}  # a process imports one release

    def judge_run(release: str, *operations: tuple[Any, ...], num_slots: int = 4) -> Any:
        download.add(f"sglang=={release}")
        if release not in factories:
            factories[release] = RemoteFactory(f"sglang-hicache=={release}")
        judge = StoreJudge(factories[release](), StoreConfig(num_gpu_blocks=num_slots))
        return judge, [judge.apply(operation) for operation in operations]

    yield judge_run
    for factory in factories.values():
        factory.close()


@pytest.mark.engine
@pytest.mark.parametrize("release", ["0.5.5", "0.5.5.post3", "0.5.6"])
def test_the_host_has_as_many_pages_as_the_configuration_says(release: str, judged: Judged) -> None:
    for num_slots in (1, 3, 2):
        judge, _ = judged(release, num_slots=num_slots)
        assert len(judge.observed.free_ids) == num_slots


@pytest.mark.engine
def test_what_was_fetched_is_found_loaded_and_evicted(judged: Judged) -> None:
    run = (*FETCHED, ("look_up", 1, (0, 1)), ("begin_load", 2, 1, (0,)), ("land", 2), ("report", 2))
    judge, done = judged("0.5.6", *run)
    assert all(done)
    assert (judge.memory, judge.observed.free) == ({0: 0}, 3)
    assert judge.apply(("begin_store", 3, 1, (8, 9, 10, 11)))
    assert judge.answer == "writes keys 8, 9, 10, 11 to slots 1, 2, 3, 0, evicted key 0"


UNIFIED, RADIX = "0.5.23", "0.5.20"
ASKED = ("begin_store", 1, 1, (0, 1, 2, 3))


@pytest.mark.engine
@pytest.mark.parametrize("release", [RADIX, UNIFIED])
def test_a_prefetch_has_slots_when_the_storage_has_answered(release: str, judged: Judged) -> None:
    judge, done = judged(release, ASKED, ("land", 1, (3,)))
    assert (all(done), judge.answer, judge.observed.free) == (True, "writes keys 0, 1, 2 to slots 0, 1, 2", 1)
    assert judge.apply(("land", 1, (1,)))
    assert judge.apply(("report", 1))
    assert (judge.memory, judge.observed.entries, judge.observed.free) == ({0: 0}, {0: 0}, 3)


@pytest.mark.engine
@pytest.mark.parametrize("release", [RADIX, UNIFIED])
def test_an_aborted_prefetch_leaves_nothing_before_and_after_the_storage_has_answered(
    release: str, judged: Judged
) -> None:
    judge, done = judged(release, ASKED, ("land", 1, (0,)))
    assert (all(done), judge.answer, judge.transfers) == (True, "has nothing to write", {})
    judge, done = judged(release, ASKED, ("land", 1), ("land", 1, (0,)), ("report", 1))
    assert (all(done), judge.observed.entries, judge.observed.free) == (True, {}, 4)


@pytest.mark.engine
@pytest.mark.parametrize("release", ["0.5.15.post1", RADIX, UNIFIED])
def test_what_was_computed_is_written_to_the_host_and_copied_to_the_storage(release: str, judged: Judged) -> None:
    run = (("begin_store", 1, 2, (0, 1, 2, 3)), ("look_up", 1, (0, 1)))
    judge, done = judged(release, *run)
    assert (all(done), judge.answer, judge.observed.free) == (True, "key 0 pending, key 1 pending", 0)
    assert all(map(judge.apply, [("land", 1), ("report", 1), ("look_up", 1, (0, 1))]))
    assert (judge.answer, judge.moving()) == ("key 0 hit, key 1 hit", [1])
    assert judge.apply(("begin_store", 2, 2, (8, 9)))
    assert judge.answer == "has nothing to write"  # what is copied to the storage is not evicted
    assert all(map(judge.apply, [("land", 1), ("report", 1), ("begin_store", 3, 1, (8, 9, 10))]))
    assert judge.answer.startswith("writes keys 8, 9, 10 to slots ")


@pytest.mark.engine
@pytest.mark.parametrize("release", ["0.5.15.post1", RADIX, UNIFIED])
def test_a_reset_leaves_nothing(release: str, judged: Judged) -> None:
    run = (("begin_store", 1, 2, (0, 1)), ("begin_store", 2, 2, (8,)), ("land", 1), ("report", 1), ("clear",))
    judge, done = judged(release, *run)
    assert (all(done), judge.observed.entries, judge.observed.free, judge.transfers) == (True, {}, 4, {})


@pytest.mark.engine
def test_a_list_of_pages_that_is_no_path_is_not_possible(judged: Judged) -> None:
    _, done = judged("0.5.6", ("look_up", 1, (1,)), ("look_up", 1, (0, 2)), ("look_up", 1, (0, 1)))
    assert done == [False, False, True]


@pytest.mark.engine
def test_pages_that_a_storage_does_not_give_come_back_once(judged: Judged) -> None:
    judge, done = judged("0.5.6", *LOST)
    assert all(done)
    assert (judge.observed.entries, judge.observed.free_ids) == ({0: 0, 1: 1}, [3, 2])
