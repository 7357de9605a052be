"""What the README shows of a command is what the command prints.

A line of … stands for any lines, and a … at the end of a block for the rest of its last line.
"""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app

TREE = Path(__file__).parents[3]
LEFT_OUT = "…"  # a line of it, or the end of a line


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("hunt --subject examples/forty_lines_broken.py:Adapter --seed 1 --stop-at-first", 1),
        pytest.param("verify --seed 3747267390", 0, marks=[pytest.mark.long, pytest.mark.timeout(1_800)]),
    ],
)
def test_the_readme_shows_what_a_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: int
) -> None:
    (tmp_path / "examples").mkdir()
    for name in ("forty_lines_broken.py", "forty_lines.py"):
        shutil.copy(TREE / "examples" / name, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    shown = re.search(rf"^\$ kvproof {re.escape(command)}\n(.*?)^```", (TREE / "README.md").read_text(), re.M | re.S)
    assert shown is not None
    blocks = [one.strip("\n").removesuffix(LEFT_OUT) for one in re.split(r"^…$", shown[1], flags=re.M) if one.strip()]

    printed = CliRunner().invoke(app, command.split())

    assert printed.exit_code == code, printed.output
    places = [printed.output.find(block) for block in blocks]
    assert blocks
    assert -1 not in places, f"the README shows what is not printed:\n{printed.output}"
    assert places == sorted(places)
