"""Which judges `kvproof verify` runs, and what it takes from the record of the release."""

import ast
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.runs import judges
from kvproof.check.runs.errors import UsageError
from kvproof.check.runs.judges import settled_judges
from kvproof.check.search.strategies import MANAGERS, SCHEDULERS
from kvproof.models import proof_record
from kvproof.models.proof_record import ProofRecord

RECORD = ProofRecord("0.1.0", "a", "b", 3348, 264, ["z3 4.13.0"], "2026-01-31")
WHOLE = {"prover", "specification", "explorer", "data-plane", "walker", "hypothesis"}


def test_the_record_is_of_the_specification_as_it_is() -> None:
    record, reason = proof_record.read_record()
    assert reason == "", "run make proofs-record"
    assert record is not None
    assert record.for_every_size > 3_000


def test_a_specification_that_changed_has_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_record, "digest_of_text", lambda: "another")
    record, reason = proof_record.read_record()
    assert record is None
    assert reason == "the text of the specification, or what reads it, has changed since it was recorded"


@pytest.mark.parametrize(
    "name",
    [
        "text/rules.py",
        "store/rules.py",
        "language.py",
        "compilation.py",
        "native.py",
        "sizes.py",
        "translation/terms.py",
    ],
)
def test_a_file_that_says_what_the_specification_means_is_in_the_record(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, read_bytes = proof_record.digest_of_text(), Path.read_bytes

    def changed(file: Path) -> bytes:
        return read_bytes(file) + (b"\n" if file.as_posix().endswith(f"/{name}") else b"")

    monkeypatch.setattr(Path, "read_bytes", changed)
    assert proof_record.digest_of_text() != before


def test_the_record_has_every_file_of_ours_that_its_readers_import() -> None:
    root = proof_record.TRANSLATION.parents[3]
    assert (root / "spec").is_dir()
    spec = root / "spec" / "kvproof" / "spec"
    readers = [*(spec / f"{name}.py" for name in proof_record.READERS), *proof_record.TRANSLATION.glob("*.py")]
    imported = set[str]()
    for file in readers:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvproof.spec."):
                imported.add(str(node.module).split(".")[2])
            elif isinstance(node, ast.ImportFrom) and node.module == "kvproof.spec":
                imported.update(alias.name for alias in node.names)
    assert imported - {*proof_record.READERS} <= {"text", "contracts", "store"}


@pytest.mark.parametrize("damage", [{"solvers": None}, {"bounded": "many"}])
def test_a_damaged_record_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: dict[str, Any]) -> None:
    whole = json.loads(proof_record.FILE.read_bytes())
    (file := tmp_path / "record.json").write_text(json.dumps(whole | damage))
    monkeypatch.setattr(proof_record, "FILE", file)
    record, reason = proof_record.read_record()
    assert record is None
    assert reason.startswith("the record of the proofs cannot be read (Expected ")


def test_a_subject_of_kvproof_has_all_judges() -> None:
    assert settled_judges([], "kvproof", MANAGERS, True).names == WHOLE


@pytest.mark.parametrize("subject", ["mine.py:Adapter", "pipe:./manager", "vllm-v0==0.9.2"])
def test_a_foreign_subject_is_judged_and_the_specification_is_taken_from_the_record(
    subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judges, "read_record", lambda: (RECORD, ""))
    chosen = settled_judges([], subject, MANAGERS, False)
    assert chosen.names == WHOLE - {"prover", "specification"}
    (assumption,) = chosen.assumptions
    assert assumption.sentence == (
        "the specification is as proved in kvproof 0.1.0 on 2026-01-31, by z3 4.13.0: 3,348 obligations for every "
        "size, 264 for objects of a bounded size; this run did not prove them again"
    )


def test_without_a_record_that_fits_the_specification_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = dataclasses.replace(RECORD, text="c")
    monkeypatch.setattr(judges, "read_record", lambda: (None, changed.mismatch()))
    chosen = settled_judges([], "mine.py:Adapter", MANAGERS, False)
    assert chosen.names == WHOLE
    assert chosen.messages == (
        "the text of the specification, or what reads it, has changed since it was recorded, so this run proves and "
        "searches the specification",
    )


def test_a_required_judge_runs_and_takes_the_place_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judges, "read_record", lambda: (RECORD, ""))
    chosen = settled_judges([], "mine.py:Adapter", MANAGERS, False, ["data-plane"])
    assert chosen.names == WHOLE - {"prover", "specification"}
    assert chosen.required == ("data plane",)
    assert chosen.assumptions != ()
    chosen = settled_judges([], "mine.py:Adapter", MANAGERS, False, ["prover,data plane"])
    assert chosen.names == WHOLE - {"specification"}
    assert chosen.required == ("prover", "data plane")
    assert chosen.assumptions == (), "nothing is taken from the record that is proved again"
    assert settled_judges(["walker"], "kvproof", MANAGERS, True, ["prover"]).names == {"walker", "prover"}
    with pytest.raises(UsageError, match=r"^--require: no judge of kvproof-scheduler is named 'walker'; there are"):
        settled_judges([], "kvproof-scheduler", SCHEDULERS, True, ["walker"])


def test_judges_are_chosen_by_name() -> None:
    assert settled_judges(["walker, explorer"], "kvproof", MANAGERS, True).names == {"walker", "explorer"}
    assert settled_judges(["data plane", "prover"], "x.py:X", MANAGERS, False).names == {"data-plane", "prover"}
    with pytest.raises(UsageError, match=r"no judge of kvproof-scheduler is named 'walker'; there are prover, .*loop"):
        settled_judges(["walker"], "kvproof-scheduler", SCHEDULERS, True)
