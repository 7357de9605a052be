"""A finding: the subject refutes a property. Findings are data; `text_of` is the one place that renders them."""

import re
from collections.abc import Collection, Sequence
from typing import Any

from kvproof.spec.trace import CodePlace, Operation

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the text of an object; it differs from run to run
DICT = re.compile(r"{[^{}]*}")  # tables in the text of a finding, or a configuration
RECORD = re.compile(r"\b[A-Z]\w*\((?:\w+=[^()]*)?\)(?:, )?")  # a tuple with named fields, such as the part of a step
CONTRACT = "contract "  # how the cause begins if the call was outside the contract of the engine
QUESTIONS = {"admit": "can_admit", "reserve": "can_append", "swap_out": "can_swap_out", "swap_in": "can_swap_in"}
LINE_CHARACTERS, COLUMN_GAP = 60, "   "  # of a comparison in one line


FindingKey = tuple[str, str]  # the property and the mechanism


class Finding(Exception):
    """One property is refuted.

    sentence: what is wrong; `$expected`, `$observed` and `$sequence` in it stand for the fields of these names. A
    sentence that names `$expected` first compares the two.
    cause: which call raised which exception, if one did. call: the call that the finding is about, with arguments.
    expected: what the specification says. observed: what the subject shows. blocks: the ids of the blocks concerned.
    sequence: the sequence concerned, as a text. frames: if a call raised, the last frames of the subject's code.
    promise: the question, with its argument, whose answer OK is at fault that the call failed, as `can_admit(1)`.
    """

    def __init__(
        self,
        property: str,
        sentence: str,
        cause: str = "",
        *,
        call: str = "",
        expected: Any = None,
        observed: Any = None,
        blocks: Collection[int] = (),
        sequence: str = "",
        frames: Sequence[CodePlace] = (),
        promise: str = "",
    ) -> None:
        self.frames, self.promise = tuple(frames), promise
        self.property, self.sentence, self.cause, self.call = property, sentence, cause, call
        self.expected, self.observed, self.blocks, self.sequence = expected, observed, tuple(blocks), sequence
        super().__init__(property, self.text, cause)

    def of_property(self, property: str) -> "Finding":
        """The same finding under another property, which says more exactly what is wrong."""
        return Finding(
            property,
            self.sentence,
            self.cause,
            call=self.call,
            expected=self.expected,
            observed=self.observed,
            blocks=self.blocks,
            sequence=self.sequence,
            frames=self.frames,
            promise=self.promise,
        )

    @property
    def text(self) -> str:
        """The finding as one sentence."""
        return text_of(self)

    @property
    def comparison(self) -> str:
        """What was expected beside what was observed; empty if the finding does not compare two values."""
        expected, observed = self.sentence.find("$expected"), self.sentence.find("$observed")
        if self.expected is None or self.observed is None or observed < max(expected, 0):
            return ""
        lines = f"expected: {self.expected}", f"observed: {self.observed}"
        return (COLUMN_GAP if sum(map(len, lines)) <= LINE_CHARACTERS else "\n").join(lines)

    @property
    def kind(self) -> tuple[str, str]:
        """What a shorter run must show to be the same finding: the property, and which call raised what."""
        return self.property, self.cause + self._after_question

    def mechanism(self, operation: str) -> str:
        """How the property broke, without numbers: the cause, or else the operation, and the whole sentence.

        Reports print it, and a list of known findings is compared with it.
        """
        return f"{self.cause or operation}: {self.words}{self._after_question}"

    @property
    def _after_question(self) -> str:
        """Which question got the wrong OK, if it is not the call's own: a swap-in is asked for the append after it."""
        question = self.promise.partition("(")[0]
        own = QUESTIONS.get(self.cause.partition(" ")[0], question)
        return "" if question in ("", own) else f" after {question} said OK"

    @property
    def words(self) -> str:
        """The sentence without numbers, tables, records and the call."""
        text = RECORD.sub("", DICT.sub("", self.text))
        words = _words_of(text.partition(": ")[2] or text)
        return words if words or self.cause else _words_of(text)

    def key(self, operations: Sequence[Operation]) -> FindingKey:
        """The identity of the finding in which the operations ended: its property and its mechanism."""
        return self.property, self.mechanism(operations[-1][0] if operations else "open")

    @property
    def contract(self) -> str:
        """The assumption that the call broke, if it was outside the contract of the engine."""
        return self.cause.removeprefix(CONTRACT) if self.cause.startswith(CONTRACT) else ""


def _words_of(sentence: str) -> str:
    """The first part of a sentence without numbers and brackets; empty if it has no word."""
    words = re.sub(r"[-\d(),.\[\]' ]+", " ", sentence.partition("\n")[0].partition(";")[0])
    return words.strip().replace(" :", ":") if re.search(r"\w", words) else ""


def text_of(finding: Finding) -> str:
    """The finding as one sentence: the call, and what is wrong."""
    text = finding.sentence
    for name in ("expected", "observed", "sequence"):
        text = text.replace(f"${name}", str(getattr(finding, name)))
    return f"{finding.call}: {text}" if finding.call else text


def error_text(error: BaseException) -> str:
    """The text of an exception of the subject, even if it has none that can be read."""
    try:
        return str(error)
    except Exception as unreadable:
        return f"<its text cannot be read: {type(unreadable).__name__}>"


class AdapterError(Exception):
    """The adapter breaks the protocol, or fails by itself. call: the call whose answer is wrong, until its place in the
    adapter is named."""

    def __init__(self, message: str, call: str = "") -> None:
        super().__init__(message)
        self.call = call


class OutsideTable(AdapterError):
    """The adapter of an engine does not fit a release that lies outside those it was judged with."""
