"""A new host needs its class, a row by which `--workers` names it, and a row of the suite that every host passes.

The host of this test starts its worker by a command of the user (`command_workers.py`). What is asked of every host is
asked of it, and a hunt whose units it does finds what a hunt without workers finds.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL
from tests.check.hosts import command_workers, test_hosts
from tests.check.hosts.command_workers import CommandWorkers
from tests.check.hosts.hosts_under_test import Ask, asking, run
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.hosts import choice
from kvproof.check.hunting.store import ResultStore

COMMAND = shlex.join([sys.executable, "-c", f"from {command_workers.__name__} import serve; serve()"])

started = test_hosts.started


@contextmanager
def command() -> Iterator[Ask]:
    """The row of hosts_under_test.py."""
    with closing(CommandWorkers(COMMAND)) as workers:
        workers.prepare(run, "pass")
        yield asking(workers)


@pytest.mark.parametrize("behaviour", test_hosts.BEHAVIOURS)
def test_a_new_host_passes_the_suite_of_all_hosts(behaviour: str, started: str) -> None:
    test_hosts.test_a_host_says_what_its_process_did_and_leaves_nothing_of_it(command, behaviour, started)


def hunt(*options: str) -> int:
    arguments = ["hunt", "--subject", "faulty.py:Forgetful", "--no-isolation", "--seed", "3", "--effort", "1000"]
    return CliRunner().invoke(app, [*arguments, *options]).exit_code


def test_a_hunt_takes_a_new_host_by_its_row_and_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(FORGETFUL)
    named = ("--workers", f"command:{COMMAND}", "--out", "by-command")
    assert hunt(*named) == 2
    monkeypatch.setitem(choice.KINDS, command_workers.is_command, command_workers.opened)
    workers = list[str]()
    add = ResultStore.add

    def noted(self: ResultStore, key: str, worker: str, *more: Any) -> None:
        workers.append(worker)
        add(self, key, worker, *more)

    monkeypatch.setattr(ResultStore, "add", noted)
    assert hunt(*named) == 1
    assert {*workers} - {"", "here"}, "the worker has done units"
    assert hunt("--out", "here") == 1
    results = {name: json.loads((tmp_path / name / "result.json").read_text()) for name in ("by-command", "here")}
    assert results["by-command"]["run"]["host"]["workers"] == f"command:{COMMAND}"
    by_command, here = ([decided(check) for check in one["checks"]] for one in results.values())
    assert sorted(by_command) == sorted(here)


def decided(check: dict[str, Any]) -> tuple[str, ...]:
    return check["id"], check["verdict"], check.get("signature", ""), check.get("trace") or ""
