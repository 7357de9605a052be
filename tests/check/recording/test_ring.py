"""The memory between a server and the process that writes its recording: whole messages, in order, or a refusal."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from kvproof.check.recording import ring
from kvproof.check.recording.ring import FROM_SERVER, FROM_WRITER, RingFull, RingReader, RingWriter


@contextmanager
def both_sides(num_bytes: int) -> Iterator[tuple[RingWriter, RingReader]]:
    file = ring.shared_file(num_bytes)
    writer, reader = RingWriter(file), RingReader(file)
    os.close(file)
    yield writer, reader
    writer.close()
    reader.close()


@pytest.mark.parametrize("hot_bytes", [0, 100, 1_000])
def test_messages_come_whole_and_in_order_and_only_a_full_ring_refuses_one(
    hot_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "HOT_BYTES", hot_bytes)
    random, waiting, num_refused, num_taken = Random(1), deque[tuple[bytes, bytes]](), 0, 0
    with both_sides(256) as (writer, reader):
        for _ in range(4_000):
            if random.random() < 0.55:
                first = random.randbytes(random.choice((0, 1, 7, 8, 9, 40)))
                others = [random.randbytes(random.choice((0, 3, 30))) for _ in range(random.randrange(3))]
                message = first, b"".join(others)
                try:
                    writer.put(first, others)
                    waiting.append(message)
                except RingFull:
                    num_refused += 1
                    assert sum(15 + len(one) + len(other) for one, other in (*waiting, message)) > 256 - 2 * 104
            else:
                assert reader.take() == (waiting.popleft() if waiting else None)
                num_taken += 1
            assert bool(writer.num_unread()) == bool(waiting)
    assert min(num_refused, num_taken) > 100


def test_a_server_that_is_followed_uses_the_front_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "HOT_BYTES", 256)
    with both_sides(1 << 16) as (writer, reader):
        untouched = bytes(writer._view[ring.CONTROL_BYTES + 512 :])
        for number in range(1_000):
            writer.put(b"%d" % number, [b"." * 40])
            assert reader.take() == (b"%d" % number, b"." * 40)
        assert bytes(writer._view[ring.CONTROL_BYTES + 512 :]) == untouched


def test_a_message_owns_its_bytes() -> None:
    with both_sides(256) as (writer, reader):
        buffer = bytearray(b"before")
        writer.put(b"", [memoryview(buffer)])
        buffer[:] = b"after!"
        assert reader.take() == (b"", b"before")


def test_each_side_hears_why_the_other_ends() -> None:
    with both_sides(64) as (writer, reader):
        assert (writer.has_failed(), reader.said(FROM_SERVER)) == (False, "")
        writer.say(FROM_SERVER, "zu langsam: ä" + 2_000 * ".")
        assert reader.said(FROM_SERVER).startswith("zu langsam: ä...")
        assert not writer.has_failed()
        reader.say(FROM_WRITER, "the disk is full")
        assert (writer.has_failed(), writer.said(FROM_WRITER)) == (True, "the disk is full")
