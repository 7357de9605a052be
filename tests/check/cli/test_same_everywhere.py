"""The results of four runs at two loads of the machine: the same document, but for times and facts of the machine.

`pytest -m long tests/check/cli/test_same_everywhere.py` takes about eight minutes of processor time, and by the clock
twenty minutes on two cores that do nothing else. docs/ci.md has the figures of such a run.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
NUM_BUSY = 8
TIMES = ("seconds", "processor_seconds", "started", "host")


@contextmanager
def busy(num_processes: int) -> Iterator[None]:
    """So many processes compute in the block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_processes)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def start(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "kvproof.check.cli.app", *arguments, "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/")


def document(folder: Path) -> Any:
    """The result document in a folder, without times."""

    def without_times(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_times(one) for name, one in value.items() if name not in TIMES}
        return [without_times(one) for one in value] if isinstance(value, list) else value

    return without_times(json.loads((folder / "result.json").read_text()))


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(
    "command",
    [
        ("hunt", "--subject", f"{EXAMPLES}/forty_lines_broken.py:Adapter"),
        ("verify", "--subject", f"{EXAMPLES}/forty_lines.py:Adapter"),
        ("verify",),
    ],
    ids=["hunt a broken manager", "verify a foreign manager", "verify"],
)
def test_a_run_is_the_same_on_a_busy_machine(command: tuple[str, ...], tmp_path: Path) -> None:
    """Two runs one after the other, and two at once beside busy loops, which takes less time in all."""
    folders = [tmp_path / name for name in ("calm", "calm again", "busy", "busy beside it")]
    for folder in folders[:2]:
        start(folder, *command, "--seed", "7").wait()
    with busy(NUM_BUSY):
        for one in [start(folder, *command, "--seed", "7") for folder in folders[2:]]:
            one.wait()
    first, *others = map(document, folders)
    assert [other == first for other in others] == [True, True, True]
    assert first["run"]["is_complete"]
    assert any(check["verdict"] == "refuted" for check in first["checks"]) == (command[0] == "hunt")
