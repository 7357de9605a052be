"""Validate a recording: it is consistent with the specification, or there is a first line that is not.

The recording is read once, line by line, and may still be growing. The last few lines before a divergence are kept for
the report.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvproof.check.oracle import coverage
from kvproof.check.oracle.level import STORE
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Assumption, Unsupported
from kvproof.check.recording.format import (
    ENDED,
    LMCACHE_L1,
    SGLANG,
    STORES,
    TRANSFORMERS,
    VLLM_OFFLOAD,
    VLLM_V0,
    VLLM_V1,
    Header,
    RecordedCall,
)
from kvproof.check.recording.lmcache.judge import L1Judge
from kvproof.check.recording.reader import RecordingError, RecordingReader
from kvproof.check.recording.replayed_subject import ASSUMPTIONS, LineJudge, Unjudged
from kvproof.check.recording.sglang.judge import RadixJudge
from kvproof.check.recording.store_lines import ASSUMPTIONS as OF_STORES
from kvproof.check.recording.store_lines import NOT_RECORDED, capabilities_of
from kvproof.check.recording.transformers.judge import CacheJudge
from kvproof.check.recording.vllm_offload.judge import OffloadJudge
from kvproof.check.recording.vllm_v0.judge import V0Judge
from kvproof.check.recording.vllm_v1.judge import V1Judge
from kvproof.spec.text.properties import MEANINGS

NUM_LAST_LINES = 6
LINE_CHARACTERS = 300
EVERY = 1000  # lines between two reports of progress


NO_END = "no end line: the process was killed, is still running, or could not record to its end"


@dataclass
class Validation:
    """The result of validating one recording.

    finding: the first divergence, which is at line `line` and about `call`. last: the lines up to it, with their
    numbers. reason: why it could not be judged from line `line` on. num_calls: the number of explained
    calls. kinds: the calls by name. is_interrupted: whether the user ended it at `line`.
    """

    path: str
    header: Header
    finding: Finding | None = None
    line: int = 0
    call: str = ""
    reason: str = ""
    last: list[tuple[int, str]] = field(default_factory=list)
    num_calls: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    witnesses: Counter[str] = field(default_factory=Counter)
    missed_hits: int = 0
    is_interrupted: bool = False

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        return OF_STORES if self.header.interface in STORES else ASSUMPTIONS

    def refutation(self) -> str:
        """The line that diverges, and the lines before it."""
        assert self.finding is not None
        head = f"line {self.line} of {self.path}: {self.finding.text}"
        width = len(str(self.line))
        return "\n".join([head, "The last lines:", *(f"  {number:>{width}}  {line}" for number, line in self.last)])


def validate(path: Path, progress: Callable[[int], None] | None = None) -> Validation:
    """Validate a recording. progress: called with the number of lines, now and then.

    Raises RecordingError if the file is not a recording, and KeyboardInterrupt if that comes before a line is judged.
    """
    with RecordingReader(path) as reading:
        began = time.monotonic()
        judging = LineJudging(reading)
        try:
            while judging.advance(EVERY) == EVERY:
                if progress is not None:
                    progress(judging.done.num_calls)
        except KeyboardInterrupt:
            if not judging.done.num_calls:
                raise
            judging.interrupt()
        judging.finish()
        judging.done.seconds = time.monotonic() - began
    return judging.done


class LineJudging:
    """A recording that is judged as far as its lines are there.

    done: what is known so far. kept: the last lines with their numbers. is_over: no further line is judged, because one
    diverges or cannot be judged, or because there is none.
    """

    def __init__(self, reading: RecordingReader, num_kept: int = NUM_LAST_LINES) -> None:
        self.reading = reading
        self.done = Validation(reading.name, reading.header)
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=num_kept)
        self.judge: LineJudge | None = None
        self.is_over = self.has_end = False
        with self._deciding():
            self.judge = JUDGES[reading.header.interface](reading.header)

    def advance(self, num_lines_max: int) -> int:
        """Explain the lines that are there, at most so many; how many there were. Raises RecordingError."""
        number, reading, done, judge = 0, self.reading, self.done, self.judge
        if self.is_over or judge is None:
            return 0
        with self._deciding():
            for call in reading.calls():
                number += 1
                self.kept.append((reading.number, reading.raw))
                self.has_end, done.call = call.call == ENDED, call.call
                _explain(judge, call)
                if not self.has_end:
                    done.num_calls += 1
                    done.kinds[call.call] += 1
                if number == num_lines_max:
                    break
        return number

    def finish(self) -> None:
        """There are no more lines."""
        done, judge = self.done, self.judge
        if judge is not None and not self.is_over:
            with self._deciding():
                judge.finish()
        done.last = [(number, _shortened(raw)) for number, raw in list(self.kept)[-NUM_LAST_LINES:]]
        if judge is not None:
            done.witnesses, done.missed_hits = judge.coverage, judge.notes["hit-complete"]
        if not self.has_end and not done.finding and not done.reason:
            cut = "its last line is incomplete, and it has" if self.reading.is_torn else "it has"
            done.line, done.reason = self.reading.number, f"{cut} {NO_END}"
        self.is_over = True

    def interrupt(self) -> None:
        """The user ends the judging."""
        self.done.reason, self.done.is_interrupted = "interrupted", True
        self.done.line, self.is_over = self.reading.number, True

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Note why the judging ends here, if it does."""
        reading, done = self.reading, self.done
        try:
            yield
            return
        except AdapterError as error:
            what = f"{error}; use the file as it was recorded"
            raise RecordingError(f"{reading.name}, line {reading.number}, column 1: {what}") from None
        except Finding as finding:
            done.finding = finding
        except Unjudged as error:
            done.reason = str(error)
        except Unsupported as error:
            done.reason = f"a manager with this configuration cannot be judged: {error}"
        done.line, self.is_over = reading.number, True


