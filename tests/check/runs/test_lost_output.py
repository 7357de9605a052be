"""A command whose standard output can no longer be written."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path

import pytest
import typer

from kvproof.check.cli import app
from kvproof.check.runs.errors import error_boundary
from kvproof.check.runs.json_output import STANDARD_OUTPUT, write_document
from kvproof.check.runs.store import StoreError
from kvproof.check.runs.terminal import output, say
from kvproof.models.proofs.lints import lint_names
from kvproof.spec.verdict import Exit

MESSAGE = "kvproof: standard output cannot be written (No space left on device); what follows is not printed\n"


@contextmanager
def full_output() -> Iterator[None]:
    """Within the block, standard output is a device without space."""
    with suppress(OSError), Path("/dev/full").open("w", encoding="utf-8") as stream, redirect_stdout(stream):
        yield


def command(*lines: str, code: Exit) -> None:
    with error_boundary():
        console = output()
        for line in lines:
            say(console, line)
        raise typer.Exit(code)


def kvproof(*arguments: str) -> object:
    """The exit code of a command whose standard output is full."""
    with pytest.MonkeyPatch.context() as patch, full_output():
        patch.setattr(sys, "argv", ["kvproof", *arguments])
        with pytest.raises(SystemExit) as ended:
            app.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("own", "code"), [(Exit.OK, Exit.INTERNAL), (Exit.REFUTED, Exit.REFUTED), (Exit.INCONCLUSIVE, Exit.INTERNAL)]
)
def test_the_command_goes_on_and_reports_it_once(own: Exit, code: Exit, capsys: pytest.CaptureFixture[str]) -> None:
    with full_output(), pytest.raises(typer.Exit) as ended:
        command("first", "second", code=own)
    assert ended.value.exit_code == code
    assert capsys.readouterr().err == MESSAGE


@pytest.mark.parametrize("argument", ["--version", "--help", "subjects"])
def test_every_command_ends_with_one_message(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvproof(argument) == Exit.INTERNAL
    assert capsys.readouterr().err == MESSAGE


def test_the_result_is_written_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    assert kvproof("prove", "--only", "lint", "--json", str(file)) == Exit.INTERNAL
    assert json.loads(file.read_text())["totals"]["proved"] == len(lint_names())


def test_a_document_that_cannot_be_written_to_standard_output_is_named() -> None:
    with full_output(), pytest.raises(StoreError, match="standard output cannot be written") as failed:
        write_document(STANDARD_OUTPUT, b"{}")
    assert failed.value.exit_code == Exit.INTERNAL


PRINTS_AND_OPENS = """
import os, sys
from kvproof.check.cli.app import main
sys.argv[1:] = ["--version"]
try:
    main()
finally:
    os.write(2, b"%d" % os.open(".", 0))
"""


def test_a_stream_that_is_closed_loses_what_is_written_and_gets_no_file() -> None:
    command = f"{sys.executable} -c {shlex.quote(PRINTS_AND_OPENS)} <&- >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (Exit.OK, "3")


def test_a_working_folder_that_is_gone_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "argv", ["kvproof", "subjects"])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == Exit.USAGE
    assert capsys.readouterr().err == (
        "kvproof: the working folder cannot be used (No such file or directory); change to another one\n"
    )
