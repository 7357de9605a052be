"""CrossHair on the arithmetic: its contracts are confirmed, and a twin that is off by one is found."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.audit import arithmetic_contracts as contracts

pytestmark = pytest.mark.long  # each runs CrossHair in a process of its own

MODULE = contracts.__name__
PAIRS = ("blocks", "answer")

# Definitions that take the place of what the contracts import, each off by one.
BROKEN = """
def num_blocks_for(num_slots: int, block_size: int) -> int:
    return num_slots // block_size + 1


def num_blocks_that_fit(num_bytes: int, bytes_per_block: int) -> int:
    return max(0, (num_bytes + 1) // bytes_per_block)


def num_window_blocks(sliding_window: int, block_size: int) -> int:
    return sliding_window // block_size


def admission(num_required: int, num_free: int, num_usable: int, watermark_blocks: int) -> AllocStatus:
    if num_usable - num_required <= watermark_blocks:
        return AllocStatus.NEVER
    return AllocStatus.OK if num_free - num_required >= watermark_blocks else AllocStatus.LATER


def admission_from_host(
    num_needed: int, num_free: int, num_usable: int, watermark_blocks: int, is_idle: bool
) -> AllocStatus:
    if num_needed > num_usable + 1:
        return AllocStatus.NEVER
    if is_idle:
        return AllocStatus.OK
    return AllocStatus.OK if num_free - num_needed >= watermark_blocks else AllocStatus.LATER
"""


def crosshair(command: str, *arguments: str, folder: Path | None = None) -> tuple[int, str]:
    """Exit status and output of CrossHair: 0 found nothing, 1 found a counterexample, 2 could not run."""
    here = [str(folder)] if folder else []
    paths = os.pathsep.join([*here, *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-m", "crosshair", command, "--per_condition_timeout=20", *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `broken_contracts`: the same contracts, of functions that are off by one."""
    folder = tmp_path_factory.mktemp("broken")
    text = inspect.getsource(contracts)
    first = text.index("\n\ndef specified(")
    (folder / "broken_contracts.py").write_text(text[:first] + BROKEN + text[first:], encoding="utf-8")
    return folder


def test_every_contract_is_confirmed_over_all_paths() -> None:
    status, output = crosshair("check", "--report_all", MODULE)
    num_promised = inspect.getsource(contracts).count("    post: ")
    assert (status, output.count("Confirmed over all paths"), output.count("info:")) == (0, num_promised, num_promised)


def test_a_contract_of_each_function_that_is_off_by_one_is_refuted(broken: Path) -> None:
    status, output = crosshair("check", "broken_contracts", folder=broken)
    assert status == 1
    checked = [name for name in vars(contracts) if name.startswith("check_")]
    assert [name for name in checked if f"error: false when calling {name}(" not in output] == []


@pytest.mark.parametrize("pair", PAIRS)
def test_the_specification_and_the_implementation_do_not_differ(pair: str) -> None:
    status, output = crosshair("diffbehavior", f"{MODULE}.specified_{pair}", f"{MODULE}.implemented_{pair}")
    assert status == 0
    assert "All paths exhausted" in output


@pytest.mark.parametrize("pair", PAIRS)
def test_a_twin_that_is_off_by_one_differs(broken: Path, pair: str) -> None:
    names = [f"broken_contracts.{who}_{pair}" for who in ("specified", "implemented")]
    status, output = crosshair("diffbehavior", *names, folder=broken)
    assert status == 1
    assert "Given: " in output
