"""Explore every path of a run that forks: repeat the run from its start, each time with other answers.

A run asks questions (`decide`, `value_of`). At a new question the solver finds out which answers are possible, given
the earlier ones. One answer is given at once and the other later, depth first. The answers form the path condition. A
question with only one possible answer is not a fork. If the solver gives up, an answer counts as possible: a
superfluous path costs time but hides nothing, so the solver need not be asked at all.

The run must be deterministic: after the same answers it must ask the same questions. The exploration raises
NotRepeatable if it does not. At the end of every question, it asserts that both answers led to a path, or that the
solver excluded the one that did not.

The solver has a context of its own and a fixed effort, so the paths, and their order, are the same in every process. A
condition has the questions as the run asked them. Of the values of a number it has the one that the path takes, and not
those that were taken before. So it does not depend on the order in which the solver finds the values.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import z3

from kvproof.models.concolic.refusal import EndsProof, refuse
from kvproof.models.concolic.symbolic import deciding

TermT = TypeVar("TermT", z3.BoolRef, z3.ArithRef)
PATHS_MAX = 20_000
VALUES_MAX = 64
EFFORT_MAX = 15_000_000  # for each check, in Z3's units: about five seconds


class NoSuchState(EndsProof):
    """No values satisfy the assumptions of the run, so it would prove nothing."""


class TooManyPaths(EndsProof):
    """The run has more paths, or a number has more values, than the limit."""


class GaveUp(EndsProof):
    """The solver did not find an answer within its effort."""


class NotRepeatable(EndsProof):
    """After the same answers the run asked other questions."""


@dataclass
class Fork:
    """One question on the path, and its answer.

    asked: the question of the run. question: the same for the solver, in its context. is_open: the other answer is
    still to be tried. is_forced: the other answer is impossible. value: the number, if the question is whether a term
    equals it. other: a model for the other answer. explored: the answers that led to a path.
    """

    asked: z3.BoolRef
    question: z3.BoolRef
    answer: bool
    is_open: bool
    is_forced: bool
    value: int | None
    other: z3.ModelRef | None
    explored: set[bool] = field(default_factory=set)

    @property
    def condition(self) -> tuple[z3.BoolRef, ...]:
        """What the answer adds to the condition of the path: nothing, if it follows, or excludes only one value."""
        if self.value is not None:
            return (self.asked,) if self.answer else ()
        return () if self.is_forced else (_given(self.asked, self.answer),)


class Exploration:
    """Repeats a run until every answer was given. `assume` must be called before the first question.

    asks_solver: if False, every answer counts as possible, and `value_of` fails for terms that are not constant.
    """

    def __init__(self, asks_solver: bool = True) -> None:
        self._asks_solver = asks_solver
        self.num_checks = 0
        self.assumptions: list[z3.BoolRef] = []
        self._context = z3.Context()
        self._solver = z3.Solver(ctx=self._context)
        self._solver.set("rlimit", EFFORT_MAX)
        self._forks: list[Fork] = []
        self._known: dict[int, bool] = {}
        self._numbers: dict[str, z3.ArithRef] = {}  # by name, in the solver's context
        self._plain: dict[int, tuple[z3.ExprRef, z3.ExprRef]] = {}  # by the id of a term, which is kept alive
        self._position = 0
        self._is_first = True
        self._model: z3.ModelRef | None = None
        self._found: z3.ModelRef | None = None  # by the latest check that had an answer

    def paths(self, run: Callable[[], None]) -> Iterator[tuple[z3.BoolRef, ...]]:
        """Run once for each path; yields the condition of the path after its run.

        Raises NoSuchState, TooManyPaths, NotRepeatable.
        """
        for _ in range(PATHS_MAX):
            self._position = 0
            self._known.clear()
            deciding(self, run)
            if self._asks_solver:
                self._first_model()
            self._is_first = False
            if self._position != len(self._forks):
                raise NotRepeatable(f"the run ended before it asked {self._forks[self._position].asked} again")
            for fork in self._forks:
                fork.explored.add(fork.answer)
            yield tuple(part for fork in self._forks for part in fork.condition)
            if not self._next_path():
                return
        raise TooManyPaths(f"more than {PATHS_MAX} paths")

    def assume(self, condition: Callable[[], z3.BoolRef]) -> None:
        """Assume a condition on every path. It is built on the first path only, since each path assumes the same.

        Raises ValueError after the first question.
        """
        if self._position:
            raise ValueError("assume comes before the first question")
        if self._is_first:
            made = condition()
            self.assumptions.append(made)
            self._solver.add(made.translate(self._context))

    def values(self, names: Iterable[str], condition: z3.BoolRef | None = None) -> dict[str, int] | None:
        """Values of these integers that take the latest path and satisfy the condition; None if there are none.

        Raises GaveUp.
        """
        model = self._first_model()
        if condition is not None:
            result = self._check(condition.translate(self._context))
            if result == z3.unsat:
                return None
            model = self._found if result == z3.sat else None
        if model is None:
            raise GaveUp("the solver does not decide whether any values take this path")
        found = {}
        for name in names:
            if name not in self._numbers:
                self._numbers[name] = z3.Int(name, self._context)
            found[name] = int(model.eval(self._numbers[name], model_completion=True).as_long())
        return found

    def decide(self, question: z3.BoolRef) -> bool:
        """The answer on this path."""
        plain = self._simplified(question)
        if z3.is_true(plain) or z3.is_false(plain):
            return z3.is_true(plain)
        known = self._known.get(plain.get_id())
        if known is None:
            known = self._known[plain.get_id()] = self._answer(question, plain, None)
        return known

    def value_of(self, term: z3.ArithRef) -> int:
        """The value of the term on this path. It must have finitely many. Raises GaveUp, TooManyPaths, Refused."""
        plain = self._simplified(term)
        if isinstance(plain, z3.IntNumRef):
            return int(plain.as_long())
        if not self._asks_solver:
            raise refuse(f"{plain} is used as a concrete number")
        for _ in range(VALUES_MAX):
            if self._position < len(self._forks):
                value = self._forks[self._position].value
                assert value is not None
            else:
                model = self._first_model()
                if model is None:
                    raise GaveUp(f"the solver finds no value for {plain}")
                value = model.eval(plain, model_completion=True).as_long()
            if self._answer(term == value, plain == value, value):
                return int(value)
        raise TooManyPaths(f"{plain} is used as a concrete number, and has more than {VALUES_MAX} possible values")

    def _simplified(self, term: TermT) -> TermT:
        """The term in the solver's context. Most paths ask about the same terms."""
        number = term.get_id()
        if number not in self._plain:
            self._plain[number] = term, z3.simplify(term.translate(self._context))
        return self._plain[number][1]  # type: ignore[return-value]  # of the same sort

    def _answer(self, asked: z3.BoolRef, question: z3.BoolRef, value: int | None) -> bool:
        if self._position == len(self._forks):
            self._forks.append(self._ask(asked, question, value))
        fork = self._forks[self._position]
        if not fork.question.eq(question):
            raise NotRepeatable(f"the run asked {asked}, and after the same answers before {fork.asked}")
        self._position += 1
        return fork.answer

    def _ask(self, asked: z3.BoolRef, question: z3.BoolRef, value: int | None) -> Fork:
        if not self._asks_solver:
            self._solver.push()
            return Fork(asked, question, True, True, False, value, None)
        model = self._first_model()
        answer = model is None or z3.is_true(model.eval(question, model_completion=True))
        if model is None and self._check(question) == z3.unsat:
            return Fork(asked, question, False, False, True, value, None)
        result = self._check(_given(question, not answer))
        if result == z3.unsat:
            return Fork(asked, question, answer, False, True, value, None)
        other = self._found if result == z3.sat else None
        self._solver.push()
        self._solver.add(_given(question, answer))
        return Fork(asked, question, answer, True, False, value, other)

    def _next_path(self) -> bool:
        while self._forks:
            fork = self._forks[-1]
            if fork.is_open:
                fork.answer, fork.is_open, self._model = not fork.answer, False, fork.other
                self._solver.pop()
                self._solver.push()
                self._solver.add(_given(fork.question, fork.answer))
                return True
            outcomes = {fork.answer} if fork.is_forced else {True, False}
            assert fork.explored == outcomes, f"{fork.asked} led to a path for {fork.explored}, not for {outcomes}"
            if not fork.is_forced:
                self._solver.pop()
            self._forks.pop()
        return False

    def _first_model(self) -> z3.ModelRef | None:
        """A model of the path so far; None if the solver gives up. Raises NoSuchState."""
        if self._model is None:
            result = self._check()
            if result == z3.unsat:
                raise NoSuchState("no values satisfy the assumptions")
            self._model = self._solver.model() if result == z3.sat else None
        return self._model

    def _check(self, *also: z3.BoolRef) -> z3.CheckSatResult:
        self.num_checks += 1
        if not also:
            return self._solver.check()
        self._solver.push()
        self._solver.add(*also)
        result = self._solver.check()
        if result == z3.sat:
            self._found = self._solver.model()
        self._solver.pop()
        return result


def _given(question: z3.BoolRef, answer: bool) -> z3.BoolRef:
    return question if answer else z3.Not(question)
