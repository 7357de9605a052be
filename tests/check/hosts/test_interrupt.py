"""What an interrupt leaves behind in the process."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.hosts.interrupt import AGAIN_SECONDS, UserInterrupt, interruptible


class HalfMade:
    """An object whose constructor is interrupted before it has everything that its end needs."""

    def __init__(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        self.handle = 1

    def __del__(self) -> None:
        assert self.handle


class Ended:
    """An object at whose end the signal comes."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


class Wrong:
    def __del__(self) -> None:
        raise ValueError


def test_nothing_is_printed_of_an_object_that_an_interrupt_left_half_made(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = list[Any]()

    def hook(ignored: Any) -> None:
        printed.append(ignored.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", hook)
    with interruptible():
        with suppress(UserInterrupt):
            HalfMade()
        Wrong()
    with suppress(UserInterrupt), interruptible():
        HalfMade()
    assert printed == [ValueError]


@interruptible()
def work_after_an_end() -> None:
    Ended()
    time.sleep(100)


def test_an_interrupt_that_comes_while_an_object_ends_comes_again() -> None:
    with pytest.raises(UserInterrupt):
        work_after_an_end()


class WithWhatWasFound(UserInterrupt):
    """An interrupt that carries something."""


@interruptible()
def end_an_object_and(error: Exception | WithWhatWasFound | None) -> None:
    Ended()
    if error is not None:
        raise error


@pytest.mark.parametrize("error", [None, ValueError()])
def test_an_interrupt_that_comes_while_an_object_ends_is_not_lost_if_the_block_ends_first(error: Any) -> None:
    with pytest.raises(UserInterrupt):
        end_an_object_and(error)


def test_an_interrupt_that_has_interrupted_keeps_what_it_carries() -> None:
    with pytest.raises(WithWhatWasFound):
        end_an_object_and(WithWhatWasFound())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_tests_hear_signals_that_whoever_started_them_ignores(number: int, tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(f"import signal\n\ndef test_it():\n    assert signal.getsignal({number}) is not signal.SIG_IGN\n")
    run = f"import signal, sys, pytest; signal.signal({number}, signal.SIG_IGN); sys.exit(pytest.main(sys.argv[1:]))"
    tests = Path(__file__).parents[2]
    (tmp_path / "conftest.py").write_text((tests / "conftest.py").read_text())
    environment = os.environ | {"PYTHONPATH": str(tests.parent)}
    command = [sys.executable, "-c", run, "-q", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout


def test_an_interrupt_that_is_to_come_again_does_not_come_after_the_block() -> None:
    with suppress(UserInterrupt), interruptible():
        Ended()
    before = signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("it came"))
    time.sleep(3 * AGAIN_SECONDS)
    signal.signal(signal.SIGTERM, before)
