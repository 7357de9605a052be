"""The wheel in an empty environment, outside of the checkout and without constraints. Run it with `make install-test`.

It builds the wheel, installs it with pytest and nothing else, and does there what the README does. It needs a package
index that pip can reach.
"""

import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

from kvproof.check.cli.faults import NEEDS_A_CHECKOUT
from kvproof.spec.verdict import Exit

TREE = Path(__file__).parents[1]
ADAPTER, BROKEN = "ex/forty_lines.py:Adapter", "ex/forty_lines_broken.py:Adapter"
MEGABYTES_MAX = 90  # of site-packages, with pytest and pip
SECONDS_MAX = 120  # less than half of it on an idle machine

pytestmark = [pytest.mark.install, pytest.mark.timeout(900)]


class Installed(NamedTuple):
    """An environment with kvproof, and the folder in which its commands run. seconds: from the install to a verdict."""

    programs: Path
    folder: Path
    seconds: float

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(self.folder, self.programs / program, *arguments)


def run(folder: Path, *command: Path | str) -> subprocess.CompletedProcess[str]:
    """Run a command without what the environment of this process says about Python, pytest and pip's constraints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "PIP_CON"))}
    kept["KVPROOF_CACHE"] = str(folder / "engines")
    return subprocess.run(list(map(str, command)), cwd=folder, env=kept, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("install")
    built = run(TREE, sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    assert built.returncode == 0, built.stderr
    wheel = next(folder.glob("*.whl"))
    programs, work = folder / "environment" / "bin", folder / "work"
    work.mkdir()
    (work / "pytest.ini").write_text("[pytest]\n")  # whatever lies in the folders above
    venv.create(folder / "environment", with_pip=True)
    began = time.monotonic()
    done = run(work, programs / "python", "-m", "pip", "install", "--no-cache-dir", str(wheel), "pytest")
    assert done.returncode == 0, done.stderr
    assert run(work, programs / "kvproof", "examples", "ex").returncode == Exit.OK
    done = run(work, programs / "python", "-m", "pytest", "-q", "ex/forty_lines.py")
    assert done.returncode == 0, done.stdout
    return Installed(programs, work, time.monotonic() - began)


def test_from_pip_install_to_a_verdict_takes_less_than_two_minutes(installed: Installed) -> None:
    site = next((installed.programs.parent / "lib").glob("python*/site-packages"))
    megabytes = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 2**20
    print(f"{installed.seconds:.0f} s to a verdict, {megabytes:.0f} MB")
    assert installed.seconds < SECONDS_MAX
    assert megabytes < MEGABYTES_MAX


def test_a_fault_is_found_replayed_and_a_test_of_the_plugin(installed: Installed) -> None:
    done = installed.run("kvproof", "hunt", "--subject", BROKEN, "--seed", "1", "--stop-at-first")
    assert done.returncode == Exit.REFUTED, done.stderr
    trace = next((installed.folder / ".kvproof" / "crashes").glob("refcount-exact-*.json"))
    assert installed.run("kvproof", "replay", str(trace), "--subject", BROKEN).returncode == Exit.REFUTED
    assert installed.run("kvproof", "replay", str(trace), "--subject", ADAPTER).returncode == Exit.OK
    failing = installed.run("python", "-m", "pytest", "-q", str(trace), "--kvproof-subject", BROKEN)
    assert (failing.returncode, "1 failed" in failing.stdout) == (1, True), failing.stdout
    passing = installed.run("python", "-m", "pytest", "-q", str(trace), "--kvproof-subject", ADAPTER)
    assert (passing.returncode, "1 passed" in passing.stdout) == (0, True), passing.stdout


def test_run_conformance_fails_for_the_broken_manager(installed: Installed) -> None:
    done = installed.run("python", "ex/forty_lines_broken.py")
    assert (done.returncode, "refcount of block 0" in done.stderr) == (1, True), done.stderr


def test_verify_accepts_the_manager_and_names_the_judges_that_are_left_out(installed: Installed) -> None:
    done = installed.run("kvproof", "verify", "--subject", ADAPTER, "--seed", "1", "--out", "out")
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    result = (installed.folder / "out" / "result.json").read_text()
    assert "the data plane needs numpy, torch, matplotlib, which are not installed: pip install" in result


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_manager_in_c_is_judged(installed: Installed) -> None:
    assert run(installed.folder, "cc", "-o", "manager", "ex/pipe_manager.c").returncode == 0
    command = ("kvproof", "hunt", "--subject", "pipe:./manager", "--seed", "1", "--budget", "10")
    done = installed.run(*command)
    assert "not refuted" in done.stdout, done.stdout + done.stderr
    assert done.returncode == Exit.OK, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [(["prove"], "prove"), (["device"], "device"), (["verify", "--device", "cpu"], "device")],
    ids=["prove", "device", "verify --device"],
)
def test_a_command_that_needs_an_extra_says_which(installed: Installed, arguments: list[str], extra: str) -> None:
    done = installed.run("kvproof", *arguments)
    assert done.returncode == Exit.USAGE
    assert done.stderr.endswith(f"pip install 'kvproof[{extra}]'\n")
    assert done.stderr.count("\n") == 1


def test_the_command_that_checks_kvproof_itself_says_that_it_needs_a_checkout(installed: Installed) -> None:
    done = installed.run("kvproof", "faults", "--of", "impl", "--only", "kvproof/*")
    assert done.returncode == Exit.USAGE
    assert done.stderr == f"kvproof: {NEEDS_A_CHECKOUT}\n"


def test_the_pinned_proofs_need_the_solver_alone(installed: Installed) -> None:
    """It is the last test of this file, because it installs the extra."""
    wheel = next(installed.folder.parent.glob("*.whl"))
    done = installed.run("python", "-m", "pip", "install", f"{wheel}[prove]")
    assert done.returncode == 0, done.stderr
    done = installed.run(
        "kvproof", "prove", "--no-cache", "--only", "arithmetic", "--only", "refinement/DeviceBlocks.null_block*"
    )
    assert done.returncode == Exit.OK, done.stdout + done.stderr
