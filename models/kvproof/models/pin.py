"""The pin: a committed list of everything that is proved, and of what the proofs assume.

If a theorem, a check or a part of a contract disappears or gets weaker, everything that is left is still proved. The
same holds if the machinery asks less, or assumes more. So `pinned.txt` has these lines:

    obligation: NAME [GOAL, given N]      the digest of the goal and of its property, and which hypotheses it has
    trivial: NAME [GOAL, given N]         the same, for an obligation that is true as it stands, without a solver
    given: SUBJECT [N]: NAME [DIGEST]; …  the hypotheses that obligations of one rule, operation or theorem have
    hypothesis: GROUP: NAME [DIGEST]      the sizes and the invariants, which most obligations have
    assumption: SUITE: NAME: FORMULA      word for word: sizes, domains of parameters, and the hypotheses of the suites
                                          that are not about the specification's rules

`kvproof prove` and the test suite fail if any of these differs. They summarise the differences: a new invariant is one
sentence about the hypotheses of all rules. `make proofs-accept` prints them, and writes the file again.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.digests import Digests
from kvproof.models.suites import OF_CODE, OF_TEXTS, SUITES, obligations_of
from kvproof.spec.language import COLLECTED, COLLECTED_OF_STORES

FILE = Path(__file__).with_name("pinned.txt")
OBLIGATION, TRIVIAL, ASSUMPTION, GIVEN, HYPOTHESIS = "obligation", "trivial", "assumption", "given", "hypothesis"
INVARIANTS = {one.name for each in (COLLECTED, COLLECTED_OF_STORES) for one in each.invariants}
OF_THE_STATEMENT = ("sizes: ", "parameter ")  # the other hypotheses of rules and contracts are the specification's text
NAMES_MAX = 4  # named in one sentence
REPAIR = "take it from version control, or write it again with make proofs-accept"

WHOLE = "every one of "  # before the name of a group
OBLIGATION_LINE = re.compile(r"(.*) \[([0-9a-f]{8}), given (\d+)\]")
GIVEN_LINE = re.compile(r"(.*?) \[(\d+)\]: (.*)")
SUITE_OF_LINE = re.compile(r"\w+: (\w+)")
ENTRY = re.compile(rf"({WHOLE}[^;\[\]]+|.+? \[[0-9a-f]{{8}}\])(?:; |$)")

Given = frozenset[str]  # hypotheses, each as `NAME [DIGEST]`


@dataclass(frozen=True)
class Pinned:
    """One obligation: whether it is trivial, the digest of its goal, and its hypotheses."""

    kind: str
    goal: str
    given: Given


class PinError(Exception):
    """The committed file is missing, cannot be read, or has a line that is wrong. The message has file and line."""


class Pin:
    """What is pinned of some obligations."""

    def __init__(self) -> None:
        self._assumptions: set[str] = set()
        self._obligations: dict[str, Pinned] = {}
        self._twice: set[str] = set()  # names that several obligations have
        self._digests = Digests()
        self._of_hypothesis: dict[tuple[str, str, int], tuple[str, str]] = {}  # with the line of the assumption, or ""
        self._given: dict[tuple[str, tuple[Hypothesis, ...]], Given] = {}  # many obligations have the same

    def add(self, obligation: Obligation) -> None:
        """Add an obligation and its assumptions."""
        kind = TRIVIAL if obligation.is_trivial() else OBLIGATION
        goal = self._digests.of([obligation.goal], obligation.property)
        known = obligation.suite, obligation.hypotheses
        if known not in self._given:
            self._given[known] = frozenset(self._hypothesis(obligation.suite, one)[0] for one in obligation.hypotheses)
            lines = (self._hypothesis(obligation.suite, one)[1] for one in obligation.hypotheses)
            self._assumptions.update(line for line in lines if line)
        name = _one_line(obligation.id)
        if name in self._obligations:  # such as two guards of a rule with one sentence: only one of them is pinned
            self._twice.add(name)
        self._obligations[name] = Pinned(kind, goal, self._given[known])

    def _hypothesis(self, suite: str, one: Hypothesis) -> tuple[str, str]:
        """The entry of a hypothesis, and the line of the assumption if it is one."""
        key = (suite, one.name, one.formula.get_id())  # the digests keep the formula alive
        if key not in self._of_hypothesis:
            line = ""
            if _is_assumption(suite, one):
                text = "an invariant" if one.name in INVARIANTS else _one_line(one.formula.sexpr())
                line = f"{ASSUMPTION}: {suite}: {one.name}: {text}"
            self._of_hypothesis[key] = f"{_one_line(one.name)} [{self._digests.of([one.formula])}]", line
        return self._of_hypothesis[key]

    @property
    def lines(self) -> set[str]:
        """The lines of the file."""
        return self._assumptions | set(_written(self._obligations))

    def differences(self, pinned: Iterable[str], is_selected: Callable[[str], bool] | None = None) -> Iterator[str]:
        """A sentence for each difference between these obligations and pinned lines.

        is_selected: whether an obligation of this name is among those added, if not all of them are.
        """
        yield from (f"two obligations are named {name}; word one of them differently" for name in sorted(self._twice))
        known = list(pinned)
        assumed, before = {line for line in known if line.startswith(f"{ASSUMPTION}: ")}, _read(known)
        both = sorted(name for name in self._obligations if name in before)
        yield from _given_changed({name: (before[name].given, self._obligations[name].given) for name in both})
        same_kind = (name for name in both if before[name].kind == self._obligations[name].kind)
        yield from _goals_changed([name for name in same_kind if before[name].goal != self._obligations[name].goal])
        names, old_names = _kinds(self._obligations), _kinds(before)
        yield from (f"new {line}" for line in sorted((names | self._assumptions) - (old_names | assumed)))
        for line in sorted((old_names | assumed) - (names | self._assumptions)):
            kind, _, name = line.partition(": ")
            if is_selected is None or (kind != ASSUMPTION and is_selected(name)):
                yield f"vanished {line}"


def pinned_lines(suites: Container[str] = SUITES) -> list[str]:
    """The lines of the committed file that are about these suites. Raises PinError."""
    try:
        lines = FILE.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PinError(f"{FILE} cannot be read ({error}), so nothing says what is to be proved; {REPAIR}") from error
    _read(lines)
    return [line for line in lines if SUITE_OF_LINE.match(line)[1] in suites]  # type: ignore[index]  # each line has one


def pinned_names(kinds: Container[str] = (OBLIGATION, TRIVIAL)) -> set[str]:
    """The names of the obligations in the committed file that are of one of these kinds."""
    return {name for name, one in _read(pinned_lines()).items() if one.kind in kinds}


def _is_assumption(suite: str, hypothesis: Hypothesis) -> bool:
    if suite in OF_TEXTS:
        return hypothesis.name.startswith(OF_THE_STATEMENT)
    return suite != OF_CODE  # its hypothesis is the invariant of a class


def _one_line(text: str) -> str:
    return " ".join(text.split())


# Differences ---------------------------------------------------------------------------------------------------------


def _kinds(obligations: dict[str, Pinned]) -> set[str]:
    return {f"{one.kind}: {name}" for name, one in obligations.items()}


def _goals_changed(names: list[str]) -> Iterator[str]:
    if names:
        yield f"the {'goals' if len(names) > 1 else 'goal'} of {_named(names)} changed"


def _given_changed(both: dict[str, tuple[Given, Given]]) -> Iterator[str]:
    """One sentence for all obligations whose hypotheses changed in the same way."""
    alike: dict[tuple[Given, Given], list[str]] = defaultdict(list)
    for name, (before, now) in both.items():
        if before != now:
            alike[now - before, before - now].append(name)
    for (more, less), names in alike.items():
        new, old = ({one.rpartition(" [")[0] for one in entries} for entries in (more, less))
        changes = [("+", new - old), ("-", old - new), ("another formula for", new & old)]
        what = "; ".join(f"{sign} {_listed(sorted(found), '; ')}" for sign, found in changes if found)
        yield f"the hypotheses of {_named(names)} changed: {what}"


def _named(names: list[str]) -> str:
    """The number of obligations, and some of their names; of many, the names of their subjects."""
    if len(names) == 1:
        return names[0]
    subjects = list(dict.fromkeys(subject_of(name) for name in names))
    return f"{len(names):,} obligations ({_listed(names if len(names) <= NAMES_MAX else subjects, ', ')})"


def _listed(names: list[str], separator: str) -> str:
    more = f" and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
    return separator.join(names[:NAMES_MAX]) + more


# The file ------------------------------------------------------------------------------------------------------------


def subject_of(name: str) -> str:
    """`suite/subject` of the name of an obligation."""
    return "/".join(name.split("/")[:2])


def _group(suite: str, entry: str) -> str:
    """The group of sizes or invariants that a hypothesis belongs to; empty for any other."""
    name = entry.rpartition(" [")[0]
    if name.startswith("sizes: "):
        return f"{suite}, sizes"
    invariant, _, state = name.partition(" ")
    return f"{suite}, invariants {state}".rstrip() if invariant in INVARIANTS else ""


def _written(obligations: dict[str, Pinned]) -> Iterator[str]:
    """The lines about obligations and their hypotheses."""
    groups: dict[str, set[str]] = defaultdict(set)
    of_subjects: dict[str, set[Given]] = defaultdict(set)
    for name, one in obligations.items():
        of_subjects[subject_of(name)].add(one.given)
    for subject, givens in of_subjects.items():
        for entry in set[str]().union(*givens):
            if group := _group(subject.partition("/")[0], entry):
                groups[group].add(entry)
    yield from (f"{HYPOTHESIS}: {group}: {entry}" for group, entries in groups.items() for entry in entries)
    numbers: dict[tuple[str, Given], int] = {}
    for subject, givens in of_subjects.items():
        of_suite = {name: group for name, group in groups.items() if name.startswith(f"{subject.partition('/')[0]},")}
        for number, given in enumerate(sorted(givens, key=lambda one: (len(one), sorted(one))), 1):
            numbers[subject, given] = number
            whole = sorted(name for name, group in of_suite.items() if group <= given)
            others = given.difference(*(of_suite[name] for name in whole))
            yield f"{GIVEN}: {subject} [{number}]: {'; '.join([*(WHOLE + name for name in whole), *sorted(others)])}"
    for name, one in obligations.items():
        yield f"{one.kind}: {name} [{one.goal}, given {numbers[subject_of(name), one.given]}]"


def _read(lines: Iterable[str]) -> dict[str, Pinned]:
    """The obligations that lines of the file pin. Raises PinError."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in (OBLIGATION, TRIVIAL, ASSUMPTION, GIVEN, HYPOTHESIS)}
    known: set[str] = set()
    for place, line in enumerate(lines, 1):
        kind, _, rest = line.partition(": ")
        if kind not in by_kind:
            raise PinError(f"{FILE}:{place}: no kind of line begins so: {line[:80]!r}; {REPAIR}")
        if line in known:
            raise PinError(f"{FILE}:{place}: the line stands there twice: {line[:80]}; {REPAIR}")
        known.add(line)
        by_kind[kind].append(rest)
    groups, used = defaultdict[str, set[str]](set), set[Any]()
    for group, _, entry in (rest.partition(": ") for rest in by_kind[HYPOTHESIS]):
        groups[group].add(entry)
    givens: dict[tuple[str, str], Given] = {}
    for subject, number, entries in (_parts(GIVEN_LINE, rest) for rest in by_kind[GIVEN]):
        found = ENTRY.findall(entries)
        whole = [entry.removeprefix(WHOLE) for entry in found if entry.startswith(WHOLE)]
        if unknown := [group for group in whole if group not in groups]:
            raise _wrong(f"{subject} [{number}]", f"names the group {unknown[0]}, which has no hypothesis")
        if "; ".join(found) != entries or (subject, number) in givens:
            raise _wrong(f"{subject} [{number}]", "is listed twice, or has another form than `NAME [DIGEST]; …`")
        used.update(whole)
        others = frozenset(one for one in found if not one.startswith(WHOLE))
        givens[subject, number] = others.union(*(groups[group] for group in whole))
    obligations: dict[str, Pinned] = {}
    for kind in (OBLIGATION, TRIVIAL):
        for name, goal, number in (_parts(OBLIGATION_LINE, rest) for rest in by_kind[kind]):
            if name in obligations:
                raise _wrong(name, "is listed twice")
            if (subject_of(name), number) not in givens:
                raise _wrong(name, f"has the hypotheses {number}, which are not listed")
            used.add((subject_of(name), number))
            obligations[name] = Pinned(kind, goal, givens[subject_of(name), number])
    for one in (*givens, *groups):
        if one not in used:
            raise _wrong(str(one), "has hypotheses that no obligation has")
    return obligations


def _wrong(name: str, what: str) -> PinError:
    return PinError(f"{FILE}: {name} {what}; {REPAIR}")


def _parts(line: re.Pattern[str], text: str) -> tuple[str, ...]:
    """The parts of a line of the file. Raises PinError if it has another form."""
    found = line.fullmatch(text)
    if found is None:
        raise PinError(f"{FILE}: a line has another form than it must have: {text[:80]}; {REPAIR}")
    return found.groups()


def accept() -> None:
    """Write the committed file from the obligations of today, and print the differences."""
    pin = Pin()
    for suite in SUITES:
        for one in obligations_of(suite):
            pin.add(one)
    try:
        pinned = pinned_lines()
    except PinError as error:
        print(f"{error}\nthe file is written as if it were new")
        pinned = []
    for sentence in pin.differences(pinned):
        print(sentence)
    FILE.write_text("".join(f"{line}\n" for line in sorted(pin.lines)), encoding="utf-8")


if __name__ == "__main__":
    accept()
