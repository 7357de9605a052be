"""kvproof's pair: what its reader counts, and what its offers hold, without the judge."""

from kvproof.impl.pair import Engine, PairRequest
from kvproof.impl.pair.transport import BEAT, DONE, UNTIL, Note, Place


class Line:
    """A wire without bytes: it notes what is read and sent."""

    def __init__(self) -> None:
        self.time = 0.0
        self.reads: list[list[tuple[Place, Place]]] = []
        self.moving: set[int] = set()
        self.failed: set[int] = set()
        self.sent: list[Note] = []
        self.inbox: list[Note] = []

    def now(self) -> float:
        return self.time

    def connect(self) -> int:
        return 0

    def read(self, places: list[tuple[Place, Place]]) -> int:
        self.reads.append(places)
        self.moving.add(len(self.reads))
        return len(self.reads)

    def is_moving(self, transfer: int) -> bool:
        return transfer in self.moving

    def has_failed(self, transfer: int) -> bool:
        return transfer in self.failed

    def send(self, note: Note) -> None:
        self.sent.append(note)

    def take(self) -> list[Note]:
        notes, self.inbox = self.inbox, []
        return notes


def offered(line: Line) -> tuple[Engine, PairRequest]:
    """A side that has computed a prompt of six tokens in blocks of four."""
    engine = Engine(8, 4, line)
    engine.add(request := PairRequest(1, [1, 2, 3, 4, 5, 6], 1, is_offered=True))
    engine.schedule()
    engine.launch()
    engine.complete({1: 7})
    return engine, request


def reading(line: Line) -> Engine:
    """A side that reads it."""
    engine = Engine(8, 4, line)
    ticket = offered(Line())[0].tickets[1]
    engine.add(PairRequest(2, [1, 2, 3, 4, 5, 6], 2, ticket=ticket))
    engine.schedule()
    engine.claims.connect(fails=False)
    engine.launch()
    return engine


def test_an_offer_holds_its_blocks_until_its_reader_is_done() -> None:
    line = Line()
    engine, _ = offered(line)
    assert engine.pool.num_free == 6
    line.inbox = [Note(DONE, 1), Note(DONE, 1), Note(DONE, 99)]
    engine.complete({})
    assert engine.pool.num_free == 8


def test_a_beat_makes_a_lease_longer_that_is_not_over() -> None:
    line = Line()
    engine, _ = offered(line)
    line.time, line.inbox = 20.0, [Note(BEAT, 1)]
    engine.complete({})
    assert line.sent == [Note(UNTIL, 1, 50.0)]
    line.time, line.inbox = 50.0, [Note(BEAT, 1)]
    engine.complete({})
    assert engine.pool.num_free == 8
    assert len(line.sent) == 1


def test_a_reader_counts_what_it_sees_before_the_end_that_it_knows() -> None:
    line = Line()
    engine = reading(line)
    assert line.reads == [[(Place(at // 4, at % 4), Place(at // 4, at % 4)) for at in range(6)]]
    line.moving.clear()
    line.time = 29.0
    assert engine.complete({}) == ([2], [])
    assert line.sent[-1] == Note(DONE, 1)
    late = Line()
    engine = reading(late)
    late.moving.clear()
    late.time = 30.0
    assert engine.complete({}) == ([], [2])
    assert engine.schedule()[0][0].start == 0


def test_blocks_of_a_withdrawn_claim_stay_until_the_transfer_has_ended() -> None:
    line = Line()
    engine = reading(line)
    engine.complete({})
    engine.abort(2)
    assert engine.pool.num_free == 6
    line.moving.clear()
    engine.complete({})
    assert engine.pool.num_free == 8
    assert line.sent == [Note(DONE, 1)]
