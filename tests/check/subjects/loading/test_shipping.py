"""The sources of a subject arrive as they were sent; what a machine has itself is used, if it is the same."""

import os
from pathlib import Path

import pytest

from kvproof.check.hosts.workers import Lack, Lacks, WorkerLacks, done, lack_in
from kvproof.check.subjects import SubjectNotReady, UnknownSubject
from kvproof.check.subjects.loading.download import CACHE, find
from kvproof.check.subjects.loading.shipping import FOLDER, Sources, at_hand, packed, place_of, sources_of, unpacked
from kvproof.check.subjects.own import own

BLOCK_MANAGER = "vllm-0.4.2/vllm/core/block_manager_v2.py"


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def unused() -> bytes:
    raise AssertionError("the sources are here")


def test_a_release_that_a_machine_lacks_is_unpacked_once_and_another_one_of_its_name_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "head" / BLOCK_MANAGER, "head = 1")
    monkeypatch.setenv(CACHE, str(tmp_path / "head"))
    place, sources = place_of("vllm-v0==0.4.2"), sources_of("vllm-v0==0.4.2")
    assert place == tmp_path / "head" / "vllm-0.4.2"
    assert sources is not None
    assert sources_of("kvproof") is None
    assert sources_of("vllm-v0==0.4.3") is None
    with at_hand(sources, unused):
        assert find("vllm", "0.4.2") == place
    archives = [packed(place)]
    written(tmp_path / "node" / BLOCK_MANAGER, "another = 1")
    monkeypatch.setenv(CACHE, str(tmp_path / "node"))
    for _ in range(2):
        with at_hand(sources, archives.pop):
            assert (find("vllm", "0.4.2") / "vllm/core/block_manager_v2.py").read_text() == "head = 1"
        assert os.environ[CACHE] == str(tmp_path / "node")
        archives = archives or []
    assert [one.name for one in (tmp_path / "node" / FOLDER).iterdir()] == [sources.digest]


def test_the_file_of_a_subject_is_used_under_the_name_that_it_has_at_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "head" / "mine" / "adapter_shipped.py", "def make(): return 'head'")
    for folder in ("head", "node"):
        (tmp_path / folder).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "head")
    subject = "mine/adapter_shipped.py:make"
    sources, archive = sources_of(subject), packed(file)
    assert sources is not None
    monkeypatch.chdir(tmp_path / "node")
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    with at_hand(sources, lambda: archive):
        assert own(subject)() == "head"
    written(tmp_path / "node" / "mine" / "adapter_shipped.py", "def make(): return 'node'")
    assert own(subject)() == "node"
    with at_hand(sources, unused):
        assert own(subject)() == "head"


def test_what_arrives_damaged_or_on_a_full_disk_is_not_used(tmp_path: Path) -> None:
    sources = Sources("a.py:make", "a.py", "0" * 64)
    archive = packed(written(tmp_path / "a.py", "make = 1"))
    with pytest.raises(OSError, match=r"what arrived of a\.py is not what was sent"):
        unpacked(sources, lambda: archive, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_machine_that_lacks_something_is_reported_once_and_avoided_for_what_needs_it() -> None:
    said: list[str] = []
    lacks = Lacks(said.append)
    for _ in range(2):
        lacks.add("one", Lack("no torch", "sglang"))
    lacks.add("two", Lack("another kvproof", ""))
    assert said == [
        "machine one is given no more units of sglang: no torch",
        "machine two is given no more units: another kvproof",
    ]
    assert [lacks.machines(need) for need in ("sglang", "vllm-v0")] == [["one", "two"], ["two"]]


def raising(error: Exception) -> None:
    raise error


def test_only_what_another_machine_may_have_is_a_lack() -> None:
    found = [
        lack_in(done(raising, error), "sglang")
        for error in (UnknownSubject("no torch"), WorkerLacks("old"), OSError(28, "No space left"), ValueError("wrong"))
    ]
    assert found[:2] == [Lack("no torch", "sglang"), Lack("old", "")]
    assert found[2] is not None
    assert found[2].reason.startswith("its disk is full: ")
    assert found[3] is None
    assert lack_in(done(raising, SubjectNotReady("busy")), "sglang") is None
    assert lack_in(done(raising, UnknownSubject("no such module")), "") is None
    assert lack_in((True, Lack("no torch", "sglang"), ""), "") == Lack("no torch", "sglang")


def test_sources_that_do_not_fit_on_a_disk_are_a_lack_of_the_machine_and_leave_it_as_it_was(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "head" / BLOCK_MANAGER, f"# {os.urandom(100_000).hex()}")
    monkeypatch.setenv(CACHE, str(tmp_path / "head"))
    place, sources = place_of("vllm-v0==0.4.2"), sources_of("vllm-v0==0.4.2")
    assert place is not None
    archive = packed(place)
    monkeypatch.setenv(CACHE, str(small_disk))

    def unit(_: None) -> None:
        with at_hand(sources, lambda: archive):
            raise AssertionError("they do not fit")

    outcome = done(unit, None)
    lack = lack_in(outcome, "vllm-v0==0.4.2")
    assert lack is not None, outcome
    assert lack.reason.startswith("its disk is full: ")
    assert lack.need == ""  # it is given no more units of any subject
    assert [file for file in small_disk.rglob("*") if file.is_file()] == []
