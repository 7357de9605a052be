"""What an interrupt leaves behind in the process."""

import signal
import sys
from contextlib import suppress
from typing import Any

import pytest

from kvproof.check.protocol.interrupt import UserInterrupt, interruptible


class HalfMade:
    """An object whose constructor is interrupted before it has everything that its end needs."""

    def __init__(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        self.handle = 1

    def __del__(self) -> None:
        assert self.handle


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
