"""Something in the text of the specification that breaks one of its own rules of writing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """place: file and line. text: what is wrong there."""

    place: str
    text: str
