"""Campaigns over many subjects: what ran is on disk, is not run again, and is all that a table claims."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.campaign import drive, earlier, fault, findings, folder_of, num_operations

from benchmarks import campaign, engines_matrix, engines_table, false_alarms
from kvproof.check.subjects import SubjectNotReady
from kvproof.check.subjects.loading import EngineError, download
from kvproof.check.subjects.registry import NAMED
from kvproof.reports.result import Check, Result, Run, WitnessCount
from kvproof.spec.verdict import Verdict


def result(subject: str, *checks: Check, operations: int = 7, message: str = "") -> Result:
    passed = Check("loop/progress", "loop", "progress", Verdict.NOT_REFUTED, counts={"operations": operations})
    run = Run("0", "campaign", subject, 1, {"lacks": "swapping"}, is_complete=True)
    made = Result(run, [passed, *checks], messages=[message] * bool(message))
    made.witnesses = [WitnessCount("fork", "loop", 0), WitnessCount("hit", "loop", 3)]
    return made


REFUTED = Check(
    "loop/read-back", "loop", "read-back", Verdict.REFUTED, text="wrong bytes", signature="run: wrong | bytes"
)


def test_a_subject_is_driven_once_and_its_result_is_kept(tmp_path: Path) -> None:
    done = drive("kvproof-pool", 200, 1, tmp_path)
    assert (num_operations(done), findings(done), fault(done)) == (200, [], "")
    assert (done.run.host["level"], "swapping" in done.run.host["lacks"]) == ("pool", True)
    kept = earlier(tmp_path)
    assert kept is not None
    assert num_operations(kept) == 200


def test_a_release_that_cannot_be_had_is_a_result_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(spec: str) -> Path:
        raise EngineError(f"there is no {spec}")

    monkeypatch.setattr(download, "add", missing)
    done = drive("vllm-v1==0.33.0", 200, 1, tmp_path)
    assert (done.checks, fault(done)) == ([], "not driven: there is no vllm==0.33.0")
    assert earlier(tmp_path) is not None


def test_a_subject_that_was_not_ready_in_time_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def factory_for(subject: str) -> Any:
        raise SubjectNotReady(f"{subject}: the subject was not ready within 60 s")

    monkeypatch.setattr(campaign, "factory_for", factory_for)
    done = drive("kvproof-pool", 200, 1, tmp_path)
    assert done.messages == ["not driven: kvproof-pool: the subject was not ready within 60 s"]
    assert earlier(tmp_path) is None


ROW = NAMED["vllm-v1-scheduler"]
RESULTS = {
    "1.0": result("a", REFUTED),
    "1.2": result("a", REFUTED, operations=5),
    "1.3": result("a"),
    "1.4": result("a", message="loop failed by a fault of kvproof: a stand-in"),
}


def test_the_table_has_what_ran_and_lists_the_rest_as_not_run() -> None:
    releases = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]
    rows = [
        "1.0, 1.2 | 5 | refuted | `read-back` run: wrong / bytes | fork",
        "1.3 | 7 | not refuted |  | fork",
        "1.4 | 7 | not driven | loop failed by a fault of kvproof: a stand-in | fork",
        "1.1, 1.5 | 0 | not run |  | ",
    ]
    lines = engines_table.rendered({ROW.name: engines_table.merged(ROW, releases, RESULTS, None)}).splitlines()
    assert lines[2:6] == [f"| `vllm-v1-scheduler` scheduler | {cells} |" for cells in rows]
    assert lines[-1] == "- `vllm-v1-scheduler`: swapping"


def test_the_table_that_is_read_back_and_written_again_is_the_same() -> None:
    page = engines_matrix.PAGE.read_text(encoding="utf-8")
    assert engines_table.replaced(page, {}) == page
    assert "not refuted" in engines_table.rendered(engines_table.parsed(page))


def test_features_that_a_release_lacks_are_kept_until_every_release_ran_again() -> None:
    before = engines_table.merged(ROW, ["1.0", "1.3"], RESULTS, None)
    before.lacks = {"swapping", "images"}
    assert engines_table.merged(ROW, ["1.0", "1.3"], {"1.0": RESULTS["1.0"]}, before).lacks == {"swapping", "images"}
    assert engines_table.merged(ROW, ["1.0", "1.3"], RESULTS, before).lacks == {"swapping"}


PAGE = f"""What ran.
{engines_table.BEGIN}{engines_table.HEAD}\
| `sglang` manager | 0.5.9, 0.5.23 | 2,000 | not refuted |  |  |
| `vllm-v1` manager | 1.0, 1.1 | 2,000 | not refuted |  | reset |
| `vllm-v1` manager | 1.2 | 0 | not run |  |  |
{engines_table.LACKING}\
- `sglang`: images, swapping / swapping
- `vllm-v1`: swapping
{engines_table.END}The end.
"""


def test_a_run_of_some_releases_puts_their_rows_in_place_and_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "engines.md"
    page.write_text(PAGE, encoding="utf-8")
    done: dict[str, Result] = {}
    driven: list[str] = []

    def drive(subject: str, operations: int, seed: int, folder: Path) -> Result:
        driven.append(subject)
        if driven == ["vllm-v1==1.2", "vllm-v1==1.0"]:
            raise KeyboardInterrupt
        done[folder.name] = result(subject, *[REFUTED] * subject.endswith("1.0"), operations=operations)
        return done[folder.name]

    monkeypatch.setattr(engines_matrix, "PAGE", page)
    monkeypatch.setattr(engines_matrix, "releases_of", lambda row: ["1.0", "1.1", "1.2"])
    monkeypatch.setattr(engines_matrix, "earlier", lambda folder: done.get(folder.name))
    monkeypatch.setattr(engines_matrix, "drive", drive)
    some = ["--out", str(tmp_path), "--only", "vllm-v1==1.2", "--only", "vllm-v1==1.0"]
    with pytest.raises(KeyboardInterrupt):
        engines_matrix.main(some)
    before = PAGE[PAGE.index("| `vllm-v1`") : PAGE.index(engines_table.LACKING)]
    first = "| `vllm-v1` manager | 1.0, 1.1, 1.2 | 2,000 | not refuted |  |  |\n"
    assert page.read_text(encoding="utf-8") == PAGE.replace(before, first)

    engines_matrix.main(some)
    both = """\
