"""A finding: one property is refuted, or the adapter is at fault."""

import re


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


class AdapterError(Exception):
    """The adapter breaks the protocol: what it answers is not of the type that it must be."""
