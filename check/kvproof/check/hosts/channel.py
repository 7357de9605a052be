"""Messages over a stream socket: each is a length, and then so many bytes of MessagePack.

What arrives may come from anybody: a subject can write to the descriptors of its process.
"""

import select
import socket
import struct
from enum import Enum
from typing import Any

import msgspec

HEADER = struct.Struct("!I")
MESSAGE_BYTES_MAX = 1 << 28
TEXT_MAX = 200  # characters of a value of the other process


def text_of(value: object) -> str:
    """The text of a value, even if its `__repr__` raises."""
    try:
        text = value.name if isinstance(value, Enum) else repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text[:TEXT_MAX].encode("utf-8", "backslashreplace").decode("utf-8")


class ChannelError(Exception):
    """What arrived is no message of the other process: the subject wrote to the descriptors of its process."""


class Connection:
    """Sends and receives messages over a stream socket. A message is a length followed by MessagePack data."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()

    def send(self, message: list[Any]) -> None:
        """Send one message. Raises OSError."""
        data = self._encoder.encode(message)
        self.stream.sendall(HEADER.pack(len(data)) + data)

    def receive(self) -> Any:
        """The next message; None if the other side has closed.

        Raises TimeoutError after the timeout of the socket, and ChannelError if what arrives is no message: each is a
        list that begins with its kind.
        """
        header = self._exactly(HEADER.size)
        if header is None:
            return None
        (size,) = HEADER.unpack(header)
        if size > MESSAGE_BYTES_MAX:
            raise ChannelError(f"a message of {size:,} bytes was announced")
        data = self._exactly(size)
        if data is None:
            return None
        try:
            message = self._decoder.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise ChannelError(f"{size:,} bytes arrived that are no message: {error}") from None
        if type(message) is not list or not message:
            raise ChannelError(f"{text_of(message)} arrived, which is no message")
        return message

    def is_ready(self, seconds: float) -> bool:
        """Whether a message or the end of the connection arrives within the given time."""
        return bool(select.select([self.stream], [], [], seconds)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.stream.recv(size - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return data

    def close(self) -> None:
        self.stream.close()
