"""Every committed document is read by today's readers, and says what it said when it was written.

`former/` has documents that earlier versions wrote, of the two broken examples: results with former signatures, which
also serve as baselines and known findings, saved runs, and recordings. The saved runs of engines are under
`examples/traces`; here they are read, and `test_identities_of_traces.py` replays them.
"""

import json
import shutil
from collections.abc import Callable
from datetime import date
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.counterexample.store import load
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.hunting.corpus.score_document import read_score
from kvproof.check.oracle.level import level_of_config, typed
from kvproof.check.recording.reader import RecordingReader
from kvproof.check.runs.known_findings import Known
from kvproof.check.runs.store import REPORTS
from kvproof.reports.baseline import findings, is_known, read_baseline
from kvproof.reports.document import read
from kvproof.reports.identity import Identity
from kvproof.reports.result import Result
from kvproof.reports.terminal import print_report
from kvproof.spec.verdict import Verdict

TREE = Path(__file__).parents[3]
FORMER = Path(__file__).parent / "former"
EXAMPLES = TREE / "examples"
BROKEN = "forty_lines_broken.py:Adapter"
NO_DOCUMENTS = {  # JSON that no command of kvproof writes for a user
    "docs/gpu/h200/speeds.json",
    "docs/gpu/h200-second-host/speeds.json",
    "tests/check/search/unchanged_runs.json",
    "tests/models/proofs/efforts.json",
    "tests/reports/sarif-schema-2.1.0.json",
}


def read_result(path: Path) -> None:
    """As `kvproof report` does."""
    result = read(path, Result)
    for render in REPORTS.values():
        render(result, path.parent)
    print_report(result, path.parent, Console(file=StringIO()))


def read_trace(path: Path) -> None:
    """As `kvproof replay` does, before it makes the subject."""
    trace = load(path)
    config, operations = config_of(trace, path), operations_of(trace, path)
    level = level_of_config(config)
    assert {name for name, *_ in operations} <= level.kinds.keys()
    assert all(typed(one).text(config) for one in operations)


def read_calls(path: Path) -> None:
    """As `kvproof validate` does, before it judges."""
    with RecordingReader(path) as recording:
        assert recording.header.interface
        assert [*recording.calls()]


def reader_of(path: Path) -> Callable[[Path], object] | None:
    """What reads a document; None if it is none."""
    first = json.loads(path.read_text().splitlines()[0] if path.suffix == ".jsonl" else path.read_text())
    kinds = {"run": read_result, "operations": read_trace, "kvproof_recording": read_calls, "tool": read_score}
    return next((reader for key, reader in kinds.items() if key in first), None)


DOCUMENTS = sorted(
    path
    for folder in ("docs", "examples", "tests")
    for suffix in ("json", "jsonl")
    for path in (TREE / folder).rglob(f"*.{suffix}")
    if path.relative_to(TREE).as_posix() not in NO_DOCUMENTS
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=[path.relative_to(TREE).as_posix() for path in DOCUMENTS])
def test_a_committed_document_is_read(path: Path) -> None:
    reader = reader_of(path)
    assert reader is not None, "it is of no kind that is known: give it a reader"
    reader(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the two subjects of the documents."""
    monkeypatch.chdir(tmp_path)
    for name in ("forty_lines_broken.py", "forty_lines.py", "forty_line_store_broken.py", "forty_line_store.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    return tmp_path


def kvproof(*arguments: str) -> int:
    return CliRunner().invoke(app, arguments).exit_code


def explored() -> tuple[int, list[dict[str, Any]]]:
    """What the search of a small scope says of the broken manager now: the exit code, and the findings."""
    sizes = ("--blocks", "2", "--seqs", "2", "--tokens", "2")
    code = kvproof("explore", "--subject", BROKEN, "--no-isolation", *sizes)
    checks = json.loads(Path(".kvproof/result.json").read_text())["checks"]
    return code, [check for check in checks if check["verdict"] == "refuted"]


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a_former_result_has_the_finding_of_today_under_its_former_signature(folder: Path, version: str) -> None:
    path = FORMER / version / "result.json"
    (before,) = (check for check in read(path, Result).checks if check.verdict is Verdict.REFUTED)
    assert before.signature == "fork: refcount of block: the specification says the subject"
    code, (now,) = explored()
    today = Identity(now["property"], now["signature"], now["former"])
    assert (code, today.property) == (1, before.property)
    assert today.signature != before.signature == today.former
    assert is_known(today, findings(read_baseline(path, BROKEN)))
    assert Known(before.property, "r", date.max, before.signature).covers(today, BROKEN)
    assert today.is_covered_by(Identity(before.property, "fork: *"), fnmatchcase)
    entry = f'[[known]]\nproperty = "{before.property}"\nsignature = "{before.signature}"\n'
    (folder / "kvproof.toml").write_text(f'{entry}reason = "r"\nexpires = 2999-01-31\n')
    code, (excused,) = explored()
    assert (code, excused["excused"]) == (0, "known until 2999-01-31: r")


@pytest.mark.parametrize(
    ("file", "broken", "right"),
    [
        ("0.1.0/trace.json", BROKEN, "forty_lines.py:Adapter"),
        ("0.2.0/trace.json", BROKEN, "forty_lines.py:Adapter"),
        ("0.2.0/trace-of-a-store.json", "forty_line_store_broken.py:Store", "forty_line_store.py:Store"),
    ],
)
def test_a_run_of_a_former_version_fails_until_the_fault_is_fixed(
    folder: Path, file: str, broken: str, right: str
) -> None:
    options = ("replay", str(FORMER / file), "--no-isolation")
    assert kvproof(*options, "--subject", broken) == 1
    done = CliRunner().invoke(app, [*options, "--subject", broken])
    assert f"{load(FORMER / file).property} is still refuted" in done.output
    assert kvproof(*options, "--subject", right) == 0


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a_former_recording_is_judged_as_before(folder: Path, version: str) -> None:
    assert kvproof("validate", str(FORMER / version / "recording.jsonl")) == 0
    checks = json.loads(Path(".kvproof/result.json").read_text())["checks"]
    verdicts = [check["verdict"] for check in checks]
    assert verdicts.count("not refuted") == 16
