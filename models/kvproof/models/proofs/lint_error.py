"""A lint finding in the text of the specification."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LintError:
    """One finding. place: file and line. text: what is wrong there."""

    place: str
    text: str
