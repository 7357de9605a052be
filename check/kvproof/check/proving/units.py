"""Units of obligations, kept so that after a change only those are made whose part of the text has changed.

A kept unit belongs to one input: a digest of its part of the text, which is all of the text that it can read
(`kvproof.models.proofs.units`), of the heads of all functions, of everything else in the files of the specification, of
kvproof's own managers and of the prover, and of Python's version. The settings and the solver have units of their own.
It has the checks of the obligations, what the pin says of them, and which sets of hypotheses they have. Only a unit is
kept of which every obligation is proved and every set has a model. That a rule fires is kept in the same way.

A function of the text may stand in another line than before, so places are kept relative to its first line.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from kvproof.check.proving.kept import Checked, Line, decided_of, restored
from kvproof.check.proving.text_digests import digest_of_part, digest_of_the_rest
from kvproof.models.pin import Pin, Pinned
from kvproof.models.proofs.obligation import Obligation
from kvproof.models.proofs.units import Unit
from kvproof.models.proofs.vacuity import Hypotheses, is_searched, set_of
from kvproof.models.solvers.answer_cache import AnswerCache
from kvproof.models.solvers.solving import ProofOutcome
from kvproof.models.translation.text import place_of
from kvproof.reports.result import Check
from kvproof.spec.verdict import Verdict

FIRED = "fired"


@dataclass(frozen=True)
class KeptObligation:
    """A check of an obligation, and what else a run needs of it.

    within: the function of the text in which its place is. line: the place, counted from the first line of it.
    kind, goal: what the pin says of it. given: the number of its hypotheses. set: the digest of their set; empty if
    they need no model.
    """

    line: Line
    within: str
    offset: int
    kind: str
    goal: str
    given: int
    set: str


@dataclass(frozen=True)
class KeptUnit:
    """The obligations of a unit; their hypotheses, as the pin names them; and the lines of its assumptions."""

    obligations: list[KeptObligation]
    given: list[list[str]]
    assumptions: list[str]


@dataclass(frozen=True, eq=False)
class Made:
    """A unit that was made in this run, and what the pin says of its obligations."""

    unit: Unit
    obligations: list[Obligation]
    pinned: list[Pinned]


@dataclass
class Units:
    """The kept units, and those that were made in this run."""

    cache: AnswerCache
    made: list[Made] = field(default_factory=list)
    fired: list[Unit] = field(default_factory=list)

    def find(self, unit: Unit) -> KeptUnit | None:
        """What is kept of a unit; None if nothing is."""
        text = self.cache.unit(_name(unit), self._digest(unit))
        try:
            return None if text is None else msgspec.json.decode(text, type=KeptUnit)
        except msgspec.MsgspecError:
            return None

    def has_fired(self, firing: Unit) -> bool:
        """Whether it is kept that a rule fires."""
        return self.cache.unit(_name(firing), self._digest(firing)) == FIRED

    def keep(self, checks: Mapping[str, Checked], pin: Pin, hypotheses: Mapping[str, Hypotheses]) -> None:
        """Keep the units that were made. checks: those of all obligations, by the ids of the obligations."""
        for one in self.made:
            if (kept := _kept(one, checks, pin, hypotheses[one.unit.suite])) is not None:
                unit = msgspec.json.encode(kept).decode()
                self.cache.add_unit(_name(one.unit), self._digest(one.unit), unit)
        for firing in self.fired:
            self.cache.add_unit(_name(firing), self._digest(firing), FIRED)

    def _digest(self, unit: Unit) -> str:
        return digest_of_part(self._rest, unit.text, unit.part)

    @cached_property
    def _rest(self) -> str:
        return digest_of_the_rest()


def _name(unit: Unit) -> str:
    return f"{unit.suite}/{unit.name}"


# Restoring -----------------------------------------------------------------------------------------------------------


def known_of(unit: Unit, kept: KeptUnit) -> Iterator[tuple[ProofOutcome, Check, Pinned, str]]:
    """Each obligation of a kept unit: its outcome and check, what the pin says of it, and its set of hypotheses."""
    given = [frozenset(one) for one in kept.given]
    for one in kept.obligations:
        line = one.line
        if one.within and line.decided is not None:
            function, file = unit.text.functions[one.within]
            place = place_of(file, ast.Pass(lineno=function.lineno + one.offset, col_offset=0))
            line = replace(line, decided=replace(line.decided, place=place))
        outcome, check = restored(line)
        assert outcome is not None
        yield outcome, check, Pinned(one.kind, one.goal, given[one.given]), one.set


# Keeping -------------------------------------------------------------------------------------------------------------


def _kept(made: Made, checks: Mapping[str, Checked], pin: Pin, hypotheses: Hypotheses) -> KeptUnit | None:
    """What is kept of a unit; None if it is not wholly proved, or a set of hypotheses has no known model."""
    given: dict[frozenset[str], int] = {}
    assumptions = set[str]()
    kept: list[KeptObligation] = []
    places = _Places(made.unit)
    for one, pinned in zip(made.obligations, made.pinned, strict=True):
        outcome, check = checks.get(one.id, (None, None))
        place = places.of(one.place)
        if outcome is None or check is None or check.verdict is not Verdict.PROVED or place is None:
            return None
        if outcome.obligation is not one:  # two have one name
            return None
        digest = set_of(one) if is_searched(one) else ""
        if digest and not hypotheses.has_model(digest):
            return None
        assumptions.update(pin.assumptions_of(one))
        number = given.setdefault(pinned.given, len(given))
        counts = {name: count for name, count in check.counts.items() if name != "cached"}
        line = Line(replace(check, counts=counts), decided_of(outcome))
        kept.append(KeptObligation(line, *place, pinned.kind, pinned.goal, number, digest))
    return KeptUnit(kept, [sorted(one) for one in given], sorted(assumptions))


class _Places:
    """The functions of a unit's part, by file."""

    def __init__(self, unit: Unit) -> None:
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        for function, file in (unit.text.functions[name] for name in unit.part):
            self._functions.setdefault(_file(place_of(file, function)), []).append(function)
        self._others = {_file(place_of(file, function)) for function, file in unit.text.functions.values()}

    def of(self, place: str) -> tuple[str, int] | None:
        """The function that has a place, and the line within it; empty if it is in no text; None if it is not known."""
        file, line = _file(place), place.rpartition(":")[2]
        for one in self._functions.get(file, []):
            if one.lineno <= int(line) <= (one.end_lineno or 0):
                return one.name, int(line) - one.lineno
        return None if file in self._others else ("", 0)


def _file(place: str) -> str:
    return place.rpartition(":")[0]
