"""A run that must be refuted is counted as wrong if it ends otherwise, names no reason, or passes what was not run."""

import json
from pathlib import Path

import pytest
from benchmarks.gpu_breaking import BREAKING, complaint
from benchmarks.gpu_regressions import Planted

from benchmarks import gpu_breaking

WRONG_BYTE, _, ENDLESS = BREAKING
NOTES = ["After move, no more cases could be run on cuda: its work has not ended after 5 s."]


def complained(
    tmp_path: Path,
    one: gpu_breaking.Breaking,
    notes: list[str],
    verdict: str = "unknown",
    text: str = "",
    code: int = 1,
) -> str:
    checks = [{"id": "swaps", "verdict": "refuted", "text": text}, {"id": "copies", "verdict": verdict, "text": ""}]
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"data_plane": {"notes": notes}, "checks": checks}))
    return complaint(one, code, file)


def test_a_run_that_names_the_reason_and_passes_nothing_is_as_it_must_be(tmp_path: Path) -> None:
    assert complained(tmp_path, ENDLESS, NOTES) == ""
    assert complained(tmp_path, WRONG_BYTE, [], "not refuted", "it must hold the key of block 3") == ""


def test_a_run_that_ends_otherwise_names_no_reason_or_passes_something_is_not(tmp_path: Path) -> None:
    assert complained(tmp_path, ENDLESS, NOTES, code=0) == "exit code 0, 1 wanted"
    assert "nothing says 'its work has not ended'" in complained(tmp_path, ENDLESS, ["it was slow"])
    assert "no note says that the device broke" in complained(tmp_path, ENDLESS, ["its work has not ended"])
    assert complained(tmp_path, ENDLESS, NOTES, "not refuted") == "not refuted, on a broken device: copies"
    assert "nothing says" in complained(tmp_path, WRONG_BYTE, [], text="it raised")
    assert "its result cannot be read" in complaint(ENDLESS, 1, tmp_path / "nothing.json")


def test_each_run_has_a_line_and_one_that_is_wrong_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(one: Planted, device: str, out: Path, baseline: Path | None) -> int:
        says = next(breaking.says for breaking in BREAKING if breaking.run is one)
        notes = [f"no more cases could be run: {says}"]
        (out / f"{one.name}.json").write_text(json.dumps({"data_plane": {"notes": notes}, "checks": []}))
        return 1 if one.name != "endless" else 3

    monkeypatch.setattr(gpu_breaking, "run", run)
    assert gpu_breaking.main(["--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "out-of-bounds: exit code 1, and it is named\n" in printed
    assert "endless: exit code 3, 1 wanted\n2 of 3 runs ended as they must\n" in printed
