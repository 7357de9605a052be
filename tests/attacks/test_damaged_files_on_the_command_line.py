"""A damaged file gets one message and the exit code 2 from the command that reads it, and never a traceback."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from tests.attacks.test_files import Kind, kinds
from tests.check.drawn_runs import cheaply
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.spec.verdict import Exit

__all__ = ["kinds"]  # a fixture
NUM_CASES = 25
COMMANDS: dict[str, Callable[[str], list[str]]] = {  # by the kind of file; with the name of the file
    "trace": lambda name: ["replay", name, "--subject", "kvproof", "--no-isolation"],
    "result": lambda name: ["report", "."],
    "recording": lambda name: ["validate", name, "--out", "out"],
    "recording of a store": lambda name: ["validate", name, "--out", "out"],
    "configuration": lambda name: ["config"],
    "history": lambda name: ["history", "--history", name],
    "compared": lambda name: ["compare", name, name],
    "devices": lambda name: ["device", "compare", name, name],
}
LEADS = {"trace": "ERROR"}  # a line says of each trace what became of it
DECIDED = {Exit.OK, Exit.REFUTED, Exit.INCONCLUSIVE, Exit.NOTHING_CHECKED, Exit.WORSE_THAN_BASELINE}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_file_gets_one_message(
    kinds: dict[str, Kind], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, codes = kinds[name], set[int]()
    for file, data in kind.beside:
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_bytes(data)

    @cheaply(NUM_CASES)
    @given(kind.files)
    def one(data: bytes) -> None:
        Path(kind.name).write_bytes(data)
        done = CliRunner().invoke(app, COMMANDS[name](kind.name))
        codes.add(done.exit_code)
        assert done.exception is None or isinstance(done.exception, SystemExit), data
        assert "Traceback" not in done.output
        assert "fault of kvproof" not in done.output
        if done.exit_code != Exit.USAGE:
            assert done.exit_code in DECIDED, done.output
            return
        assert [line.partition(" ")[0] for line in done.output.splitlines()] == [LEADS.get(name, "kvproof:")], (
            done.output
        )

    one()
    assert Exit.USAGE in codes
