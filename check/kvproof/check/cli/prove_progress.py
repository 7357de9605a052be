"""How far a proof is: a moving line on a terminal, a line every few seconds elsewhere; open ends at once."""

import time
from types import TracebackType

from rich.status import Status

from kvproof.check.runs.terminal import PLAIN_INTERVAL_SECONDS, Output, say
from kvproof.models.solvers.solving import Decided
from kvproof.spec.verdict import Verdict


class ProofProgress:
    """Who is told of each answer."""

    def __init__(self, console: Output, judge: str = "prover") -> None:
        self.console, self.judge = console, judge
        self.num_proved = self.num_open = 0
        self.began = self.spoke = time.monotonic()
        self.status = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> "ProofProgress":
        if self.status is not None:
            self.status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.status is not None:
            self.status.stop()

    def advance(self, one: Decided) -> None:
        """One obligation more is decided."""
        if one.answer.verdict is Verdict.PROVED:
            self.num_proved += 1
        else:
            self.num_open += 1
            say(self.console, f"{one.answer.verdict.value}: {one.obligation.id}", "yellow")
        seconds = time.monotonic() - self.began
        line = f"{self.judge}: {self.num_proved:,} proved, {self.num_open:,} open after {seconds:.0f} s"
        if self.status is not None:
            self.status.update(f"{line}: {one.obligation.subject}")
        elif time.monotonic() - self.spoke >= PLAIN_INTERVAL_SECONDS:
            self.spoke = time.monotonic()
            say(self.console, line)
