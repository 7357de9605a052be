"""For every test: the example manager, perhaps with some calls replaced; few scopes; `kvproof prove`; a full disk."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from tests.golden_files import Command, Run

from kvproof.check.protocol.manager import ManagerSubject
from kvproof.check.search.strategies import MANAGERS, STRATEGIES
from kvproof.check.subjects.registry import find

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "forty_lines.py"
Factory = Callable[[], ManagerSubject]
FEW_SCOPES = ("window-3x1x3", "cache-2x1x3", "tables-3x2x3")  # with a preemption and with a fork


@pytest.fixture
def example_source() -> str:
    """The text of the example manager and its adapter."""
    return EXAMPLE.read_text()


@pytest.fixture
def example() -> Factory:
    """What makes the example."""
    return find(f"{EXAMPLE}:Adapter")


@pytest.fixture
def altered(example: Factory) -> Callable[..., Factory]:
    """`altered(fork=f)` makes the example with `f(self, parent, child)` in place of its fork."""

    def with_calls(**calls: Callable[..., Any]) -> Factory:
        def make() -> ManagerSubject:
            subject = example()
            for name, call in calls.items():
                setattr(subject, name, MethodType(call, subject))
            return subject

        return make

    return with_calls


@pytest.fixture
def few_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hunt of a manager searches three of its scopes, for a test that is not about which scopes there are."""
    few = {name: MANAGERS.exhaustive.hunted[name] for name in FEW_SCOPES}
    short = replace(MANAGERS, _exhaustive=replace(MANAGERS.exhaustive, hunted=few))
    monkeypatch.setitem(STRATEGIES, MANAGERS.level.name, short)


@pytest.fixture
def prove(command: Command) -> Run:
    """Runs `kvproof prove` in this process, and keeps nothing for the next run."""
    return partial(command, "prove", "--jobs", "1", "--no-cache")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a file system of 64 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
