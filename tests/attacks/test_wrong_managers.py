"""A wrong manager does not pass, whatever it tries, and gets one verdict at every door.

The default suite runs a sample. `pytest -m long tests/attacks` runs all, under three doors.
"""

import subprocess
import sys
from asyncio import CancelledError
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.attacks.case import OK, REFUTED, UNREACHED, USAGE, Attack, run
from tests.attacks.wrong_managers import FILE, HEAD, RIGHT_WHEN_ASKED, WRONG_MANAGERS, WrongManager

from kvproof.check import Config, run_conformance
from kvproof.check.hosts.interrupt import interruptible
from kvproof.check.hosts.time_limit import OutOfTime
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.subjects.builtin.manager import BuiltIn

EXAMPLE = (Path(__file__).resolve().parents[2] / "examples" / "forty_lines.py").read_text()
OPERATIONS = 4_000  # enough to reach everything, for the one that passes
BOUNDS = ("--seed", "1", "--effort", str(OPERATIONS), "--budget", "100", "--out", "out")
NUM_WAYS = 49
SAMPLE = {
    *(("E03", "run_conformance"), ("E04", "hunt"), ("E08", "run_conformance")),
    *(("E10", "hunt"), ("E10", "run_conformance"), ("E10b", "run_conformance"), ("E40", "run_conformance")),
}


def words_of(door: str, name: str) -> list[str]:
    more = ["--stop-at-first"] if door == "hunt" else ["--judges", "walker,hypothesis"]
    return [door, "--subject", f"{FILE}:{name}", *more, *BOUNDS]


def by_a_command(door: str, one: WrongManager, folder: Path) -> int:
    done = run(folder, FILE, Attack(one.name, EXAMPLE + HEAD + one.source, one.code), words_of(door, one.name))
    if door == "hunt":  # what Hypothesis has raised here keeps the subject, and so its processes
        assert done.faults == [], done.output
    return done.code


def by_conformance(door: str, one: WrongManager, folder: Path) -> int:
    (folder / FILE).write_text(EXAMPLE + HEAD + one.source)
    try:
        run_conformance(f"{folder / FILE}:{one.name}", operations=OPERATIONS, seed=1, crashes=folder / "crashes")
    except AdapterError:
        return USAGE
    except AssertionError as refused:
        return UNREACHED if str(refused).startswith("nothing was") else REFUTED
    return OK


DOORS: dict[str, Callable[[str, WrongManager, Path], int]] = {
    "hunt": by_a_command,
    "verify": by_a_command,
    "run_conformance": by_conformance,
}
EVERY = [
    pytest.param(door, one, id=f"{one.name}: {door}", marks=() if (one.name, door) in SAMPLE else pytest.mark.long)
    for one in WRONG_MANAGERS
    for door in DOORS
]


@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a run are found in /proc")
@pytest.mark.parametrize(("door", "one"), EVERY)
def test_a_wrong_manager_gets_one_verdict_at_every_door(door: str, one: WrongManager, tmp_path: Path) -> None:
    if one.ends_kvproof:
        assert code_of_process(door, one, tmp_path) != OK
    else:
        assert DOORS[door](door, one, tmp_path) == one.code


def code_of_process(door: str, one: WrongManager, folder: Path) -> int:
    """The exit code where the process that asks may be ended."""
    (folder / FILE).write_text(EXAMPLE + HEAD + one.source)
    test = f"from kvproof.check import run_conformance; run_conformance({f'{FILE}:{one.name}'!r}, operations=2_000)"
    words = ["-c", test] if door == "run_conformance" else ["-m", "kvproof.check.cli.app", *words_of(door, one.name)]
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, timeout=120).returncode


def manager_whose_fork(does: Callable[[], object]) -> type[BuiltIn]:
    class Manager(BuiltIn):
        def fork(self, parent: int, child: int) -> None:
            does()

    return Manager


def raising(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    "does",
    [
        lambda: pytest.skip("not here"),
        lambda: pytest.xfail("known"),
        lambda: pytest.exit("done", returncode=0),
        raising(KeyboardInterrupt()),
        raising(GeneratorExit()),
        raising(CancelledError()),
        raising(BaseException("odd")),
    ],
)
def test_no_exception_of_a_manager_ends_or_skips_the_test_that_judges_it(
    does: Callable[[], object], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="total-calls is refuted"), interruptible():
        run_conformance(manager_whose_fork(does), operations=500, seed=1, isolation=False, crashes=tmp_path)


@pytest.mark.parametrize("error", [OutOfTime(), pytest.fail.Exception("Timeout")])
def test_the_end_of_a_run_or_of_a_test_is_no_fault_of_the_manager(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        run_conformance(manager_whose_fork(raising(error)), operations=500, seed=1, isolation=False, crashes=tmp_path)


def test_a_subject_skips_the_test_when_it_is_opened(tmp_path: Path) -> None:
    class Manager(BuiltIn):
        def open(self, config: Config) -> None:
            pytest.skip("its library is not installed")

    with pytest.raises(pytest.skip.Exception):
        run_conformance(Manager, operations=500, seed=1, isolation=False, crashes=tmp_path)


def test_every_way_is_there_and_one_passes() -> None:
    names = [one.name for one in WRONG_MANAGERS]
    assert len(names) == len(set(names)) == NUM_WAYS
    assert [one.name for one in WRONG_MANAGERS if one.code == OK and not one.ends_kvproof] == [RIGHT_WHEN_ASKED]
    assert {name for name, _ in SAMPLE} <= set(names)
