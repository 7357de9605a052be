"""What the judges of all recordings have in common: they explain one line after another."""

from collections import Counter
from collections.abc import Callable, Iterator

from kvproof.check.recording.format import ENDED, STOPPED, Header, RecordedCall
from kvproof.check.recording.replayed_subject import Unjudged


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
