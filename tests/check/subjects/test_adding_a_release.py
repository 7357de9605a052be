"""A new release of an engine needs its number in the row of its subject, and nothing else.

The list of subjects, the release that a name without one stands for, the names of commands and their messages follow
by themselves, and nothing is downloaded for them. The page of the engines must list the releases of the table
(`test_registry`).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import NAMED, engine_of

NAME, NEWEST = "vllm-v1", "77.1.0"


@pytest.fixture(autouse=True)
def _newer_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = NAMED[NAME]
    assert row.releases is not None
    monkeypatch.setitem(NAMED, NAME, replace(row, releases=(row.releases[0], NEWEST)))
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def kvproof(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_the_list_of_subjects_has_it() -> None:
    (line,) = (line for line in kvproof("subjects")[1].splitlines() if line.startswith(f"{NAME} "))
    assert line.endswith(f"releases 0.6.5 to {NEWEST}, default {NEWEST}")


@pytest.mark.parametrize("name", [NAME, f"{NAME}=={NEWEST}"])
def test_a_hunt_runs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(release: str) -> BuiltIn:
        made.append(release)
        return BuiltIn()

    monkeypatch.setitem(NAMED, NAME, replace(NAMED[NAME], make=make))
    code, output = kvproof("hunt", "--subject", name, "--no-isolation", "--budget", "1", "--seed", "1")
    assert (code in (0, 4), {*made}) == (True, {NEWEST}), output  # 4: a second may be too short to reach everything


def test_without_its_sources_a_hunt_says_how_to_bring_them_and_downloads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(download, "fetch", lambda *_: pytest.fail("a hunt must not download"))
    code, output = kvproof("hunt", "--subject", NAME, "--no-isolation", "--budget", "1")
    assert (code, f"kvproof engines add vllm=={NEWEST}" in output) == (2, True)


def test_its_sources_are_brought_and_bisected_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(download, "_bring", lambda name, version, *_: asked.append((name, version)))
    kvproof("engines", "add", f"vllm=={NEWEST}")
    assert asked == [("vllm", NEWEST)]
    assert engine_of(f"{NAME}=={NEWEST}") == "vllm"
