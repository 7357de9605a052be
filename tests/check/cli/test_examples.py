"""`kvproof examples`, and the completion of the shell."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.runs import shipped_examples
from kvproof.spec.verdict import Exit

TREE = Path(__file__).parents[3]


def test_the_examples_are_listed_with_what_they_show() -> None:
    done = CliRunner().invoke(app, ["examples"])
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert done.exit_code == Exit.OK
    assert lines.keys() == {path.name + "/" * path.is_dir() for path in visible(TREE / "examples")}
    assert lines["pipe_manager.c"].startswith("A block manager in C that kvproof checks over a pipe")
    assert lines["traces/"] == f"{len(list((TREE / 'examples' / 'traces').iterdir()))} files"


def test_the_examples_are_copied_to_a_new_folder_and_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "examples"
    done = CliRunner().invoke(app, ["examples", str(folder)])
    assert done.exit_code == Exit.OK
    assert f"--subject {folder}/forty_lines_broken.py:Adapter" in done.stdout.replace("\n", "")
    assert {path.name for path in folder.iterdir()} == {path.name for path in visible(TREE / "examples")}
    assert (folder / "forty_lines.py").read_bytes() == (TREE / "examples" / "forty_lines.py").read_bytes()
    again = CliRunner().invoke(app, ["examples", str(folder)])
    assert (again.exit_code, "is not empty; name a new folder" in again.stderr) == (Exit.USAGE, True)
    below_a_file = CliRunner().invoke(app, ["examples", str(folder / "forty_lines.py" / "folder")])
    assert (below_a_file.exit_code, "cannot be written" in below_a_file.stderr) == (Exit.USAGE, True)


def test_an_installed_package_has_its_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text('"""Mine."""')
    monkeypatch.setattr(shipped_examples, "SHIPPED", tmp_path)
    assert CliRunner().invoke(app, ["examples"]).stdout == "mine.py   Mine.\n"


def test_a_shell_completes_the_names_of_commands() -> None:
    asked = {"_KVPROOF_COMPLETE": "complete_bash", "COMP_WORDS": "kvproof ver", "COMP_CWORD": "1"}
    assert CliRunner().invoke(app, prog_name="kvproof", env=asked).stdout == "verify\n"


def visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith((".", "__"))]