JUDGES: dict[str, Callable[[Header], LineJudge]] = {
    VLLM_V0: V0Judge,
    VLLM_V1: V1Judge,
    TRANSFORMERS: CacheJudge,
    VLLM_OFFLOAD: OffloadJudge,
    LMCACHE_L1: L1Judge,
    SGLANG: RadixJudge,
}
ASKS_AGAIN = "a refusal is not final: the program evicts what is cached, or takes a request out, and asks again"


def _explain(judge: LineJudge, call: RecordedCall) -> None:
    try:
        judge.explain(call)
    except AssertionError as error:
        raise Unjudged(f"no scheduler makes calls in this order: {error}") from error


def _shortened(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace").rstrip("\n")
    return text if len(text) <= LINE_CHARACTERS else f"{text[:LINE_CHARACTERS]} … ({len(text):,} characters)"


def unjudged_properties(header: Header) -> dict[str, str]:
    """The properties that this recording cannot decide, each with the reason."""
    if header.interface in STORES:
        return _unjudged_of_a_store(header)
    is_v0, is_transformers = header.interface == VLLM_V0, header.interface == TRANSFORMERS
    can = Capabilities(
        fork=is_v0 or is_transformers,
        swap=is_v0 and header.num_host_blocks > 0,
        window=header.window is not None,
        local_attention=header.local_chunk is not None,
        caching=header.caching,
    )
    facts = coverage.Facts(can, shows_refcounts=header.shows_pool)
    reasons = {name: coverage.PROPERTIES[name][coverage.RECORDING].unfulfilled(facts) for name in MEANINGS}
    if is_transformers:
        reasons["admission-final"] = ASKS_AGAIN
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _unjudged_of_a_store(header: Header) -> dict[str, str]:
    facts = coverage.Facts(capabilities_of(header), shows_refcounts=header.shows_pool)
    reasons = {name: STORE.unsupported(name, facts) for name in MEANINGS}
    reasons |= {"source-held": NOT_RECORDED, "nondeterministic": "a recording has every call once"}
    if not header.shows_pool:
        reasons |= dict.fromkeys(("refcount-exact", "lists-agree"), coverage.RECORDED_POOL.reason)
    if header.interface == LMCACHE_L1:
        reasons["refcount-exact"] = "a lock of LMCache does not say how often it is taken"
    if header.interface == SGLANG:
        reasons["refcount-exact"] = "the number of locks of a node is not recorded"
    return {name: reason for name, reason in reasons.items() if reason is not None}
