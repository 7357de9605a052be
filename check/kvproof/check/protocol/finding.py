"""A finding: the subject refutes a property. Findings are data; `text_of` is the one place that renders them.

**The identity of a finding** says which fault it shows: two findings are the same if they have one property and one
signature. The signature is made of what the judge knows when it raises the finding, and not of its text:

- the operation, or the call that raised an exception and the type of the exception;
- the claim that was broken: the sentence before any value is put into it. If a guard of the specification refused, its
  rule is named too. If the subject raised, it is the function that raised, and the name of its file;
- the question whose answer OK was not kept, if it is not the call's own question;
- what the call was about, such as the end of a transfer whose lease was over; of a number that is compared, whether it
  is too large or too small;
- the features of the configuration that the shortest run uses (`Counterexample.identity`).

How many requests, sequences or tokens a run has, which ids and which values are no part of it, nor a line number or a
path. So one fault has one identity, in a longer run and in the next release. `kvproof.reports.identity` says when a
known finding covers one that is found.

Before signatures were made of claims, they were made of the text of a finding: its words without numbers, tables and
records (`former_signature`). Baselines, lists of known findings and histories may hold such ones; this is their only
use.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kvproof.spec.trace import CodePlace, Operation

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the text of an object; it differs from run to run
VALUE = re.compile(r"\$([a-z]+)")  # where a value stands in a sentence
CONTRACT = "contract "  # how the cause begins if the call was outside the contract of the engine
QUESTIONS = {"admit": "can_admit", "reserve": "can_append", "swap_out": "can_swap_out", "swap_in": "can_swap_in"}
LINE_CHARACTERS, COLUMN_GAP = 60, "   "  # of a comparison in one line
TEXTS = "call", "sequence", "promise", "rule", "about", "raised_in"  # fields of a finding that are texts

FindingKey = tuple[str, str]  # the property and the mechanism

DICT = re.compile(r"{[^{}]*}")  # tables in the text of a finding, or a configuration
RECORD = re.compile(r"\b[A-Z]\w*\((?:\w+=[^()]*)?\)(?:, )?")  # a tuple with named fields, such as the part of a step


class Finding(Exception):
    """One property is refuted.

    sentence: what is wrong; `$expected`, `$observed`, `$sequence` and the names in `values` stand in it for values. A
    value that is not a number must stand there by its name, because the identity has the words of the sentence. What
    follows a semicolon is no part of the identity. A sentence that names `$expected` first compares the two.
    cause: which call raised which exception, if one did. call: the call that the finding is about, with arguments.
    expected: what the specification says. observed: what the subject shows. blocks: the ids of the blocks concerned.
    sequence: the sequence concerned, as a text. frames: if a call raised, the last frames of the subject's code.
    promise: the question, with its argument, whose answer OK is at fault that the call failed, as `can_admit(1)`.
    rule: of the specification, whose guard refused. about: what kind of thing the call was about, in words that are the
    same in every run. raised_in: the function of the subject that raised, and the name of its file. tried: in a search
    of states, the operation that shows it; () if the state itself does, None if it is the one that was tried last.
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
        rule: str = "",
        about: str = "",
        raised_in: str = "",
        tried: Operation | None = None,
        values: Mapping[str, object] | None = None,
    ) -> None:
        self.property, self.sentence, self.cause, self.call, self.tried = property, sentence, cause, call, tried
        self.promise, self.rule, self.about = promise, rule, about
        self.frames, self.raised_in = tuple(frames), raised_in
        self.expected, self.observed, self.blocks, self.sequence = expected, observed, tuple(blocks), sequence
        self.values = {name: str(value) for name, value in (values or {}).items()}
        super().__init__(property, self.text, cause)

    def of_property(self, property: str, about: str = "") -> "Finding":
        """The same finding under another property, which says more exactly what is wrong, and what more it is about."""
        names = (*TEXTS, "expected", "observed", "blocks", "frames", "values")
        fields = {name: getattr(self, name) for name in names}
        fields["about"] = ", ".join(filter(None, (self.about, about)))
        return Finding(property, self.sentence, self.cause, **fields)

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
        return self.property, self.cause + self.after_question

    def mechanism(self, operation: str) -> str:
        """How the property broke: the signature without the features of the configuration."""
        about = f", {self.about}" if self.about else ""
        return f"{self.cause or operation}: {self.claim}{about}{self.after_question}"

    @property
    def claim(self) -> str:
        """What does not hold, in words that are the same in every run."""
        if self.raised_in:
            return f"raised in {self.raised_in}"
        words = words_of(VALUE.sub("", self.sentence))
        return f"rule {self.rule}: {words}" if self.rule else words

    @property
    def after_question(self) -> str:
        """Which question got the wrong OK, if it is not the call's own: a swap-in is asked for the append after it."""
        question = self.promise.partition("(")[0]
        own = QUESTIONS.get(self.cause.partition(" ")[0], question)
        return "" if question in ("", own) else f" after {question} said OK"

    def key(self, operations: Sequence[Operation]) -> FindingKey:
        """What is known of the identity when a run ends in the finding: its property and its mechanism."""
        return self.property, self.mechanism(operation_of(operations))

    @property
    def contract(self) -> str:
        """The assumption that the call broke, if it was outside the contract of the engine."""
        return self.cause.removeprefix(CONTRACT) if self.cause.startswith(CONTRACT) else ""


def direction(pairs: Iterable[tuple[int, int]]) -> str:
    """Whether the observed numbers are too large or too small, for what a finding is about.

    pairs: expected and observed numbers, which differ. A leak and a block that is freed too early are two faults.
    """
    is_less = {observed < expected for expected, observed in pairs}
    return "some too large, others too small" if len(is_less) == 2 else "too small" if True in is_less else "too large"


def operation_of(operations: Sequence[Operation]) -> str:
    """The operation in which a run ends."""
    return str(operations[-1][0]) if operations else "open"


def words_of(sentence: str) -> str:
    """The first part of a sentence without numbers and brackets; empty if it has no word."""
    words = re.sub(r"[-\d(),.\[\]' ]+", " ", sentence.partition("\n")[0].partition(";")[0])
    return words.strip().replace(" :", ":") if re.search(r"\w", words) else ""


def text_of(finding: Finding) -> str:
    """The finding as one sentence: the call, and what is wrong."""
    names = {"expected": finding.expected, "observed": finding.observed, "sequence": finding.sequence}
    values = names | finding.values
    text = VALUE.sub(lambda found: str(values.get(found[1], found[0])), finding.sentence)
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


def former_signature(finding: Finding, operation: str) -> str:
    """The signature that the finding would have had, if a run ended in it with this operation."""
    text = RECORD.sub("", DICT.sub("", finding.text))
    words = words_of(text.partition(": ")[2] or text)
    if not words and not finding.cause:
        words = words_of(text)
    return f"{finding.cause or operation}: {words}{finding.after_question}"
