"""For tests of gates: the hunts and replays of a gate are done in this process, in few scopes."""

import contextlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hunting.gate import replayed, running
from kvproof.check.hunting.gate.sides import Hunted


@pytest.fixture
def quick(few_scopes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hunts and replays of a gate are done in this process, in few scopes."""

    def run(how: Hunted, name: str, words: list[str], said: Path | None) -> int:
        with contextlib.chdir(how.folder):
            if name == running.REPLAY:
                replayed.main(*words)
                return 0
            done = CliRunner().invoke(app, [*words, "--no-isolation"])
            if said is not None:
                said.write_text(done.output)
            return done.exit_code

    monkeypatch.setattr(running, "_run", run)
