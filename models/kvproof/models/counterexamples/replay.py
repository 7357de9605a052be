"""Run a candidate natively: the specification's text, compiled for the instance, decides whether the claim is false.

The lists of the state check their subscripts, because a negative one would silently read from the end. A subscript past
the end of a table only means that the instance is too small; then the run confirms nothing.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.models.counterexamples.instances import Candidate, Case, Kind
from kvproof.models.translation.sizes import WITHOUT_END
from kvproof.models.translation.text import Text
from kvproof.spec.compilation import CheckFailed
from kvproof.spec.language import COLLECTED, Domain
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.syntax_trees import called
from kvproof.spec.systems import BLOCK_MANAGERS, System
from kvproof.spec.text.state import State


class OutOfRange(Exception):
    """A subscript is not in its domain."""


class TooSmall(Exception):
    """A subscript is past the end of a table that is infinite in the specification."""


class Watched(list[Any]):
    """A list that raises OutOfRange for a negative subscript or one past its end."""

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
    """A list for a table or an enumeration; it raises TooSmall for a subscript past its end."""

    has_end = False


@dataclass(frozen=True, eq=False)
class Replayed:
    """The result of a run that confirms a candidate: the state after the rule, or where it stopped."""

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
        """The result if the run confirms that the claim is false; None if it does not."""
        state = watched(candidate.state)
        try:
            if self.case.kind is not Kind.INITIAL and not self._satisfies_the_invariants(state):
                return None
        except (OutOfRange, TooSmall, IndexError):
            return None
        if self.case.is_of_rule:
            return self._fire(state, candidate)
        return self._evaluate(state)

    def is_enabled(self, candidate: Candidate) -> bool:
        """Whether the state satisfies every invariant, and the rule fires from it."""
        state = watched(candidate.state)
        try:
            if not self._satisfies_the_invariants(state):
                return False
            return self.machine.rules[self.case.subject](state, *candidate.arguments.values()) is None
        except (OutOfRange, TooSmall, IndexError, CheckFailed):
            return False

    def _satisfies_the_invariants(self, state: State) -> bool:
        """Whether all invariants hold, without the one whose subscript is out of range in this case."""
        names = (claim.name for claim in COLLECTED.invariants)
        skipped = self.case.subject if self.case.kind is Kind.RANGE else ""
        return all(self.machine.function(name)(state) for name in names if name != skipped)

    def _fire(self, state: State, candidate: Candidate) -> Replayed | None:
        arguments = copy.deepcopy(list(candidate.arguments.values()))
        try:
            if self.machine.rules[self.case.subject](state, *arguments) is not None:
                return None
        except CheckFailed:
            return Replayed(state)  # the text has no other check
        except OutOfRange as error:
            return Replayed(state) if self._is_in_function(error) else None
        except (TooSmall, IndexError):
            return None
        return self._evaluate(state) if self.case.kind is Kind.INVARIANT else None

    def _evaluate(self, state: State) -> Replayed | None:
        """The result if the claim is false of the state, or has a subscript out of range."""
        name = self.case.subject if self.case.kind is Kind.RANGE else self.case.claim
        try:
            is_true = self.machine.function(name)(state)
        except OutOfRange as error:
            return Replayed(state) if self._is_in_function(error) else None
        except (TooSmall, IndexError):
            return None
        return None if is_true or self.case.kind is Kind.RANGE else Replayed(state)

    def _is_in_function(self, error: OutOfRange) -> bool:
        """Whether the subscript is in the function that the case is about."""
        if self.case.kind is not Kind.RANGE:
            return False
        innermost, trace = "", error.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_code.co_name
            if name in self.machine.names:
                innermost = name
            trace = trace.tb_next
        return innermost == self.case.function


def watched(state: Any, system: System = BLOCK_MANAGERS) -> Any:
    """A copy of the state whose lists check their subscripts."""
    found = system.state()
    for name, field in system.fields.items():
        setattr(found, name, watched_values(getattr(state, name), field.domains))
    return found


def watched_values(values: Any, domains: tuple[Domain, ...]) -> Any:
    """A copy of the values of a field or of an argument, in lists that check their subscripts."""
    if not domains:
        return values
    kind = Endless if domains[0].size is None or domains[0].size in WITHOUT_END else Watched
    return kind(watched_values(value, domains[1:]) for value in values)


def _with_one_check(function: ast.FunctionDef, name: str, case: Case) -> ast.FunctionDef:
    """The function without its checks, except the one that the case is about."""
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


def replay_of_rule(name: str, sizes: Sizes, text: Text) -> Replay:
    """A replay for `is_enabled`. The text may have no more functions than the rule and the invariants need."""
    return Replay(Case(Kind.INVARIANT, name, "", "", ""), sizes, text)
