"""Lines as a recorder hands them to the process beside the server: short, and with bytes in place of what takes time.

A recorder copies what a call names, such as the tokens of a prompt, page ids or hashes, and the process that writes the
recording makes the fields of the line from them. A raw line is an array without names, of which the last fields are
left out if they have their defaults. What is large may be beside it in buffers, which are copied once. That is done
before the call goes on: then the server may change what it passed.
"""

from typing import Any, ClassVar

import msgspec

from kvproof.check.recording.digests import KeyedDigests
from kvproof.check.recording.format import Header, RecordedCall


class RawCall(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """A line that is not complete. Subclasses have what one interface names; the fields here are those of the line."""

    n: int = 0
    call: str = ""
    free: tuple[int, int] = (0, 0)
    answer: bool | int | str | list[tuple[int, int]] | None = None
    group: str = ""
    raised: str = ""
    refs: list[int] | None = None
    free_ids: list[int] | None = None


class RawLines:
    """Completes the lines of one recording. Subclasses do so for one interface, whose raw lines are of type `kind`."""

    kind: ClassVar[type[RawCall]] = RawCall

    def __init__(self, header: Header, digests: KeyedDigests) -> None:
        self.header, self.digests = header, digests

    def completed(self, raw: Any, data: bytes = b"") -> RecordedCall:
        """The line. data: the bytes of its buffers. Raises an exception for what no recorder hands over."""
        return RecordedCall(
            raw.n,
            raw.call,
            raw.free,
            raw.group,
            answer=raw.answer,
            raised=raw.raised,
            reserved=self.header.reserved,
            refs=raw.refs,
            free_ids=raw.free_ids,
        )
