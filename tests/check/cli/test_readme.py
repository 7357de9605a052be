"""What the README shows of a command is what the command prints. A line of … stands for any lines."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app

TREE = Path(__file__).parents[3]


def test_the_rejected_run_of_the_readme_is_what_a_hunt_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").mkdir()
    for name in ("forty_lines_broken.py", "forty_lines.py"):
        shutil.copy(TREE / "examples" / name, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    command = "hunt --subject examples/forty_lines_broken.py:Adapter --seed 1 --stop-at-first"
    shown = re.search(rf"^\$ kvproof {re.escape(command)}\n(.*?)^```", (TREE / "README.md").read_text(), re.M | re.S)
    assert shown is not None
    blocks = [block.strip("\n") for block in re.split(r"^…$", shown[1], flags=re.M) if block.strip()]

    printed = CliRunner().invoke(app, command.split())

    assert printed.exit_code == 1
    places = [printed.output.find(block) for block in blocks]
    assert blocks
    assert -1 not in places, f"the README shows what is not printed:\n{printed.output}"
    assert places == sorted(places)
