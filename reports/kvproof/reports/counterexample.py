"""A refutation as text: what broke and where, the rule that it breaks, the command that repeats it, the numbered steps.

The order is the same in every report. A reader who sees only the first lines knows what is wrong, after which call, and
what to type. Nothing is shortened but a run of more than `STEPS_MAX` steps: its first and last steps are listed. The
saved trace has them all.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from kvproof.reports.document import DocumentError, inside, read
from kvproof.reports.identity import Identity, parts_of
from kvproof.reports.printable import cut, printable
from kvproof.reports.result import Check, Result
from kvproof.reports.summary import refuted_or_noted
from kvproof.spec.text.properties import MEANINGS, Meaning
from kvproof.spec.trace import CodePlace, Trace, is_about_a_hang, is_about_an_answer, names_code

NUMBERS = r"[-\d(),.\[\]' ]+"  # findings that differ only in numbers are reported once
SAME_CHARACTERS = 80
STEPS_MAX = 600  # of a run, in a text; a run that could not be made shorter may have 100,000
ENTERED_MAX = 4  # functions that a method entered, in a text
FIRST_STEPS = 100  # of a run with more than that
REPEAT, SAVED, SIGNATURE = "Repeat:", "Saved:", "Signature:"  # how the lines begin that are copied, and never wrapped
SIDES = re.compile(r"^\s*expected: (.*?)(?<!\s)\s{3,}observed: (.*)")
CALL_ENDS = re.compile(r"\s{3,}|\n")  # in the text of a step; what the subject did follows
NOT_IN_A_NAME = r"[^A-Za-z0-9_]"  # of a Python module; for the name of the regression test


@dataclass
class FindingView:
    """A finding as every report and page shows it: a check that refutes, with its trace, or one that notes something.

    path: the file of the trace. problem: why the trace could not be read. The other fields are for pages. name: in
    links. frames: JSON of the run for the script. not_replayed: why there are none. why_not_drawn: why a page of
    several findings leaves them out. others: the same fault, found in other ways.
    """

    check: Check
    subject: str
    trace: Trace | None = None
    path: Path | None = None
    problem: str = ""
    name: str = ""
    frames: str = ""
    not_replayed: str = ""
    why_not_drawn: str = ""
    others: "Sequence[FindingView]" = ()

    @property
    def num_steps(self) -> int | None:
        """The number of operations in the trace; None without a trace."""
        return None if self.trace is None else len(self.trace.operations)

    @property
    def steps(self) -> list[str]:
        """Each operation of the trace and its result, as text; only the operation if the trace has no step texts."""
        if self.trace is None:
            return []
        return [cut(step) for step in self.trace.steps or map(_as_call, self.trace.operations)]

    @property
    def replay(self) -> str | None:
        """The command that replays the trace; None without a trace.

        It names a subject that is code, because a trace may not choose the code that runs.
        """
        if self.path is None:
            return None
        subject = f" --subject {shlex.quote(self.subject)}" if names_code(self.subject) else ""
        return f"kvproof replay {shlex.quote(str(self.path))}{subject}"

    @property
    def where(self) -> list[str]:
        """The method of the manager in which the run broke, what it entered, and the last lines of an exception."""
        if self.trace is None or self.trace.method is None:
            return []
        verb = "answered by" if is_about_an_answer(self.trace) and self.trace.earlier is None else "while calling"
        further = [*self.before_the_call, *self.within, *self.innermost]
        return [f"{verb} {self.trace.method}", *(f"  {line}" for line in further)]

    @property
    def before_the_call(self) -> list[str]:
        """That the method was called before the step that shows what it changed, if it was."""
        if self.trace is None or (change := self.trace.earlier) is None:
            return []
        call = CALL_ENDS.split(self.steps[change.step - 1])[0] if 0 < change.step <= len(self.steps) else ""
        return [
            f"in step {change.step}{f', {call}' if call else ''}, by {change.call}; it shows in step {self.num_steps}"
        ]

    @property
    def within(self) -> list[str]:
        """The functions that the method entered, innermost first, and their lines that are new in the checkout."""
        if self.trace is None or (method := self.trace.method) is None:
            return []
        places = [CodePlace(one.function, one.file, one.line) for one in self.trace.entered]
        inner = [str(place) for place in places if place != method]
        more = f", and {len(inner) - ENTERED_MAX} more" if len(inner) > ENTERED_MAX else ""
        lines = [f"which entered {', '.join(inner[:ENTERED_MAX])}{more}"] if inner else []
        for one in self.trace.entered:
            if one.changed:
                what = f"line {one.changed[0]}" if len(one.changed) == 1 else f"lines {ranges(one.changed)}"
                verb = "differs" if len(one.changed) == 1 else "differ"
                lines.append(f"{what} of {one.function} {verb} from {self.trace.base}")
        return lines

    @property
    def innermost(self) -> list[str]:
        """The last lines of an exception that the manager raised, or those in which it stood."""
        if self.trace is None:
            return []
        what = "stood in" if is_about_a_hang(self.trace) else "raised in"
        return [f"{what} {frame}" for frame in self.trace.frames]

    @property
    def is_note(self) -> bool:
        """Whether it is a mere note: nothing is wrong, perhaps slow."""
        return bool(self.check.note)

    @property
    def headline(self) -> str:
        """The property that broke, the subject, and the step."""
        verb = "is refuted" if self.check.is_failure else "is noted"
        at = "" if self.num_steps is None else f" at step {self.num_steps}"
        return printable(f"{self.check.property} {verb} for {self.subject}{at} ({self.check.judge}).")

    # What pages have in places of their own

    @property
    def method(self) -> CodePlace | None:
        """The method in which it broke, as it may be printed."""
        if self.trace is None or (place := self.trace.method) is None:
            return None
        return CodePlace(printable(place.function), printable(place.file), place.line)

    @property
    def raised(self) -> list[str]:
        """What the method entered, and the last lines of an exception, as they may be printed."""
        return [] if self.method is None else [printable(line) for line in (*self.within, *self.innermost)]

    @property
    def earlier(self) -> list[str]:
        """That the method made the change before the last step, as it may be printed."""
        return [printable(line) for line in self.before_the_call]

    @property
    def is_about_an_answer(self) -> bool:
        return self.trace is not None and self.trace.earlier is None and is_about_an_answer(self.trace)

    @property
    def call(self) -> str:
        """The last step; empty if it is not known."""
        return printable(CALL_ENDS.split(self.steps[-1], maxsplit=1)[0]) if self.steps else ""

    @property
    def difference(self) -> str:
        """What is wrong, without the call."""
        return next(iter(self._text_lines), "").removeprefix(f"{self.call}: ")

    @property
    def sides(self) -> tuple[str, str]:
        """What is expected and what is observed; both empty if the finding compares nothing."""
        sides = next((match for line in self._text_lines[1:] if (match := SIDES.match(line))), None)
        return (sides[1], sides[2]) if sides else ("", "")

    @property
    def _text_lines(self) -> list[str]:
        return printable(cut(self.check.text)).splitlines()

    @property
    def meaning(self) -> Meaning | None:
        return MEANINGS.get(self.check.property)

    # As lines of text

    def lines(self) -> Iterator[str]:
        yield self.headline
        yield from self.details()

    def details(self) -> Iterator[str]:
        """The lines after the headline."""
        if self.check.excused:
            yield f"  No failure: {self.check.excused}"
        first, *further = self.check.said.splitlines() or [""]
        yield f"  {cut(first)}"
        yield from (f"  {line}" for line in self.where)
        yield from (f"  {cut(line)}" for line in further)
        if self.check.property in MEANINGS:
            yield f"  {MEANINGS[self.check.property].sentence}"
        if self.is_note:
            yield f"  {MEANINGS[self.check.property].consequence}"
        if self.path is not None:
            yield f"  {REPEAT} {self.replay}"
        if self.trace is not None:
            config = ", ".join(f"{name} {value}" for name, value in self.trace.config.items())
            head = "The steps" if self.steps else "No step is needed"
            yield f"  {head}{f', with {config}' if config else ''}{':' if self.steps else '.'}"
            yield from self._numbered_steps()
        if self.problem:
            yield f"  {self.problem}"
        if self.path is not None:
            test = self.path.with_name(f"test_{re.sub(NOT_IN_A_NAME, '_', self.path.stem)}.py")
            beside = [file.name for file in (test, page_of(self.path)) if file.exists()]
            yield f"  {SAVED} {' · '.join([str(self.path), *beside])}"
        if self.check.signature:
            yield f"  {SIGNATURE} {cut(self.check.signature)}"

    def _numbered_steps(self) -> Iterator[str]:
        steps = self.steps
        width = len(str(len(steps)))
        num_left_out = len(steps) - STEPS_MAX
        for number, step in enumerate(steps, start=1):
            if 0 < number - FIRST_STEPS <= num_left_out:
                if number == FIRST_STEPS + 1:
                    yield f"    {'':{width}}  … {num_left_out:,} steps are not listed; the saved trace has them all"
                continue
            first, *rest = step.splitlines() or [""]
            yield f"    {number:>{width}}  {first}"
            yield from (f"    {'':{width}}  {line}" for line in rest)

    def text(self) -> str:
        """All lines, as they may be printed."""
        return printable("\n".join(self.lines()))

    def text_of_details(self) -> str:
        """The lines after the headline, as they may be printed."""
        return printable("\n".join(self.details()))


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers as text, with neighbours as ranges: 3, 5-7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def page_of(trace: Path) -> Path:
    return trace.with_suffix(".html")


def _as_call(operation: list[object]) -> str:
    """The operation as text; a trace that nobody has checked may hold an empty one."""
    name, *arguments = operation or ("nothing",)
    return f"{name}({', '.join(repr(argument) for argument in arguments)})"


def counterexamples(result: Result, folder: Path) -> list[FindingView]:
    """Every refutation and note of the result, failures first. folder: where the traces are."""
    return [_read(check, result, folder) for check in refuted_or_noted(result)]


def shortest_first(examples: list[FindingView]) -> list[tuple[FindingView, list[FindingView]]]:
    """For each fault: the shortest example with the fewest features, and the other examples.

    Failures and excused findings are never in one group, and the groups of failures come first.
    """
    named: dict[str, dict[tuple[Identity, str], int]] = {}  # by what can name an identity: when it comes first
    for index, identity in enumerate(_identity(one.check) for one in examples):
        for name in {identity.signature, parts_of(identity.signature)[0]}:
            named.setdefault(name, {}).setdefault((identity, identity.former), index)
    groups: dict[tuple[bool, Identity], list[FindingView]] = {}
    for example in sorted(examples, key=lambda one: not one.check.is_failure):
        own = _identity(example.check)
        alike = named[parts_of(own.signature)[0]] | named.get(own.former, {})
        known = ((len(one.features), index, one) for (one, _), index in alike.items() if own.is_covered_by(one))
        _, _, fewest = min(known, key=itemgetter(0, 1))
        groups.setdefault((example.check.is_failure, fewest), []).append(example)
    ordered = [
        sorted(group, key=lambda one: (len(_identity(one.check).features), one.num_steps is None, one.num_steps))
        for group in groups.values()
    ]
    return [(group[0], group[1:]) for group in ordered]


def _identity(check: Check) -> Identity:
    """The identity of a finding, or of a note by its words."""
    return (
        check.identity
        if check.signature
        else Identity(check.property, re.sub(NUMBERS, " ", check.said)[:SAME_CHARACTERS])
    )


def also_found(found: FindingView, others: list[FindingView]) -> Iterator[str]:
    """Lines about the other examples of its mechanism: who found them, and where they are saved."""
    if others:
        counts = Counter(other.check.judge for other in others)
        yield f"  Also found by {', '.join(f'{judge}, {_times(count)}' for judge, count in counts.items())}"
    for path in dict.fromkeys(other.path for other in others if other.path not in (None, found.path)):
        yield f"  {SAVED} {path}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _read(check: Check, result: Result, folder: Path) -> FindingView:
    if check.trace is None:
        return FindingView(check, result.subject_of(check))
    try:
        path = inside(folder, check.trace)
        return FindingView(check, result.run.subject, read(path, Trace), path)
    except DocumentError as error:
        return FindingView(check, result.run.subject, problem=str(error))