| `vllm-v1` manager | 1.0 | 3,000 | refuted | `read-back` run: wrong / bytes | fork |
| `vllm-v1` manager | 1.1, 1.2 | 2,000 | not refuted |  |  |
"""
    assert driven == ["vllm-v1==1.2", "vllm-v1==1.0", "vllm-v1==1.0"]
    assert page.read_text(encoding="utf-8") == PAGE.replace(before, both)


def test_of_each_subject_the_newest_release_runs_first_then_the_oldest_then_the_middle() -> None:
    sizes = {NAMED["vllm-v1"]: 5, NAMED["sglang"]: 2}
    entries = {
        row.name: [engines_matrix.Entry(row, str(v), str(v)) for v in range(size)] for row, size in sizes.items()
    }
    order = [entry.subject for entry in engines_matrix.in_turn(entries)]
    assert order == ["vllm-v1==4", "sglang==1", "vllm-v1==0", "sglang==0", "vllm-v1==2", "vllm-v1==1", "vllm-v1==3"]


def test_the_bar_counts_what_it_did_before_and_drops_a_subject_that_is_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven: list[tuple[str, int]] = []

    def drive(subject: str, operations: int, seed: int, folder: Path, fixed: dict[str, bool] | None) -> Result:
        driven.append((subject, seed))
        return result(subject, *[REFUTED] * (subject == "bad"), operations=operations)

    monkeypatch.setattr(false_alarms, "drive", drive)
    before = folder_of(tmp_path, "good") / "1"
    kept = {before: result("good", operations=10)}
    monkeypatch.setattr(false_alarms, "earlier", kept.get)
    counts, alarms = false_alarms.bar(["good", "bad"], 40, 10, tmp_path)
    assert counts == {"good": 30, "bad": 10}
    assert alarms == ["bad, seed 1: loop/read-back: wrong bytes"]
    assert driven == [("bad", 1), ("good", 2), ("good", 3)]
