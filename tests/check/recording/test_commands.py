"""`kvproof record` and `kvproof validate`: what they print, what they leave, and their exit codes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.golden_files import Command

from kvproof.check.recording import import_hook
from kvproof.check.recording.format import RecordedCall
from kvproof.check.recording.vllm_v0.judge import V0Judge
from kvproof.reports import result as documents
from kvproof.spec import verdict

Serve = Callable[..., Path]
PROGRAM = """
from kvproof.impl import BlockManager, Sequence, SequenceGroup

for seq_id in (1, 2):
    manager = BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0)
    manager.allocate(SequenceGroup("r", [Sequence(seq_id, [1, 2, 3], 4)]))
"""


@pytest.fixture
def kvproof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> Command:
    monkeypatch.chdir(tmp_path)
    return command


def test_a_recorded_subject_is_consistent(kvproof: Command, tmp_path: Path) -> None:
    options = ("--subject", "kvproof-scheduler", "--seed", "3", "--steps", "200", "--fix", "caching=true")
    assert kvproof("record", *options, "--out", "run.jsonl").exit_code == 0
    assert kvproof("validate", "run.jsonl", "--json", "result.json").exit_code == 0
    result = msgspec.json.decode((tmp_path / "result.json").read_bytes(), type=documents.Result)
    verdicts = {check.property: check.verdict for check in result.checks}
    assert verdicts["read-back"] is verdict.Verdict.NOT_REFUTED
    assert verdicts["progress"] is verdict.Verdict.UNSUPPORTED
    assert {check.judge for check in result.checks} == {"recording"}


def test_a_divergence_is_reported_with_its_line_and_the_lines_before(
    kvproof: Command, serve: Serve, tmp_path: Path
) -> None:
    lines = serve(1, 30).read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if '"call":"free"' in line)
    lines[place] = lines[place].replace('"free":[', '"free":[1')
    path = tmp_path / "wrong.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert kvproof("validate", path).exit_code == 1


def test_the_worst_of_several_files_counts(kvproof: Command, serve: Serve, tmp_path: Path) -> None:
    good = serve(1, 20)
    header, *calls = good.read_text().splitlines()
    late, bare, killed, foreign = (tmp_path / name for name in ("late", "bare", "killed", "foreign"))
    late.write_text("\n".join([header.replace('"is_fresh":true', '"is_fresh":false'), *calls]) + "\n")
    bare.write_text("\n".join([header, calls[-1].replace(f'"n":{len(calls)}', '"n":1')]) + "\n")
    killed.write_text("\n".join([header, *calls[:-1]]) + "\n")
    foreign.write_text("no\n")
    assert kvproof("validate", bare).exit_code == 5
    assert kvproof("validate", late).exit_code == 4
    assert kvproof("validate", killed).exit_code == 4
    assert kvproof("validate", good, late).exit_code == 4
    assert kvproof("validate", good, foreign).exit_code == 2
    assert kvproof("validate", tmp_path / "none").exit_code == 2


def test_standard_input_is_read(serve: Serve, tmp_path: Path) -> None:
    program = "from kvproof.check.cli.app import main; main()"
    with serve(1, 20).open("rb") as stdin:
        command = [sys.executable, "-c", program, "validate", "-", "--out", str(tmp_path / "out")]
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("standard input: consistent")


def environment() -> dict[str, str]:
    """That of a process which finds kvproof where this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_command_records_every_manager_that_it_makes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = "from kvproof.check.cli.app import main; main()"
    command = [sys.executable, "-c", program, "record", "--out", "live.jsonl", "--", sys.executable, "program.py"]
    for names in ("live.jsonl live-2.jsonl", "live.jsonl live-3.jsonl"):
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert f"judge with: kvproof validate {names}\n" in done.stdout
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["live-2.jsonl", "live-3.jsonl", "live.jsonl"]
    for number, name in enumerate(("live.jsonl", "live-2.jsonl"), 1):
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        assert lines[1]["seqs"][0]["seq"] == number
        assert lines[-1]["call"] == "recording ended"


