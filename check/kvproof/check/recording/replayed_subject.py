"""A recorded manager as a subject, and the judge that explains one line of its recording after another.

The answers of the subject are those of the line that is being explained. The judges of all recordings are such judges.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

from kvproof.check.protocol.adapter_check import MANAGER_CALLS
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Assumption, Config, Observation
from kvproof.check.recording.format import ENDED, STOPPED, VLLM_V0, Header, RecordedCall, RecordedSequence

ASSUMPTIONS = (
    Assumption("recorded-whole", "The recording contains every call of the manager, from the first one on."),
    Assumption("steps-in-order", "The device executes steps one after another, in the order of their scheduling."),
    Assumption("write-before-read", "A step writes its KV before it reads, so a hit may be computed in the same step."),
    Assumption("engine-computes", "The engine computes the tokens that it reports as computed."),
)


class Unjudged(Exception):
    """The recording cannot be judged any further, for a reason that is not a fault of the manager; see the message."""


class ReplayedAnswers:
    """Gives the recorded answer, or raises the recorded exception, whichever of its calls is made.

    names: of the calls. answer: of the current line. raised: its exception as text, empty if it raised none.
    """

    names: Collection[str] = ()

    def __init__(self) -> None:
        self.answer: Any = None
        self.raised = ""

    def __getattr__(self, name: str) -> Any:
        if name in type(self).names:
            return self._answered
        raise AttributeError(name)

    def _answered(self, *arguments: Any) -> Any:
        if self.raised:
            kind, _, text = self.raised.partition(": ")
            self.raised = ""
            raise type(kind, (Exception,), {})(text)
        return self.answer


class ReplayedManager(ReplayedAnswers):
    """A subject that returns the recorded answers and raises the recorded exceptions."""

    assumptions: tuple[Assumption, ...] = ASSUMPTIONS
    names = MANAGER_CALLS.all

    def __init__(self, header: Header) -> None:
        super().__init__()
        self.name = header.manager
        is_v0 = header.interface == VLLM_V0
        self.capabilities = Capabilities(
            has_admission_query=is_v0,
            swap=is_v0,
            fork=is_v0,
            window=True,
            caching=True,
            window_with_caching=True,
            local_attention=not is_v0,
            lookahead=True,
            chunked=True,
            reset=True,
            waiting_groups=is_v0,
            watermark=True,
            window_drop_when_refused=not is_v0,
            same_step_hits=True,
            steps_are_certain=True,
            kv_groups=not is_v0,
        )
        self._tables: dict[int, list[list[int]]] = {}
        reserved = tuple(header.reserved)
        self.observed = Observation(self._tables, header.free, reserved, header.refs, header.free_ids)

    def play(self, line: RecordedCall) -> None:
        """Take over the state of the manager after this line."""
        self.raised = line.raised
        changed = [recorded for recorded in line.seqs if recorded.tables is not None]
        if changed:
            self._tables = dict(self._tables)
            for recorded in changed:
                self._show(recorded)
        self.observed = Observation(self._tables, line.free, tuple(line.reserved), line.refs, line.free_ids)

    def _show(self, recorded: RecordedSequence) -> None:
        before = self._tables.pop(recorded.seq, [])
        if not recorded.tables:
            return
        rows = before if len(before) == len(recorded.tables) else [[] for _ in recorded.tables]
        if any(not 0 <= table.kept <= len(row) for table, row in zip(recorded.tables, rows, strict=True)):
            raise Unjudged(f"the line keeps more entries of the table of sequence {recorded.seq} than the table had")
        self._tables[recorded.seq] = [
            row[: table.kept] + table.rest for table, row in zip(recorded.tables, rows, strict=True)
        ]

    def open(self, config: Config) -> None:
        """Do nothing: the recorded manager is open already."""

    def observe(self) -> Observation:
        """The state of the manager after the current line."""
        return self.observed


def require_fresh(header: Header) -> None:
    """Raise Unjudged if the manager was in use when the recording began."""
    if not header.is_fresh:
        raise Unjudged(
            "the recording starts when the manager is already in use, so the content of its blocks is unknown; "
            "start recording before the first request"
        )


class LineJudge:
    """Judges one recording. The method `on_NAME` explains a line with the call NAME."""

    coverage: Counter[str]
    notes: Counter[str]

    def explain(self, line: RecordedCall) -> None:
        """Explain one line. Raises Finding if the specification does not allow it, Unjudged if it cannot be judged."""
        if line.call == ENDED:
            return
        if line.call == STOPPED:
            raise Unjudged(f"the recorder stopped here: {line.answer}")
        if line.unjudged:
            raise Unjudged(f"{line.call} with {', '.join(line.unjudged)} cannot be judged from a recording")
        handler: Callable[[RecordedCall], None] | None = getattr(self, f"on_{line.call}", None)
        if handler is None:
            raise Unjudged(f"the call {line.call!r} is unknown for this interface")
        self.explain_call(line, handler)

    def explain_call(self, line: RecordedCall, handler: Callable[[RecordedCall], None]) -> None:
        """Explain the line with the method for its call."""
        raise NotImplementedError

    def finish(self) -> None:
        """Judge what only the end of the recording decides. Raises Finding."""

    def num_blocks(self) -> Iterator[tuple[str, str, int]]:
        """How many blocks of each pool are in each state: pool, state, number."""
        raise NotImplementedError
