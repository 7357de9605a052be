"""What `kvproof init` writes for each level is what a judge of that level asks for."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.oracle.level import LEVELS, level_named, level_of
from kvproof.check.protocol.skeletons import SKELETONS
from kvproof.spec.verdict import Exit


def written(folder: Path, level: str, *capabilities: str) -> Any:
    """The adapter that is written, made of the file as it is."""
    words = [word for one in capabilities for word in ("--capability", one)]
    done = CliRunner().invoke(app, ["init", str(folder), "--level", level, "--name", "mine", "--yes", *words])
    assert done.exit_code == Exit.OK, done.output
    spec = importlib.util.spec_from_file_location("skeleton", folder / "kvproof_adapter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Adapter()


def yes_or_no(level: str) -> list[str]:
    """Every capability of a level that is a yes or no, and no by default."""
    return [name for name, default in vars(SKELETONS[level].can()).items() if default is False]


def test_every_level_has_a_skeleton() -> None:
    assert list(SKELETONS) == [level.name for level in LEVELS]


@pytest.mark.parametrize("level", SKELETONS)
def test_what_is_written_is_a_subject_of_its_level(tmp_path: Path, level: str) -> None:
    adapter = written(tmp_path, level, *yes_or_no(level))
    assert level_of(adapter) is level_named(level)
    level_named(level).check(adapter)
    assert all(getattr(adapter.capabilities, name) is True for name in yes_or_no(level))


@pytest.mark.parametrize("level", [level for level in SKELETONS if level != "manager"])
def test_what_is_written_passes_ruff(tmp_path: Path, level: str) -> None:
    written(tmp_path, level, *yes_or_no(level))
    for command in (["check"], ["format", "--check"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, "--isolated", str(tmp_path)], check=True)


@pytest.mark.parametrize("level", SKELETONS)
def test_an_adapter_that_nobody_has_filled_in_is_refuted_by_nothing(tmp_path: Path, level: str) -> None:
    written(tmp_path, level)
    subject = f"{tmp_path / 'kvproof_adapter.py'}:Adapter"
    done = CliRunner().invoke(app, ["hunt", "--subject", subject, "--effort", "50", "--out", str(tmp_path / "out")])
    assert done.exit_code == Exit.USAGE, done.output
    assert "is not written yet" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--level", "shop"],
            "--level: there is no 'shop'; choose from manager, scheduler, pool, store, encoder, pair",
        ),
        (["--level", "stores"], "did you mean store?"),
        (["--level", "store", "--language", "javascript"], "only a manager goes over a pipe"),
        (["--level", "store", "--capability", "swap"], "--capability: there is no 'swap'"),
    ],
)
def test_wrong_words_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path), "--yes", *words])
    assert done.exit_code == Exit.USAGE
    assert message in " ".join(done.output.split())
    assert list(tmp_path.iterdir()) == []


STORE = """
from kvproof.check.protocol.manager import Refused
from kvproof.check.protocol.store import StoreAdapter


class Engine:
    def look_up(self, keys):
        raise NotImplementedError


class Store(StoreAdapter):
    name = "store"

    def open(self, config):
        self.engine = Engine()

    def look_up(self, request, keys):
        return self.engine.look_up(keys)

    def end_load(self, transfer, request, keys): ...
    def begin_load(self, transfer, request, keys): return [0 for _ in keys]
    def begin_store(self, transfer, request, keys): return Refused("full")
    def end_store(self, transfer, request, stored, failed): ...
    def observe(self):
        from kvproof.check.protocol.store import StoreObservation
        return StoreObservation({}, 1)
"""


def test_a_call_that_the_judged_code_has_not_written_is_still_a_finding(tmp_path: Path) -> None:
    (tmp_path / "store.py").write_text(STORE)
    words = ["--subject", f"{tmp_path / 'store.py'}:Store", "--effort", "50", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["hunt", *words])
    assert done.exit_code == Exit.REFUTED, done.output
    assert "total-calls is refuted" in done.output
