"""Obligations: hypotheses and a goal, with the names that people and reports use; and which are made together.

An obligation is proved when its hypotheses and the negation of its goal have no model. The identifier
`suite/subject/claim` is stable: results, baselines and the command line use it.

A unit has obligations that are made together, such as those of one rule. A run makes only the units that it selects.
"""

import builtins
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import z3

NO_GOAL = ""  # in place of a negated goal: whether the hypotheses contradict each other
PRINTED_NAME = re.compile(r"[$?]x\d+\b")
WELL_DEFINED = "well-defined"  # the property of what belongs to no property: indexes in range, divisors positive


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """An assumption and its name: an invariant, `guard`, `sizes`, a parameter, an assumption of an engine."""

    name: str
    formula: z3.BoolRef


@dataclass(frozen=True, eq=False)
class Obligation:
    """One formula to prove.

    suite: specification, operations, arithmetic, mapping, refinement. subject: the rule, operation or theorem.
    claim: an invariant's name or a sentence, unique within suite and subject. property: an id of
    `kvproof.spec.text.properties`, or `well-defined`. place: file and line that it comes from, if it has one.
    is_search: only a contradiction of the hypotheses is searched, with little effort; then the goal is `False`.
    """

    suite: str
    subject: str
    claim: str
    property: str
    hypotheses: tuple[Hypothesis, ...]
    goal: z3.BoolRef | bool
    place: str = ""
    is_search: bool = False

    @builtins.property
    def id(self) -> str:
        """The name of the obligation, unique in a run."""
        return f"{self.suite}/{self.subject}/{self.claim}"

    def is_trivial(self) -> bool:
        """Whether the goal is trivially true or is itself a hypothesis, so that no solver is needed."""
        if isinstance(self.goal, bool):
            return self.goal
        return z3.is_true(self.goal) or self.goal.get_id() in _ids(self.hypotheses)

    def negated_goal(self) -> z3.BoolRef:
        """The negated goal: it has no model together with the hypotheses if and only if the obligation holds."""
        return z3.BoolVal(not self.goal) if isinstance(self.goal, bool) else z3.Not(self.goal)

    def smt2(self) -> str:
        """The question as SMT-LIB 2 text: unsatisfiable exactly if the goal follows from the hypotheses.

        One `assert` for each hypothesis, in their order, and the last for the negated goal.
        """
        return joined(*self.question())

    def question(self) -> tuple[str, str]:
        """The hypotheses and the negated goal, each as text with its declarations. Many goals share the first text."""
        return _assumed(self.hypotheses), NO_GOAL if self.is_search else _text(self.negated_goal())


def joined(assumed: str, goal: str) -> str:
    """The two texts of a question as one SMT-LIB script."""
    declared = {line for line in assumed.splitlines() if line.startswith("(declare-")}
    return "\n".join([assumed, *(line for line in goal.splitlines() if line not in declared), "(check-sat)", ""])


@functools.lru_cache(maxsize=64)
def _ids(hypotheses: tuple[Hypothesis, ...]) -> frozenset[int]:
    """The ids of the formulas: Z3 has each formula once in a context, as long as something refers to it."""
    return frozenset(one.formula.get_id() for one in hypotheses)


@functools.lru_cache(maxsize=64)
def _assumed(hypotheses: tuple[Hypothesis, ...]) -> str:
    return _text(*(one.formula for one in hypotheses))


def _text(*formulas: z3.BoolRef) -> str:
    """Declarations and assertions, a line or more each; the same for the same formulas in every process.

    Z3's printer names the parts that several terms use, with numbers that depend on all terms that were made before. So
    the formulas are printed in a context that has nothing else, and the names are numbered by their first use.
    """
    *others, last = (one.translate(_printing()) for one in formulas or (z3.BoolVal(True),))
    terms = (z3.Ast * len(others))(*(one.as_ast() for one in others))
    text = z3.Z3_benchmark_to_smtlib_string(last.ctx_ref(), "", "", "unknown", "", len(others), terms, last.as_ast())
    text = "\n".join(line for line in text.splitlines() if line and line[0] != ";" and line != "(check-sat)")
    numbers: dict[str, str] = {}
    return PRINTED_NAME.sub(lambda found: numbers.setdefault(found[0], f"{found[0][:2]}{len(numbers)}"), text)


@functools.cache
def _printing() -> z3.Context:
    return z3.Context()


# Units -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unit:
    """Obligations that are made together. name: of their subject, or of the suite. make: makes the obligations."""

    suite: str
    name: str
    make: Callable[[], Iterable[Obligation]]

    def obligations(self) -> list[Obligation]:
        """The obligations. Raises NotInLanguage and NoProof."""
        return list(self.make())


def made(units: Iterable[Unit]) -> Iterator[Obligation]:
    """The obligations of units, one unit after the other."""
    for unit in units:
        yield from unit.obligations()
