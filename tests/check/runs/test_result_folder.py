"""Where results go: a document alone on standard output, places that cannot be written, a disk that is full."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.golden_files import Command
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app

FAULTY = """
import ctypes
from kvproof.check.subjects.builtin.manager import BuiltIn

print("said when imported")

class Forgetful(BuiltIn):
    def open(self, config):
        print("said in Python")
        ctypes.CDLL(None).puts(b"said in C")
        super().open(config)
    def fork(self, parent, child):
        super().fork(parent, child)
        for block in self.manager.tables[parent].ids:
            self.manager.refcounts[block] -= 1
"""
SIZES = ("--blocks", "2", "--seqs", "2", "--tokens", "2", "--no-isolation")
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a faulty subject that prints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(FAULTY)
    return tmp_path


def kvproof(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def explored(*options: str) -> Result:
    return kvproof("explore", "--subject", "faulty.py:Forgetful", *SIZES, *options)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A disk on which files whose names begin like one of these have no room."""
    names: list[str] = []
    write = Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        if path.name.lstrip(".").startswith(tuple(names)):
            raise FULL
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    return names


def test_what_an_adapter_prints_is_not_in_the_document(folder: Path) -> None:
    command = [sys.executable, "-m", "kvproof.check.cli.app", "explore", "--subject", "faulty.py:Forgetful"]
    done = subprocess.run([*command, *SIZES, "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["run"]["subject"] == "faulty.py:Forgetful"
    for said in ("said when imported", "said in Python", "said in C", "refcount-exact is refuted"):
        assert said in done.stderr


def test_a_document_that_has_no_reader_ends_the_command_without_a_traceback(folder: Path) -> None:
    command = [sys.executable, "-m", "kvproof.check.cli.app", "explore", "--blocks", "1", "--seqs", "1"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*command, "--tokens", "1", "--json", "-"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_file_that_cannot_be_written_is_an_error_before_the_run(folder: Path) -> None:
    done = explored("--json", "/proc/result.json")
    assert done.exit_code in (2, 3)
    assert "kvproof: /proc/result.json" in done.stderr
    assert "explorer: begins" not in done.output
    assert not (folder / ".kvproof").exists()


def test_a_folder_that_cannot_be_written_is_an_error_before_the_run(folder: Path) -> None:
    done = explored("--out", "/proc/out")
    assert done.exit_code in (2, 3)
    assert "kvproof: /proc/out cannot be used" in done.stderr
    assert "explorer: begins" not in done.output


def test_a_run_that_has_no_room_for_its_counterexample_tells_it_with_its_steps(
    folder: Path, full: list[str], command: Command
) -> None:
    full.append("refcount-exact")
    assert command("explore", "--subject", "faulty.py:Forgetful", *SIZES).exit_code == 1


@pytest.mark.parametrize(("subject", "code"), [("faulty.py:Forgetful", 1), ("kvproof", 3)])
def test_a_full_disk_is_an_error_and_the_verdict_is_still_printed(
    folder: Path, full: list[str], monkeypatch: pytest.MonkeyPatch, subject: str, code: int, command: Command
) -> None:
    from kvproof.check.runs.store import Store

    open_ = Store.open

    def opened(store: Store, result: object) -> None:
        open_(store, result)  # type: ignore[arg-type]
        full.append("")  # from now on there is no room for any file

    monkeypatch.setattr(Store, "open", opened)
    assert command("explore", "--subject", subject, *SIZES, "--json", "elsewhere.json").exit_code == code


def test_a_subject_that_there_is_not_is_a_mistake_of_who_replays(folder: Path, command: Command) -> None:
    explored()
    (saved,) = Path(".kvproof", "crashes").glob("*.json")
    for subject in ("kvprof", "nowhere:make", "faulty.py:None_"):
        assert command("replay", saved, "--subject", subject).exit_code == 2
    assert command("replay", saved, "--subject", "kvproof-pool").exit_code != 2  # it is one, and cannot do this
