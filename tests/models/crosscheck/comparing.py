"""One drawn program read both ways: translated once for all sizes, and run natively for some.

The formulas of the one translation are evaluated under each native state, and compared with the native run: whether
every value is defined, the guards, the checks, every cell of the state after, and the claims.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import z3
from tests.models.crosscheck.running import (
    SIZES,
    Loaded,
    Strict,
    drawn_argument,
    drawn_state,
    strict_functions,
    strictly,
)

from kvproof.models.crosscheck.evaluation import Evaluator, Evaluators
from kvproof.models.crosscheck.interpretation import Interpretation, OutOfDomain, given, interpretation
from kvproof.models.translation.conditions import Demand
from kvproof.models.translation.maps import Map, SymbolicState
from kvproof.models.translation.rules import Outcome
from kvproof.models.translation.translator import Parameter, Translator
from kvproof.spec.compilation import CheckFailed
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import State

RULE, OF_TWO_STATES, RECORD = "advance", "is_kept", "pair"
BARE = 4  # for one of so many sizes, the native run without ghosts is compared too


class Disagreement(AssertionError):
    """The two readers differ."""


@dataclass(frozen=True)
class Formulas:
    """The demands of a text in order, and its value if it has one, as functions of an interpretation."""

    demands: list[tuple[Demand, Evaluator]]
    value: Evaluator | None = None


class Symbolic:
    """The translation of a program for all sizes, ready to be evaluated."""

    def __init__(self, program: Loaded) -> None:
        self.evaluator = Evaluators().of
        self.translator = Translator(text=program.text)
        self.before = self.translator.unknown_state()
        self.parameters = list(self.translator.parameters(program.names[RULE]))
        self.known = [self.evaluator(one.known) for one in self.parameters]
        self.assumptions = [self.evaluator(one) for one in self.translator.universe.assumptions()]
        self._read_rule(self.translator.run(RULE, self.before, *(one.value for one in self.parameters)))
        names = [claim.name for claim in (*COLLECTED.invariants, *COLLECTED.theorems)]
        self.claims = {name: self._formulas(self.translator.run(name, self.before)) for name in names}
        after = self.outcome.state
        self.claims_after = {
            one.name: self.evaluator(self.translator.holds(one.name, after)) for one in COLLECTED.invariants
        }
        self.record = program.names["Pair"]
        annotations = self.record.__annotations__
        self.fields_of_record = [self.translator.unknown(name, kind) for name, kind in annotations.items()]
        record = self.record(**{one.name: one.value for one in self.fields_of_record})
        values = {"start": self.translator.unknown_state("start_"), "state": self.before, RECORD: record}
        self.of_two_states = self._formulas(self.translator.value(OF_TWO_STATES, values))

    def _read_rule(self, outcome: Outcome) -> None:
        self.outcome, self.rule = outcome, self._formulas(outcome)
        self.guard = self.evaluator(outcome.guard)
        self.guards = [self.evaluator(one.formula) for one in outcome.guards]
        self.checks = [self.evaluator(one.formula) for one in outcome.checks]
        self.cells = {name: self._cell(name, outcome.state) for name in FIELDS}
        self.first = {name: self._cell(name, self.translator.first_state()) for name in FIELDS}

    def _formulas(self, outcome: Outcome) -> Formulas:
        demands = [(one, self.evaluator(one.formula)) for one in outcome.demands]
        return Formulas(demands, None if isinstance(outcome.value, Map) else self.evaluator(outcome.value))

    def _cell(self, name: str, state: SymbolicState) -> Evaluator:
        """The value of a field in a state, as a function of its indexes."""
        indexes = [z3.Int(f"cell_{place}") for place in range(len(FIELDS[name].domains))]
        return self.evaluator(state.maps[name].read(*indexes), indexes)


class Comparison:
    """A program against itself, for machines of some sizes. counts: what was compared."""

    def __init__(self, program: Loaded) -> None:
        self.program = program
        self.symbolic = Symbolic(program)
        self.strict_functions = strict_functions(program.source)
        self.counts = Counter[str]()

    def compare(self, random: Random, num_sizes: int, num_states: int) -> None:
        """Compare on drawn states. Raises Disagreement."""
        for sizes in random.sample(SIZES, num_sizes):
            of_sizes = _OfSizes(self, sizes, has_bare=random.randrange(BARE) == 0)
            try:
                of_sizes.compare_first_state()
                for _ in range(num_states):
                    of_sizes.compare(random)
            except OutOfDomain as error:
                raise Disagreement(f"where both readers should be defined: {error}") from error


class _OfSizes:
    def __init__(self, comparison: Comparison, sizes: Sizes, has_bare: bool) -> None:
        self.has_bare = has_bare
        self.symbolic, self.counts = comparison.symbolic, comparison.counts
        self.program, self.sizes = comparison.program, sizes
        self.machine = Machine(sizes, text=self.program.text.functions)
        self.strict = Machine(sizes, text=comparison.strict_functions)

    @cached_property
    def without_ghosts(self) -> Machine:
        return Machine(self.sizes, with_ghosts=False, with_checks=False, text=self.program.text.functions)

    def compare_first_state(self) -> None:
        first = self.machine.first_state()
        meaning = interpretation(self.machine, state=first)
        _agree("the assumptions about the sizes", _all(self.symbolic.assumptions, meaning), True)
        self._compare_cells("the first state", self.symbolic.first, first, meaning)

    def compare(self, random: Random) -> None:
        """Draw two states and arguments, and compare everything."""
        before, start = drawn_state(random, self.machine), drawn_state(random, self.machine)
        meaning = interpretation(self.machine, state=before, start=start)
        arguments = self._arguments(random, self.program.names[RULE].__annotations__, self.symbolic.parameters)
        if arguments is not None:
            self._compare_rule(before, arguments, meaning)
        for name, claim in self.symbolic.claims.items():
            self._compare_function(name, claim, (before,), meaning)
        symbolic = self.symbolic
        values = self._arguments(random, symbolic.record.__annotations__, symbolic.fields_of_record)
        if values is not None:
            meaning = meaning.extended(given(self.machine, symbolic.fields_of_record, values))
            record = symbolic.record(**values)
            self._compare_function(OF_TWO_STATES, symbolic.of_two_states, (start, before, record), meaning)

    def _arguments(
        self, random: Random, annotations: Mapping[str, Any], parameters: Iterable[Parameter]
    ) -> dict[str, Any] | None:
        found = {one.name: drawn_argument(random, self.machine, annotations[one.name]) for one in parameters}
        return None if None in found.values() else found

    def _compare_rule(self, before: State, arguments: Mapping[str, Any], meaning: Interpretation) -> None:
        symbolic = self.symbolic
        meaning = meaning.extended(given(self.machine, symbolic.parameters, arguments))
        _agree("what is known of the parameters", _all(symbolic.known, meaning), True)
        strict_after = self.strict.copy(before)
        strict = strictly(self.strict, RULE, strict_after, *arguments.values())
        if not self._is_defined(RULE, symbolic.rule, strict, meaning):
            return
        after, guard, check = self.machine.copy(before), None, None
        try:
            guard = self.machine.rules[RULE](after, *arguments.values())
            _agree("the state after a strict run", vars(strict_after), vars(after))
        except CheckFailed as error:
            after, check = strict_after, error
        self.counts["rule runs"] += 1
        _agree("whether the rule is enabled", symbolic.guard.under(meaning)(), guard is None)
        if guard is not None:
            self.counts["refused"] += 1
            guards = zip(symbolic.outcome.guards, symbolic.guards, strict=True)
            failing = next((one.text for one, formula in guards if not formula.under(meaning)()), None)
            _agree("the first guard that fails", failing, guard.sentence)
            _agree("the state of a refused rule", vars(after), vars(before))
            return
        self.counts["fired"] += 1
        self._compare_checks(check, strict.checks, meaning)
        self._compare_cells("the state after", symbolic.cells, after, meaning)
        if self.has_bare:
            bare = self.without_ghosts.copy(before)
            self.without_ghosts.rules[RULE](bare, *arguments.values())
            _agree("the state without ghosts", {name: getattr(after, name) for name in vars(bare)}, vars(bare))
            self.counts["runs without ghosts"] += 1
        for name, formula in symbolic.claims_after.items():
            strict = strictly(self.strict, name, after)
            if strict.line is None and not strict.is_beyond:
                _agree(f"{name} of the state after", formula.under(meaning)(), strict.value)
                self.counts["claims of states after"] += 1

    def _compare_checks(
        self, raised: CheckFailed | None, strict: list[tuple[int, bool]], meaning: Interpretation
    ) -> None:
        symbolic = self.symbolic
        checks = zip(symbolic.outcome.checks, symbolic.checks, strict=True)
        failed = [one for one, formula in checks if not formula.under(meaning)()]
        lines = [int(one.place.rpartition(":")[2]) for one in failed]
        _agree("the lines of the checks that fail", lines, [line for line, is_so in strict if not is_so])
        first = [(one.property, one.text) for one in failed[:1]]
        _agree("the check that fails first", first, [(raised.property, raised.text)] if raised else [])
        self.counts["checks"] += len(strict)

    def _compare_function(
        self, name: str, formulas: Formulas, arguments: tuple[Any, ...], meaning: Interpretation
    ) -> None:
        strict = strictly(self.strict, name, *arguments)
        if not self._is_defined(name, formulas, strict, meaning):
            return
        assert formulas.value is not None
        self.counts["values of functions"] += 1
        found = self.machine.names[name](*arguments)
        _agree(f"the value of {name}", formulas.value.under(meaning)(), found)
        _agree(f"the strict value of {name}", strict.value, found)

    def _is_defined(self, name: str, formulas: Formulas, strict: Strict, meaning: Interpretation) -> bool:
        """Whether every value is defined, for both readers."""
        if strict.is_beyond:
            self.counts["beyond the end of an endless domain"] += 1
            return False
        undefined = next((one for one, formula in formulas.demands if not formula.under(meaning)()), None)
        is_defined = strict.line is None
        self.counts["defined" if is_defined else "undefined"] += 1
        if is_defined != (undefined is None):
            demand = f"{undefined.text} ({undefined.place}) is demanded" if undefined else "every demand holds"
            where = "all of it is defined" if is_defined else f"line {strict.line} is not defined"
            raise Disagreement(f"{name}: {demand} for the prover, and {where} natively")
        return is_defined

    def _compare_cells(
        self, what: str, formulas: Mapping[str, Evaluator], native: State, meaning: Interpretation
    ) -> None:
        for name, formula in formulas.items():
            value = formula.under(meaning)
            for at, cell in _cells(getattr(native, name)):
                self.counts["cells"] += 1
                if value(*at) != cell:
                    raise Disagreement(f"{what}: {name}{list(at)} is {value(*at)} for the prover and {cell} natively")


def _cells(rows: Any, at: tuple[int, ...] = ()) -> Iterable[tuple[tuple[int, ...], Any]]:
    if not isinstance(rows, list):
        return [(at, rows)]
    return [found for index, row in enumerate(rows) for found in _cells(row, (*at, index))]


def _all(formulas: Iterable[Evaluator], meaning: Interpretation) -> bool:
    return all(one.under(meaning)() for one in formulas)


def _agree(what: str, symbolic: object, native: object) -> None:
    if symbolic != native:
        raise Disagreement(f"{what}: {symbolic} for the prover and {native} natively")
