"""The file of the results of planted faults, from which `kvproof faults --resume` goes on."""

from dataclasses import replace
from pathlib import Path

import pytest

from kvproof.audit.cli import fault_store
from kvproof.audit.cli.fault_store import FaultStore
from kvproof.check.hosts.workers import digest_of
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.store import StoreError

SETTINGS = {"judges": ("prover", "pin")}
FAULT = "lose: state.refcount[block] -= 1 -> nothing"


def written(file: Path) -> None:
    FaultStore.opened(file, SETTINGS, False).add(FAULT, "the text", "prover", "an obligation", 1.5)


def test_a_result_is_on_disk_at_once_and_found_again(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "faults.sqlite"
    written(file)
    found = FaultStore.opened(file, SETTINGS, True).find("the text")
    assert found is not None
    assert (found.fault, found.by, found.evidence, found.seconds) == (FAULT, "prover", "an obligation", 1.5)


def test_a_result_of_another_question_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "faults.sqlite"
    written(file)
    store = FaultStore.opened(file, SETTINGS, True)
    assert store.find("another text") is None
    assert replace(store, settings={"judges": ("pin",)}).find("the text") is None
    with monkeypatch.context() as patch:
        patch.setattr(fault_store, "tree_digest", lambda: "another tree")
        assert store.find("the text") is None
    with monkeypatch.context() as patch:
        patch.setattr(fault_store, "environment", lambda: ["another solver"])
        assert store.find("the text") is None
    assert store.find("the text") is not None


def test_the_digest_of_a_tree_changes_with_each_name_and_content(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = digest_of([tmp_path])
    (tmp_path / "notes.md").write_text("no code")
    assert digest_of([tmp_path]) == first
    (tmp_path / "a.py").write_text("2")
    second = digest_of([tmp_path])
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, digest_of([tmp_path])}) == 3


def test_a_file_with_something_else_or_without_resume_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    file = tmp_path / "faults.sqlite"
    written(file)
    with pytest.raises(UsageError, match="is not empty; continue with --resume"):
        FaultStore.opened(file, SETTINGS, False)
    file.write_text('{"fault": "of an earlier version"}\n')
    with pytest.raises(UsageError, match=r"faults.sqlite has no results of this version of kvproof faults"):
        FaultStore.opened(file, SETTINGS, True)


def test_a_result_of_another_form_is_one_message(tmp_path: Path) -> None:
    file = tmp_path / "faults.sqlite"
    store = FaultStore.opened(file, SETTINGS, False)
    store.results.add(store.digest("the text"), "", 0.0, {"fault": 7})
    with pytest.raises(StoreError, match="is damaged"):
        store.find("the text")
