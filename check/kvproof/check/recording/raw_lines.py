"""Lines as a recorder hands them to the process beside the server: with bytes in place of what takes time to convert.

A recorder copies the bytes that a call names, such as the tokens of a prompt, page ids or hashes, and the process that
writes the recording makes the numbers of the line from them. What is large is not in the raw line, but beside it in
buffers, which are copied once. That is done before the call goes on: then the server may change what it passed.
"""

from typing import Any, ClassVar

import msgspec

from kvproof.check.recording.digests import Digests
from kvproof.check.recording.format import Header, RecordedCall


class RawCall(msgspec.Struct, array_like=True, omit_defaults=True):
    """A line that is not complete. Subclasses have the bytes of one interface."""

    line: RecordedCall


class RawLines:
    """Completes the lines of one recording. Subclasses do so for one interface, whose raw lines are of type `kind`."""

    kind: ClassVar[type[RawCall]] = RawCall

    def __init__(self, header: Header, digests: Digests) -> None:
        self.header, self.digests = header, digests

    def completed(self, raw: Any, data: bytes = b"") -> RecordedCall:
        """The line. data: the bytes of its buffers. Raises an exception for what no recorder hands over."""
        line: RecordedCall = raw.line
        return line
