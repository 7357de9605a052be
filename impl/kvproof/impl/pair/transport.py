"""What a side needs of the wire."""

from typing import NamedTuple, Protocol

DONE, BEAT, UNTIL = "done", "beat", "until"


class Place(NamedTuple):
    """A token slot of a block."""

    block: int
    slot: int


class Note(NamedTuple):
    """A message about an offer. kind: DONE and BEAT of its reader, UNTIL of its side: the new end of its lease."""

    kind: str
    offer: int
    until: float = 0.0


class Transport(Protocol):
    """The wire, as one side uses it."""

    def now(self) -> float:
        """The time, the same for both sides."""

    def connect(self) -> int:
        """Make a handshake with the other side; its generation, which is another one after each death."""

    def read(self, places: list[tuple[Place, Place]]) -> int:
        """Begin to copy from places of the other side to places of this one; a number for this transfer.

        It fails if the other side is not the one with which the last handshake was made.
        """

    def is_moving(self, transfer: int) -> bool:
        """Whether the transfer may still write."""

    def has_failed(self, transfer: int) -> bool:
        """Whether it has ended without bringing everything."""

    def send(self, note: Note) -> None:
        """Send a message to the other side."""

    def take(self) -> list[Note]:
        """The messages that arrived since the last call."""
