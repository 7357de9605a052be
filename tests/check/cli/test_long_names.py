"""No path and no name that a command takes is too long for a message and exit code 2."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.spec.verdict import Exit

QUICK = ("--subject", "kvproof", "--effort", "100", "--seed", "1", "--no-isolation")
EXPLORED = ("--subject", "kvproof", "--blocks", "1", "--seqs", "1", "--tokens", "1")
WORDS: dict[str, tuple[str, ...]] = {
    "init": (),
    "verify": (*QUICK, "--judges", "walker"),
    "prove": ("--only", "nothing", "--no-cache"),
    "explore": (*EXPLORED, "--effort", "100"),
    "hunt": QUICK,
    "gate": ("--subject", "kvproof", "--base", "HEAD"),
    "campaign": ("file",),
    "replay": ("file",),
    "bisect": ("0.9.2", "--subject", "vllm-v0", "--trace", "file"),
    "record": ("--subject", "kvproof", "--steps", "1"),
    "validate": ("file",),
    "watch": ("--", "true"),
    "faults": ("--only", "nothing"),
    "history": ("--history", "file"),
    "compare": ("file", "file"),
    "report": ("folder",),
    "examples": (),
    "config": (),
    "device": ("--device", "cpu", "--budget", "1"),
    "device compare": ("file",),
    "engines add": ("file",),
    "engines check": ("no-subject",),  # one that there is would be downloaded
    "corpus list": (),
    "corpus show": ("F9",),
    "corpus validate": (),
    "corpus reproduce": ("F9",),
    "corpus run": ("F9", "--effort", "100", "--seeds", "1"),
    "baseline accept": ("file",),
}
LONG = {"a name": f"folder/{'x' * 300}", "a path": "x" * 5_000}  # longer than 255, and than 4,096 characters
FREE = {("device", "--label"), ("init", "--name"), ("record", "--digest-key"), ("watch", "--digest-key")}  # any text


def taken(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Each parameter of each command that is a text or a path: the command, and its name."""
    for name, sub in getattr(command, "commands", {}).items():
        yield from taken(sub, (*path, name))
    for one in command.params:
        kind = one.type_descriptor.annotation
        if {kind, *get_args(kind)} & {str, Path} and one.metavar:
            yield " ".join(path), one.opts[-1]


TAKEN = sorted({*taken(typer.main.get_command(app))} - FREE)


@pytest.mark.parametrize("value", [*LONG])
@pytest.mark.parametrize(("command", "name"), TAKEN)
def test_a_long_name_is_a_mistake_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("{}")
    given = [name, LONG[value]] if name.startswith("--") else [LONG[value]]
    words = [*given, *WORDS[command]] if "--" in WORDS[command] else [*WORDS[command], *given]
    done = CliRunner().invoke(app, [*command.split(), *words])
    assert done.exit_code == Exit.USAGE
    assert "fault of kvproof" not in done.output
