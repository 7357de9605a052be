"""What the terminal and the page show of a campaign while it runs: the round, the rate, and what each worker does."""

import time
from collections import Counter
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kvproof.check.hunting.campaign import Watch
from kvproof.check.runs.terminal import PLAIN_INTERVAL_SECONDS, is_ci, say
from kvproof.reports.summary import number

REFRESHES_PER_SECOND = 4.0
PAGE_SECONDS = 30.0  # between two pages


class Display:
    """A moving table on a terminal; lines elsewhere, of which those between two findings are only for a log of CI.

    page: is called with lines that say how far the campaign is, when a round begins and twice a minute.
    """

    def __init__(self, console: Console, page: Callable[[list[str]], None]) -> None:
        self.console, self.page, self.last_page = console, page, 0.0
        self.rules = set[str]()  # that units of this start have reached
        self.title, self.num_done, self.num_units, self.num_operations = "", 0, 0, 0
        self.units, self.operations = Counter[str](), Counter[str]()
        self.began = self.last_line = time.monotonic()
        self.live = Live(console=console, refresh_per_second=REFRESHES_PER_SECOND, transient=True)
        if console.is_terminal:
            self.live.start()

    @property
    def watch(self) -> Watch:
        """What the head calls."""
        return Watch(self._round, self._unit, self._say)

    @property
    def rate(self) -> float:
        """Operations per second since the start."""
        return self.num_operations / max(1e-9, time.monotonic() - self.began)

    def close(self) -> None:
        """Show the moving table no more."""
        self.live.stop()

    def _round(self, number: int, num_units: int) -> None:
        self.title, self.num_done, self.num_units = f"round {number}", 0, num_units
        self._say(f"{self.title}: {num_units:,} units")
        self._write_page()

    def _unit(self, worker: str | None, num_operations: int, rules: set[str], is_end: bool) -> None:
        self.num_done += is_end
        if worker is None:  # it was done before this start
            return
        self.rules |= rules
        self.num_operations += num_operations
        self.units[worker] += 1
        self.operations[worker] += num_operations
        now = time.monotonic()
        if self.live.is_started:
            self.live.update(self._table())
        elif is_ci() and now - self.last_line >= PLAIN_INTERVAL_SECONDS:
            self.last_line = now
            self._say(f"{self._state()}, {len(self.units)} workers")
        if now - self.last_page >= PAGE_SECONDS:
            self._write_page()

    def _write_page(self) -> None:
        counts = self.units.items()
        workers = [
            f"{name}: {number(n, 'unit', 'units')}, {self.operations[name]:,} operations" for name, n in sorted(counts)
        ]
        self.page([f"The campaign goes on: {self._state()}", *workers])
        self.last_page = time.monotonic()

    def _state(self) -> str:
        done = f"{self.title}: {self.num_done:,} of {self.num_units:,} units"
        return f"{done}, {self.rate:,.0f} operations/s, {number(len(self.rules), 'rule', 'rules')} reached"

    def _table(self) -> Table:
        table = Table(title=self._state(), title_justify="left", box=None)
        for name in ("worker", "units", "operations"):
            table.add_column(name, justify="left" if name == "worker" else "right")
        for worker, count in sorted(self.units.items()):
            table.add_row(worker, f"{count:,}", f"{self.operations[worker]:,}")
        return table

    def _say(self, message: str) -> None:
        for line in message.splitlines():
            say(self.console, line)
