"""Time limits leave out the time in which a process waits for a processor."""

import time

import pytest

from kvproof.check.protocol import time_limit as limits
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.time_limit import Patience, time_limit

BEGAN = time.monotonic()


def starving(path: str) -> float:
    """A process that has got nine tenths of a processor's time less than it wanted."""
    return 0.9 * (time.monotonic() - BEGAN)


def test_a_call_that_waits_for_a_processor_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_wait_of", starving)
    monkeypatch.setattr(limits, "_samples", {})
    with time_limit(0.05):
        time.sleep(0.15)


def test_a_call_that_does_not_return_hangs() -> None:
    with pytest.raises(Finding, match="no answer within 0 s"), time_limit(0.05):
        time.sleep(10)


def test_even_a_starving_process_has_no_patience_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_wait_of", lambda path: 1_000.0 * time.monotonic())
    monkeypatch.setattr(limits, "_samples", {})
    monkeypatch.setattr(limits, "LOAD_MAX", 2.0)
    patience = Patience(0.02)
    assert patience.left() > 0
    time.sleep(0.05)
    assert patience.left() <= 0
