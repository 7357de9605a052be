"""Time limits leave out the time in which a process waits for a processor."""

import os
import signal
import subprocess
import sys
import time

import pytest

from kvproof.check.hosts import time_limit as limits
from kvproof.check.hosts.time_limit import (
    OutOfTime,
    Patience,
    call_seconds,
    calls_end_at,
    calls_interrupted_after,
    calls_take_at_most,
    time_limit,
)
from kvproof.check.protocol.finding import Finding

BEGAN = time.monotonic()


def starving(pid: int) -> float:
    """A process that has got nine tenths of a processor's time less than it wanted."""
    return 0.9 * (time.monotonic() - BEGAN)


def test_a_call_that_waits_for_a_processor_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_wait_of", starving)
    monkeypatch.setattr(limits, "_samples", {})
    with time_limit(0.05):
        time.sleep(0.15)


def stand() -> None:
    time.sleep(10)


def test_a_call_that_does_not_return_hangs_and_its_place_is_known() -> None:
    with pytest.raises(Finding, match=r"no answer within 0\.05 s") as found, time_limit(0.05):
        stand()
    assert found.value.frames[-1].function == "stand"


def test_calls_may_take_less_within_a_block() -> None:
    with calls_take_at_most(0.5):
        assert (call_seconds(3.0), call_seconds(0.1)) == (0.5, 0.1)
    assert call_seconds(3.0) == 3.0


def test_even_a_starving_process_has_no_patience_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_wait_of", lambda pid: 1_000.0 * time.monotonic())
    monkeypatch.setattr(limits, "_samples", {})
    monkeypatch.setattr(limits, "LOAD_MAX", 2.0)
    patience = Patience(0.02)
    assert patience.left() > 0
    time.sleep(0.05)
    assert patience.left() <= 0


WORK = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
THREADS = f"import threading\nfor _ in range(2): threading.Thread(target=exec, args=({WORK!r}, {{}})).start()"


@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-c", WORK),
        ("sh", "-c", 'env "$0" -c "$1"; true', sys.executable, WORK),
        (sys.executable, "-c", THREADS),
    ],
    ids=["process", "wrapper", "threads"],
)
def test_the_time_in_which_threads_and_children_wait_for_a_processor_does_not_count(command: tuple[str, ...]) -> None:
    core = min(os.sched_getaffinity(0))
    started = [
        subprocess.Popen(one, preexec_fn=lambda: os.sched_setaffinity(0, {core}), start_new_session=True)
        for one in (command, *[(sys.executable, "-c", WORK)] * 3)
    ]
    try:
        patience, deadline = Patience(0.2, started[0].pid), time.monotonic() + 60
        while limits._wait_of(started[0].pid) < 0.2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert patience.left() > 0
    finally:
        for one in started:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def test_many_things_that_are_done_one_after_another_do_not_hang() -> None:
    done = list[int]()
    with time_limit(0.1, done.__len__):
        for number in range(5):
            time.sleep(0.06)
            done.append(number)


def test_the_end_of_the_run_ends_a_call_in_this_process() -> None:
    began = time.monotonic()
    with pytest.raises(OutOfTime), calls_end_at(began + 0.05), time_limit(60.0):
        time.sleep(10)
    assert time.monotonic() - began < 5


def test_a_search_is_interrupted_in_a_call_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INTERRUPT_SECONDS", 0.05)

    def call() -> None:
        time.sleep(10)

    with calls_interrupted_after(0.0, call.__code__):
        time.sleep(0.2)
        with pytest.raises(OutOfTime):
            call()
