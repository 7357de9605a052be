"""One part of a search that several processes share, in C: see `exhaustive.part`. A state is kept as its string.

No order is kept: the counts do not depend on it, and the path to a finding is as short as any.
"""

import ctypes
from collections import Counter
from collections.abc import Sequence

from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive.c_reader.exploration import (
    BYTES_MIN,
    FOUND,
    GOES_ON,
    MEMORY,
    NUM_COUNTS,
    Report,
    expanded_by,
    string_at,
)
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC
from kvproof.check.search.exhaustive.left_out import READS_LEFT_OUT
from kvproof.check.search.exhaustive.part import FIRST, Order, PartLevel, Place, PlaceRefuted, Round
from kvproof.spec.text.witnesses import WITNESSES

BYTES_SENT = 1 << 23  # for other parts in one round
TOO_LARGE_TEXT = "one state has more identities than the C reader can name"


class CPart:
    """A part whose states are strings. num_bytes_max: of all parts together. num_states_max: what this one may hold."""

    def __init__(self, scope: Scope, num_bytes_max: int, num_states_max: int, number: int, num_parts: int) -> None:
        self.number, self.num_parts, self.num_states_max = number, num_parts, num_states_max
        self.spec = SpecificationInC(scope)
        self.library = self.spec.library
        self.num_bytes_max = max(num_bytes_max // num_parts, BYTES_MIN)
        self._counted, self._num_transitions, self._num_states = Counter[str](), 0, 0
        self.spec.prepare()
        for name in ("box_of_part", "end_level_of_part"):
            getattr(self.library, name).restype = ctypes.c_void_p
        memory, num_states = ctypes.c_size_t(self.num_bytes_max), ctypes.c_long(num_states_max)
        if not self.library.begin_part(number, num_parts, memory, num_states):
            raise MemoryError(f"there is no memory for a part of {self.num_bytes_max:,} bytes")
        self.library.insert_first_of_part()

    def round(self, batches: Sequence[tuple[int, bytes]], seconds: float) -> Round:
        """As `Part.round`."""
        for _, batch in batches:
            self.library.take_box(batch, ctypes.c_size_t(len(batch)))
        is_done = bool(self.library.expand_part(ctypes.c_double(seconds), ctypes.c_size_t(BYTES_SENT)))
        boxes, num = {}, ctypes.c_size_t()
        for owner in range(self.num_parts):
            place = self.library.box_of_part(owner, ctypes.byref(num))
            if num.value:
                boxes[owner] = ctypes.string_at(place, num.value)
        report, counted = self._report()
        found = PlaceRefuted(FIRST, (self.number, report.offset), None) if report.reason == FOUND else None
        done = Round(
            boxes,
            report.transitions - self._num_transitions,
            counted - self._counted,
            report.states,
            is_done,
            self._stopped(report),
            found,
            READS_LEFT_OUT.format("a rule") if report.reads_left_out else "",
        )
        self._counted, self._num_transitions = counted, report.transitions
        return done

    def _report(self) -> tuple[Report, Counter[str]]:
        report, counts = Report(), (ctypes.c_long * NUM_COUNTS)()
        self.library.report_of_part(counts, ctypes.byref(report))
        return report, Counter({name: n for name, n in zip([*self.spec.rules, *WITNESSES], counts, strict=False) if n})

    def _stopped(self, report: Report) -> str:
        if report.reason == MEMORY:
            is_full = report.states >= self.num_states_max
            return f"its {self.num_states_max:,} states" if is_full else f"its {self.num_bytes_max / 1e6:,.1f} MB"
        return "" if report.reason in (GOES_ON, FOUND) else TOO_LARGE_TEXT

    def end_level(self) -> PartLevel:
        """As `Part.end_level`."""
        num = ctypes.c_size_t()
        place = self.library.end_level_of_part(ctypes.byref(num))
        report, _ = self._report()
        num_new, self._num_states = report.states - self._num_states, report.states
        kept = ctypes.string_at(place, num.value) if num.value else b""
        return PartLevel(num_new, kept, num_bytes=report.bytes, stopped=self._stopped(report))

    def begin_level(self, ranks: Sequence[int]) -> None:
        """As `Part.begin_level`: there are no ranks."""

    def restore(self, kept: bytes, frontier: bytes) -> None:
        """As `Part.restore`."""
        self.library.restore_part(kept, ctypes.c_size_t(len(kept)))
        self._num_states = self._report()[0].states

    def came_from(self, place: int) -> tuple[Place | None, bytes]:
        """As `Part.came_from`: the state's string stands for how it was reached."""
        return string_at(self.spec, self.number, place)

    def expanded(self, num: int) -> list[bytes]:
        """The strings of at most so many states that it has expanded, evenly spaced, to be compared with Python."""
        return expanded_by(self.spec, self.number, num)

    def up_to(self, order: Order) -> tuple[int, int, Counter[str]]:
        """As `Part.up_to`: there is no order, and everything counts."""
        return 0, 0, Counter()