def test_a_python_with_an_install_of_its_own_records_each_manager_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    theirs, recorders = tmp_path / "theirs", tmp_path / "recorders"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("print('their sitecustomize')")
    shutil.copytree(import_hook.PLACE, recorders)  # of the kvproof that records, which is another install
    command = [sys.executable, "program.py"]
    given = import_hook.environment(tmp_path / "live.jsonl", shows_pool=False, digest_key=None)
    path = os.pathsep.join([str(recorders), str(theirs), environment()["PYTHONPATH"]])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=given | {"PYTHONPATH": path},
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "their sitecustomize\n", "")
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["live-2.jsonl", "live.jsonl"]


def test_a_recording_that_is_begun_twice_in_a_process_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(import_hook.FILE, "live.jsonl")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = len(sys.meta_path)
    import_hook.install()
    import_hook.install()
    assert len(sys.meta_path) == before + 1


def test_files_that_are_no_recordings_are_kept(kvproof: Command, tmp_path: Path) -> None:
    for name in ("run-777.jsonl", "run-2.jsonl", "run.jsonl"):
        (tmp_path / name).write_text("mine")
    for whose in (("--", "true"), ("--subject", "kvproof", "--steps", "5")):
        assert kvproof("record", "--out", "run.jsonl", *whose).exit_code == 2
        assert (tmp_path / "run.jsonl").read_text() == "mine"
    (tmp_path / "run.jsonl").unlink()
    assert kvproof("record", "--out", "run.jsonl", "--", "true").exit_code == 5
    assert [(tmp_path / f"run-{number}.jsonl").read_text() for number in (777, 2)] == ["mine", "mine"]


def test_a_recording_is_kept_if_the_command_cannot_be_started(kvproof: Command, tmp_path: Path) -> None:
    subject = ("--subject", "kvproof", "--seed", "1", "--steps", "5")
    assert kvproof("record", *subject, "--out", "run.jsonl").exit_code == 0
    before = (tmp_path / "run.jsonl").read_bytes()
    assert kvproof("record", "--out", "run.jsonl", "--", "./no-such-command").exit_code == 2
    assert (tmp_path / "run.jsonl").read_bytes() == before


def test_a_recorded_process_does_not_record_its_commands_again(
    kvproof: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(import_hook.FILE, "live.jsonl")
    assert kvproof("record", "--", "true").exit_code == 2


def test_the_exit_code_of_a_recorded_command_is_kept(kvproof: Command) -> None:
    assert kvproof("record", "--", sys.executable, "-c", "raise SystemExit(7)").exit_code == 7


def diverging(path: Path, good: Path) -> Path:
    """A recording whose third line counts one free block too few."""
    lines = good.read_text().splitlines()
    call = json.loads(lines[2])
    call["free"][0] -= 1
    path.write_text("\n".join([*lines[:2], json.dumps(call), *lines[3:]]) + "\n")
    return path


def test_a_broken_file_does_not_lose_what_the_others_show(kvproof: Command, serve: Serve, tmp_path: Path) -> None:
    good = serve(1, 20)
    wrong, broken = diverging(tmp_path / "wrong", good), tmp_path / "broken"
    broken.write_text(good.read_text().splitlines()[0] + "\n{}\n")
    for files, code in (((wrong, broken), 1), ((broken, wrong), 1), ((good, broken), 2), ((broken, good), 2)):
        assert kvproof("validate", *files).exit_code == code
        result = msgspec.json.decode(Path(".kvproof/result.json").read_bytes(), type=documents.Result)
        assert not result.run.is_complete
        assert [check.property for check in result.checks if check.is_failure] == ["failed-call-changes-nothing"][
            : wrong in files
        ]
        assert any(str(broken) in message for message in result.messages)


def test_a_folder_that_cannot_be_used_is_found_before_the_file_is_read(kvproof: Command, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "result.json").write_text("mine")
    assert kvproof("validate", "none.jsonl", "--out", "foreign").exit_code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_validation_keeps_what_was_found(
    kvproof: Command, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    good = serve(1, 20)
    wrong = diverging(tmp_path / "wrong", good)

    def interrupts(judge: V0Judge, call: RecordedCall) -> None:
        if call.n == 7:
            signal.raise_signal(number)
        explain(judge, call)

    explain = V0Judge.explain
    monkeypatch.setattr(V0Judge, "explain", interrupts)
    assert kvproof("validate", good).exit_code == 4
    assert kvproof("validate", wrong, good, tmp_path / "none").exit_code == 1
    result = msgspec.json.decode(Path(".kvproof/result.json").read_bytes(), type=documents.Result)
    assert not result.run.is_complete
