"""While a campaign runs, its page says how far it is, how fast, what it has reached, and what each worker did."""

import time
from io import StringIO

import pytest
from rich.console import Console

from kvproof.check.hunting.campaign_display import Display


def test_the_page_is_written_when_a_round_begins_and_twice_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pages: list[list[str]] = []
    watch = Display(Console(file=StringIO()), pages.append).watch
    watch.round(2, 12)
    for _ in range(3):
        watch.unit(None, 5_000, set(), True)  # in the store
    watch.unit("one:7", 5_000, {"admit", "grow"}, True)
    assert pages == [["The campaign goes on: round 2: 0 of 12 units, 0 operations/s, 0 rules reached"]]
    now += 30.0
    watch.unit("two:8", 4_000, {"grow", "fork"}, False)  # up to a finding
    watch.unit("two:8", 4_000, {"grow"}, True)
    assert pages[1:] == [
        [
            "The campaign goes on: round 2: 4 of 12 units, 300 operations/s, 3 rules reached",
            "one:7: 1 unit, 5,000 operations",
            "two:8: 1 unit, 4,000 operations",
        ]
    ]
