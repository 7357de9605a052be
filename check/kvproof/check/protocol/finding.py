"""A finding: one property is refuted, or the adapter is at fault."""

import re
from collections.abc import Sequence

from kvproof.spec.trace import Operation

CONTRACT = "contract "  # what the cause begins with where a call was outside the contract of the engine
MECHANISM_CHARACTERS = 60


class Finding(Exception):
    """One property is refuted. `text` says what broke and where; `cause` is the exception the subject raised."""

    def __init__(self, property: str, text: str, cause: str = "") -> None:
        super().__init__(property, text, cause)
        self.property, self.text, self.cause = property, text, cause

    @property
    def kind(self) -> tuple[str, str]:
        """What a shorter run must show to be the same finding: the property, and which call raised what."""
        return self.property, self.cause

    @property
    def signature(self) -> tuple[str, str, str]:
        """Findings that differ only in numbers are one."""
        return self.property, self.cause, re.sub(r"[-\d(),.\[\]' ]+", " ", self.text)[:80]

    def mechanism(self, operation: str) -> str:
        """How it broke, for people and for a list of known findings: the operation or call, and what is said of it."""
        _, _, said = self.text.partition(": ")
        words = re.sub(r"[-\d(),.\[\]' ]+", " ", (said or self.text).partition(";")[0]).strip().replace(" :", ":")
        return f"{self.cause or operation}: {words[:MECHANISM_CHARACTERS].rstrip()}"

    def kind_of_run(self, operations: Sequence[Operation]) -> tuple[str, str]:
        """The property and the mechanism of a run that ended in this finding."""
        return self.property, self.mechanism(operations[-1][0] if operations else "open")

    @property
    def contract(self) -> str:
        """The assumption that the call broke, if it was outside the contract of the engine."""
        return self.cause.removeprefix(CONTRACT) if self.cause.startswith(CONTRACT) else ""


class AdapterError(Exception):
    """The adapter breaks the protocol: what it answers is not of the type that it must be."""
