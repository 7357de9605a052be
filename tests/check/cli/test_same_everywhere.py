"""The result of a run at two loads of the machine: the same document, but for times and facts of the machine.

`pytest -m long tests/check/cli/test_same_everywhere.py` takes some minutes of processor time.
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
TIMES = ("seconds", "started", "host")


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


def document(folder: Path, *arguments: str) -> Any:
    """The result document of a command, without times."""
    subprocess.run(
        [sys.executable, "-m", "kvproof.check.cli.app", *arguments, "--out", folder], stdout=subprocess.DEVNULL, cwd="/"
    )

    def without_times(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_times(one) for name, one in value.items() if name not in TIMES}
        return [without_times(one) for one in value] if isinstance(value, list) else value

    return without_times(json.loads((folder / "result.json").read_text()))


@pytest.mark.long
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(
    "command",
    [
        ("hunt", "--subject", f"{EXAMPLES}/forty_lines_broken.py:Adapter", "--effort", "20000"),
        ("verify", "--subject", f"{EXAMPLES}/forty_lines.py:Adapter", "--effort", "20000"),
        ("verify", "--effort", "20000"),
    ],
    ids=["hunt a broken manager", "verify a foreign manager", "verify"],
)
def test_a_run_is_the_same_on_a_busy_machine(command: tuple[str, ...], tmp_path: Path) -> None:
    calm = document(tmp_path / "calm", *command, "--seed", "7")
    with busy(NUM_BUSY):
        loaded = document(tmp_path / "loaded", *command, "--seed", "7")
    assert calm == loaded
    assert calm["run"]["is_complete"]
    assert any(check["verdict"] == "refuted" for check in calm["checks"]) == (command[0] == "hunt")
