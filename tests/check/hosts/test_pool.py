"""Units of work are all done, in order, and nothing is left when workers are killed."""

import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kvproof.check.hosts.choice import is_valid
from kvproof.check.hosts.pool import LocalWorkers
from kvproof.check.hosts.workers import UNORDERED, USUAL, UnitLost, WorkerLost
from kvproof.spec.verdict import Exit

MAIN = "from kvproof.check.cli import main; main()"


@pytest.fixture
def workers() -> Iterator[LocalWorkers]:
    pool = LocalWorkers(1)
    yield pool
    pool.close()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_unit_whose_worker_is_killed_is_done_again_and_no_process_is_left(workers: LocalWorkers) -> None:
    begun: list[int] = []

    def units() -> Iterator[float]:
        for seconds in (0.0, 0.2, 0.0):
            begun.extend(workers.process_ids)
            yield seconds

    results = workers.results(time.sleep, units())
    assert next(results) is None
    (killed,) = workers.process_ids
    os.kill(killed, signal.SIGKILL)  # it sleeps, or has a unit to sleep
    assert list(results) == [None, None]
    (other,) = workers.process_ids
    assert other != killed
    assert list(workers.results(operator.neg, range(9))) == [-number for number in range(9)]
    given_up = workers.results(operator.neg, range(99))
    assert next(given_up) == 0
    given_up.close()
    assert list(workers.results(operator.pos, [5])) == [5]  # no answer of a unit that was given up
    beside = workers.results(operator.abs, [-3])
    (busy,) = workers._workers
    busy.process.send((-1, operator.neg, 7))  # its answer is not that of a unit that somebody waits for
    assert list(workers.results(operator.neg, [4, 5])) == [-4, -5]
    assert list(beside) == [3]
    with pytest.raises(TypeError, match="bad operand"):
        list(workers.results(operator.neg, [1, "two"]))
    assert workers.process_ids == [other]
    workers.close()
    assert not is_alive(killed)
    assert not is_alive(other)


def test_workers_that_are_made_ready_have_started_when_the_first_unit_comes(
    workers: LocalWorkers, tmp_path: Path
) -> None:
    workers.prepare(Path.touch, tmp_path / "ready")
    (started,) = workers.process_ids
    assert list(workers.results(Path.exists, [tmp_path / "ready"])) == [True]
    assert workers.process_ids == [started]


def test_a_unit_that_ends_every_worker_is_an_error_and_not_an_endless_loop(workers: LocalWorkers) -> None:
    assert USUAL.num_tries == 3
    with pytest.raises(
        WorkerLost, match=r"^2 workers ended while they did the same unit, the last ended with exit code 7: 7\. "
    ):
        list(workers.results(os._exit, [7], replace(USUAL, num_tries=2)))  # each try starts a process


def test_a_unit_without_an_answer_is_done_again_by_another_worker(workers: LocalWorkers, tmp_path: Path) -> None:
    assert list(workers.results(operator.neg, [1])) == [-1]
    (hanging,) = workers.process_ids
    command = f"test -e {tmp_path}/begun || {{ touch {tmp_path}/begun; sleep 15; }}"
    assert list(workers.results(os.system, [command], replace(USUAL, seconds=4.0))) == [0]
    assert workers.process_ids != [hanging]
    assert not is_alive(hanging)


def count_down(start: int) -> Iterator[int]:
    """A unit with several results, which ends its process after the last if that is negative."""
    yield from range(start, 0, -1)
    if start > 3:
        os._exit(start)


def test_the_results_of_a_unit_arrive_one_by_one_and_its_loss_can_be_the_last(workers: LocalWorkers) -> None:
    assert list(workers.results(count_down, [2, 0, 3])) == [2, 1, 3, 2, 1]
    lost = UnitLost("ended with exit code 4", is_next=True)
    handling = replace(USUAL, num_tries=1, is_loss_a_result=True)
    assert list(workers.results(count_down, [1, 4, 2], handling)) == [1, 4, 3, 2, 1, lost, 2, 1]


def begun_once(file: str) -> Iterator[str]:
    """A unit whose first worker is lost after a result."""
    yield "first"
    if not Path(file).exists():
        Path(file).touch()
        os._exit(1)
    yield "second"


def test_a_result_that_an_earlier_worker_has_brought_comes_once(workers: LocalWorkers, tmp_path: Path) -> None:
    assert list(workers.results(begun_once, [str(tmp_path / "begun")])) == ["first", "second"]


def wait_or_make(file: Path, role: str) -> str:
    """A unit that makes a file, or one that lasts longer: it waits for the file."""
    if role == "makes":
        file.touch()
        return role
    while not file.exists():
        time.sleep(0.01)
    time.sleep(0.3)
    return role


def test_results_come_in_the_order_in_which_they_are_done_if_no_other_is_asked_for(tmp_path: Path) -> None:
    with closing(LocalWorkers(2)) as workers:
        for name, handling, expected in (("a", UNORDERED, ["makes", "waits"]), ("b", USUAL, ["waits", "makes"])):
            results = workers.results(partial(wait_or_make, tmp_path / name), ["waits", "makes"], handling)
            assert list(results) == expected


def test_workers_never_get_an_interrupt_which_the_command_has(workers: LocalWorkers) -> None:
    unit = partial(signal.pthread_sigmask, signal.SIG_BLOCK)
    assert list(workers.results(unit, [()])) == [{signal.SIGINT}]
    assert unit(()) == set()


def test_other_work_is_done_after_the_last_unit_is_drawn(workers: LocalWorkers) -> None:
    done: list[int] = []

    def units() -> Iterator[int]:
        yield 1
        done.append(0)

    assert list(workers.results(operator.neg, units(), meanwhile=map(done.append, [1, 2]))) == [-1]
    assert done == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("256", True), ("ray", True), ("ray://head:10001", True)]
    + [
        (text, False) for text in ("0", "257", "-1", "", "two", "Ray", "ray://", "ray://head", "ray://:1", "http://a:1")
    ],
)
def test_workers_are_a_number_or_ray_or_the_address_of_a_ray(text: str, expected: bool) -> None:
    assert is_valid(text) is expected


def test_a_divided_search_that_fills_the_disk_ends_with_one_line(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(40_000))
    command = [sys.executable, "-c", MAIN, "explore", "--scope", "tables-4x3x6", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(small_disk)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "no space is left on a disk; free some space" in done.stdout + done.stderr
    assert "fault of kvproof" not in done.stdout + done.stderr
    assert done.returncode == Exit.INTERNAL
    assert [file.name for file in small_disk.iterdir()] == ["ballast"]


def test_the_folder_of_workers_is_removed_also_if_their_head_is_killed(tmp_path: Path) -> None:
    code = "import os; from kvproof.check.hosts.worker_process import ScratchFolder as Folder; " \
        "print(Folder('kvproof-').name, flush=True); os.kill(os.getpid(), 9)"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).parent == tmp_path
    deadline = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []
