"""What every host must stand: each kind of host, and everything that the process behind it can do."""

import secrets
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from tests.attacks.processes import MARK, left_after
from tests.check.hosts.hosts_under_test import (
    NO_ANSWER,
    NO_MESSAGE,
    Ask,
    actor,
    executor,
    fork,
    pipe,
    pool,
    ray_worker,
)

from kvproof.check.hosts.program import how_it_ended_by_itself

Host = Callable[[], AbstractContextManager[Ask]]
LOCAL: list[Host] = [fork, pipe, executor, pool]
SECONDS_MAX = 60.0
KILLED, GONE_SECONDS_MAX = "was ended by signal 9 (SIGKILL)", 10.0

FLOOD = "import os\nfor number in (2,): os.write(number, b'x' * 3_000_000)"
WRITE = """
import os
for number in (1, *channels):
    try: os.write(number, bytes([255]) * 99 + bytes([10]))
    except OSError: pass
"""
CLOSE = """
import os, socket, time
for number in (1, *channels):
    try: socket.socket(fileno=number).shutdown(socket.SHUT_RDWR)  # other processes may have this end, too
    except OSError: pass
    try: os.close(number)
    except OSError: pass
"""
DAEMON = """
import os, time
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    for number in range(40):
        try: os.close(number)
        except OSError: pass
    time.sleep(600)
"""
TOO_MUCH = """
import os
for number in (1, *channels):
    try:
        for _ in range(1_100): os.write(number, b'1' * 1_000)
    except OSError: pass
"""

# What the process does, and what the host says.
BEHAVIOURS: dict[str, tuple[str, str]] = {
    "answers": ("pass", "7"),
    "raises": ("raise RuntimeError('lost')", "raised lost"),
    "hangs": ("import time; time.sleep(600)", NO_ANSWER),
    "ends with 0": ("import os; os._exit(0)", "ended with exit code 0"),
    "ends with 7": ("import os; os._exit(7)", "ended with exit code 7"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", KILLED),
    "breaks": ("import ctypes; ctypes.string_at(0)", "was ended by signal 11 (SIGSEGV)"),
    "floods its output": (FLOOD, "7"),
    "writes to the channel": (WRITE, NO_MESSAGE),
    "leaves a daemon behind": (DAEMON, "7"),
    "closes its channel and goes on": (f"{CLOSE}\ntime.sleep(600)", KILLED),
    "closes its channel and ends": (f"{CLOSE}\ntime.sleep(0.3)\nos._exit(9)", "ended with exit code 9"),
}
OTHERWISE: dict[tuple[Host, str], str] = {
    (pool, "closes its channel and goes on"): "closed its connection",  # its words for a broken connection
    (fork, "is killed"): how_it_ended_by_itself(-signal.SIGKILL),  # these know that it was not kvproof
    (pool, "is killed"): how_it_ended_by_itself(-signal.SIGKILL),
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> str:
    """A mark of everything that this test starts."""
    mark = secrets.token_hex(8)
    monkeypatch.setenv(MARK, mark)
    return mark


@pytest.mark.parametrize("host", LOCAL, ids=lambda host: host.__name__)
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_host_says_what_its_process_did_and_leaves_nothing_of_it(host: Host, behaviour: str, started: str) -> None:
    code, expected = BEHAVIOURS[behaviour]
    began = time.monotonic()
    with host() as ask:
        assert ask("pass") == "7"  # it has started, however slowly
        assert ask(code) == OTHERWISE.get((host, behaviour), expected)
    assert left_after(started, GONE_SECONDS_MAX) == []
    assert time.monotonic() - began < SECONDS_MAX


@pytest.mark.parametrize("host", [pipe, executor], ids=lambda host: host.__name__)
def test_a_line_without_an_end_is_no_message(host: Host) -> None:
    with host() as ask:
        assert ask(TOO_MUCH) == NO_MESSAGE


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ("answers", "7"),
        ("raises", "raised lost"),
        ("ends with 7", "lost"),
        ("writes to the channel", "lost"),
        ("leaves a daemon behind", "7"),
    ],
)
def test_an_actor_answers_or_is_lost_and_leaves_nothing(behaviour: str, expected: str, started: str) -> None:
    with actor() as ask:
        assert ask(BEHAVIOURS[behaviour][0]) == expected
    assert left_after(started, GONE_SECONDS_MAX) == []


@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray leaves logs open
def test_a_worker_of_ray_answers_raises_and_is_lost() -> None:
    with ray_worker() as ask:
        assert [ask(BEHAVIOURS[name][0]) for name in ("answers", "raises")] == ["7", "raised lost"]
        assert "died" in ask(BEHAVIOURS["ends with 7"][0])
        assert ask("pass") == "7"
