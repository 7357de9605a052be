"""What the recorders of vLLM V1 and of transformers have in common: the requests that lines are about.

Of a request that is known from an earlier line, only what is new is handed over. A request has a number from its first
line to the one after which it has no blocks; if it returns, it has another number, and everything is handed over again.
"""

from collections.abc import Callable
from typing import Any

from kvproof.check.recording.recorder import Recorder, num_kept
from kvproof.check.recording.sequence_lines import RawSequence


class KnownSequence:
    """What has been handed over about a request: its number, how many tokens, its tables.

    rows: copies of the manager's own tables, whose entries may be objects; a line has their ids.
    """

    __slots__ = ("num_tokens", "number", "rows")

    def __init__(self, number: int) -> None:
        self.number = number
        self.num_tokens = 0
        self.rows: list[list[Any]] = []


class SequenceRecorder(Recorder):
    """Follows requests by their names."""

    def __init__(self, *arguments: Any) -> None:
        self._known: dict[str, KnownSequence] = {}
        self._num_requests = 0
        super().__init__(*arguments)

    def _known_as(self, name: str) -> KnownSequence:
        known = self._known.get(name)
        if known is None:
            self._num_requests += 1
            known = self._known[name] = KnownSequence(self._num_requests)
        return known

    def _forget(self, name: str, seq: RawSequence) -> None:
        """Forget a request; this is the last line about its number."""
        seq.is_over = True
        self._known.pop(name, None)


def add_tokens(
    seq: RawSequence, known: KnownSequence, num_tokens: int, tokens_from: Callable[[int], list[int]]
) -> None:
    """Add the tokens that no earlier line contains. tokens_from: returns the tokens from a position on."""
    start = known.num_tokens
    if num_tokens < start:  # tokens were removed, so all are written again
        start = 0
    seq.start = start
    if num_tokens > start:
        seq.tokens = tokens_from(start)
        known.num_tokens = start + len(seq.tokens)


def add_tables(
    seq: RawSequence, known: KnownSequence, rows: list[list[Any]], ids_of: Callable[[list[Any]], list[int]] | None
) -> None:
    """Add the changes of the tables since the last line about the request. ids_of: of entries that are objects."""
    old_rows = known.rows
    if len(old_rows) != len(rows):
        old_rows = known.rows = [[] for _ in rows]
    tables: list[tuple[int, list[int]]] = []
    for old, new in zip(old_rows, rows, strict=True):
        if new == old:
            tables.append((len(old), []))
            continue
        kept = num_kept(old, new)
        rest = new[kept:]
        tables.append((kept, ids_of(rest) if ids_of else rest))
        old[kept:] = rest
    seq.tables = tables
