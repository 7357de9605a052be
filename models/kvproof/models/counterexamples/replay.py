"""A candidate run natively: the text itself, compiled for the sizes of the instance, decides whether a claim is false.

The lists of the state watch their subscripts: natively a negative one would silently read from the end. A subscript
past the end of a table is the instance's, which is too small; it shows nothing.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kvproof.models.counterexamples.case import RULES, Case, Kind
from kvproof.models.counterexamples.instances import Candidate
from kvproof.models.translation.sizes import WITHOUT_END
from kvproof.models.translation.text import Text
from kvproof.spec.language import COLLECTED, Domain
from kvproof.spec.native import FIELDS, CheckFailed, Machine, Sizes, called
from kvproof.spec.text.state import State


class OutOfRange(Exception):
    """A subscript that is not in its domain."""


class TooSmall(Exception):
    """A subscript past the end of a table that has no end in the specification."""


class Watched(list[Any]):
    """A list without subscripts from its end."""

    has_end = True

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            self._require(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, int):
            self._require(index)
        super().__setitem__(index, value)

    def _require(self, index: int) -> None:
        if index < 0 or (index >= len(self) and self.has_end):
            raise OutOfRange
        if index >= len(self):
            raise TooSmall


class Endless(Watched):
    """A list that stands for a table or an enumeration."""

    has_end = False


@dataclass(frozen=True, eq=False)
class Replayed:
    """What a run has left: the state after, or where it stopped."""

    after: State


class Replay:
    """Runs one case of a text in one instance."""

    def __init__(self, case: Case, sizes: Sizes, text: Text) -> None:
        self.case = case
        functions = dict(text.functions)
        if case.kind is Kind.CHECK:
            functions = {name: (_with_one_check(one, name, case), file) for name, (one, file) in functions.items()}
        has_checks = case.kind is Kind.CHECK
        self.machine = Machine(sizes, with_ghosts=True, with_checks=has_checks, text=functions)

    def run(self, candidate: Candidate) -> Replayed | None:
        """What the run leaves if it shows that the claim is false; None if it does not."""
        state = watched(candidate.state)
        try:
            if self.case.kind is not Kind.INITIAL and not self._satisfies_the_invariants(state):
                return None
        except (OutOfRange, TooSmall, IndexError):
            return None
        if self.case.is_of_rule:
            return self._fired(state, candidate)
        return self._read(state)

    def is_enabled(self, candidate: Candidate) -> bool:
        """Whether the rule fires from there, a state that satisfies every invariant before."""
        state = watched(candidate.state)
        try:
            if not self._satisfies_the_invariants(state):
                return False
            return self.machine.rules[self.case.subject](state, *candidate.arguments.values()) is None
        except (OutOfRange, TooSmall, IndexError, CheckFailed):
            return False

    def _satisfies_the_invariants(self, state: State) -> bool:
        """All of them; where the case is that one of them reads what is not there, the others."""
        names = (claim.name for claim in COLLECTED.invariants)
        read = self.case.subject if self.case.kind is Kind.RANGE else ""
        return all(self.machine.word(name)(state) for name in names if name != read)

    def _fired(self, state: State, candidate: Candidate) -> Replayed | None:
        arguments = copy.deepcopy(list(candidate.arguments.values()))
        try:
            if self.machine.rules[self.case.subject](state, *arguments) is not None:
                return None
        except CheckFailed:
            return Replayed(state)  # there is no other check in this text
        except OutOfRange as error:
            return Replayed(state) if self._stands_there(error) else None
        except (TooSmall, IndexError):
            return None
        return self._read(state) if self.case.kind is Kind.INVARIANT else None

    def _read(self, state: State) -> Replayed | None:
        """Whether a claim is false of the state, or reads what is not there."""
        name = self.case.subject if self.case.kind is Kind.RANGE else self.case.claim
        try:
            is_true = self.machine.word(name)(state)
        except OutOfRange as error:
            return Replayed(state) if self._stands_there(error) else None
        except (TooSmall, IndexError):
            return None
        return None if is_true or self.case.kind is Kind.RANGE else Replayed(state)

    def _stands_there(self, error: OutOfRange) -> bool:
        """Whether the subscript stands in the function that the case is about."""
        if self.case.kind is not Kind.RANGE:
            return False
        innermost, trace = "", error.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_code.co_name
            if name in self.machine.names:
                innermost = name
            trace = trace.tb_next
        return innermost == self.case.function


def watched(state: State) -> State:
    """A copy of the state whose lists watch their subscripts."""
    found = State()
    for name, field in FIELDS.items():
        setattr(found, name, _watched(getattr(state, name), field.domains))
    return found


def _watched(values: Any, domains: tuple[Domain, ...]) -> Any:
    if not domains:
        return values
    kind = Endless if domains[0].size in WITHOUT_END else Watched
    return kind(_watched(value, domains[1:]) for value in values)


def _with_one_check(function: ast.FunctionDef, name: str, case: Case) -> ast.FunctionDef:
    """The function without any check but the one that the case is about."""
    found = copy.deepcopy(function)
    found.body = list(_without_checks(found.body, case.claim if name == case.function else None))
    return found


def _without_checks(body: list[ast.stmt], kept: str | None) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If):
            statement.body = list(_without_checks(statement.body, kept)) or [ast.Pass()]
            statement.orelse = list(_without_checks(statement.orelse, kept))
        elif called(statement) == "check" and ast.unparse(statement.value.args[0]) != kept:  # type: ignore[attr-defined]
            yield ast.copy_location(ast.Pass(), statement)
            continue
        yield statement


def replays(sizes: Sizes, text: Text) -> Iterator[tuple[str, Replay]]:
    """For each rule one that only fires it."""
    whole = Replay(Case(Kind.INVARIANT, "", "", "", ""), sizes, text)
    for name in RULES:
        one = copy.copy(whole)
        one.case = replace(whole.case, subject=name)
        yield name, one
