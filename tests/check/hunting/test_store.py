"""The folder of a run belongs to one run at a time, and nothing outside it is written."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.spec.verdict import Exit

QUICK = ("--subject", "kvproof", "--effort", "300", "--seed", "1")
CAMPAIGN = """
out = "out"
[[search]]
subjects = ["kvproof"]
seeds = [1]
efforts = ["300"]
"""
COMMANDS = {
    "hunt": ("hunt", *QUICK, "--out", "out"),
    "verify": ("verify", *QUICK, "--judges", "walker", "--out", "out"),
    "campaign": ("campaign", "nightly.toml", "--workers", "1"),
}


@pytest.fixture
def folder(tmp_path: Path, few_scopes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a campaign."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nightly.toml").write_text(CAMPAIGN)
    return tmp_path


@pytest.mark.parametrize("command", [*COMMANDS])
@pytest.mark.parametrize("target", ["a file of somebody else", "nothing"])
def test_a_database_that_is_a_link_is_refused_and_nothing_is_written_where_it_points(
    folder: Path, command: str, target: str
) -> None:
    (folder / "out").mkdir()
    (folder / "out" / f"{command}.sqlite").symlink_to(folder / "outside")
    if target != "nothing":
        (folder / "outside").touch()
    done = CliRunner().invoke(app, [*COMMANDS[command]])
    assert (done.exit_code, f"out/{command}.sqlite is a symbolic link" in done.output) == (Exit.USAGE, True)
    assert not (folder / "outside").exists() or (folder / "outside").read_bytes() == b""
    if command != "campaign":
        done = CliRunner().invoke(app, [command, "--resume", "out"])
        assert done.exit_code == Exit.USAGE


@pytest.mark.parametrize("command", [*COMMANDS])
def test_a_folder_of_counterexamples_that_is_a_link_is_refused(folder: Path, command: str) -> None:
    (folder / "out").mkdir()
    (folder / "elsewhere").mkdir()
    (folder / "out" / "crashes").symlink_to(folder / "elsewhere")
    done = CliRunner().invoke(app, [*COMMANDS[command]])
    assert (done.exit_code, "out/crashes is a symbolic link" in done.output) == (Exit.USAGE, True)
