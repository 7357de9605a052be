"""What an interrupt leaves behind in the process."""

import signal
import sys
import time
from contextlib import suppress
from typing import Any

import pytest

from kvproof.check.protocol.interrupt import AGAIN_SECONDS, UserInterrupt, interruptible


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


def test_an_interrupt_that_is_to_come_again_does_not_come_after_the_block() -> None:
    with suppress(UserInterrupt), interruptible():
        Ended()
    before = signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("it came"))
    time.sleep(3 * AGAIN_SECONDS)
    signal.signal(signal.SIGTERM, before)
