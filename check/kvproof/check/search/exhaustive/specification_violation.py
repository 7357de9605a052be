"""What an exploration finds: the specification itself breaks one of its properties."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Violation:
    """Which property is broken, and what broke where."""

    property: str
    text: str


class Violated(Exception):
    """Raised while the transitions of a state are tried, with the operation that was being tried."""

    def __init__(self, violation: Violation, operation: tuple[Any, ...]) -> None:
        super().__init__(violation, operation)
        self.violation, self.operation = violation, operation
