"""The translator against Python: both readers of the specification give the same, cell by cell.

Along a random walk over the rules, each step is run natively and by the translator on the same concrete state, ghosts
included. Guards, obligations, ranges and every cell of the state after are compared. Which rule comes next: the one
that has fired least often, of those that are enabled.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.models.translation.maps import Map, SymbolicState, Value
from kvproof.models.translation.terms import Term
from kvproof.models.translation.translator import Translator
from kvproof.spec.language import COLLECTED, SLOTS
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.state import State

RULES = {rule.__name__ for rule in COLLECTED.rules}
STEPS_OF_ONE_WALK = 60
DISABLED_PER_STEP = 2


def scopes() -> Iterator[Scope]:
    yield Scope(
        3,
        3,
        num_seqs=3,
        num_tokens=4,
        caching=True,
        swap=True,
        num_flights=2,
        lookahead=2,
        reserving=True,
        level="rules",
    )
    yield Scope(4, 2, num_seqs=2, num_tokens=6, caching=True, swap=True, num_flights=1, window=2, level="rules")


def cells_of(sizes: Sizes) -> list[tuple[str, tuple[int, ...]]]:
    """Every cell of a state of these sizes: the field and its indexes."""
    names = sizes.names()
    lengths = {name: [_size(domain.size, names) for domain in field.domains] for name, field in FIELDS.items()}
    return [(name, at) for name, of in lengths.items() for at in itertools.product(*map(range, of))]


def _size(size: str | int | None, names: dict[str, Any]) -> int:
    assert size is not None
    return int(names[size]) if isinstance(size, str) else size


def cell(state: State, name: str, at: tuple[int, ...]) -> int:
    rows = getattr(state, name)
    for index in at:
        rows = rows[index]
    return int(rows)


class Comparison:
    def __init__(self, scope: Scope, seed: int) -> None:
        self.random, sizes = Random(seed), sizes_of(scope)
        self.machine, self.translator, self.level = Machine(sizes), Translator(sizes), RuleSpace(scope)
        self.cells = cells_of(sizes)
        self.fired, self.refused, self.num_cells = Counter[str](), Counter[str](), 0

    def walk(self) -> None:
        state = self.machine.first_state()
        for _ in range(STEPS_OF_ONE_WALK):
            if (after := self._step(state)) is None:
                return
            state = after

    def _step(self, state: State) -> State | None:
        """Fire a rule that has fired seldom; compare some that are not enabled on the way."""
        candidates: dict[str, list[tuple[Any, ...]]] = {}
        for candidate in self.level.candidates(state):
            candidates.setdefault(candidate[0], []).append(candidate[1:])
        num_refused = 0
        for rule in sorted(candidates, key=lambda name: (self.fired[name], self.random.random())):
            for arguments in self.random.sample(candidates[rule], len(candidates[rule])):
                after = self.machine.copy(state)
                if self.machine.rules[rule](after, *arguments) is None:
                    self.compare_fired(rule, arguments, state, after)
                    return after
                if num_refused < DISABLED_PER_STEP:
                    num_refused += 1
                    self.compare_refused(rule, arguments, state)
        return None

    def compare_fired(self, rule: str, arguments: tuple[Any, ...], before: State, after: State) -> None:
        outcome = self.translator.run(rule, concrete_state(before), *self._given(arguments))
        assert outcome.guard is True, f"{rule}{arguments} is enabled"
        assert [check.text for check in outcome.checks if check.formula is not True] == []
        assert [demand.text for demand in outcome.demands] == []
        for name, at in self.cells:
            assert outcome.state.maps[name].read(*at) == cell(after, name, at), f"{rule}{arguments}: {name}{at}"
        self.fired[rule] += 1
        self.num_cells += len(self.cells)

    def compare_refused(self, rule: str, arguments: tuple[Any, ...], before: State) -> None:
        outcome = self.translator.run(rule, concrete_state(before), *self._given(arguments))
        assert outcome.guard is False, f"{rule}{arguments} is not enabled"
        assert [demand.text for demand in outcome.demands] == []
        self.refused[rule] += 1

    def _given(self, arguments: tuple[Any, ...]) -> list[Value]:
        return [Map((SLOTS,), _reader(one)) if isinstance(one, list) else one for one in arguments]


def concrete_state(state: State) -> SymbolicState:
    """A native state, with its ghosts, for the translator. Reading outside its lists raises IndexError."""
    return SymbolicState({name: Map(field.domains, _reader(getattr(state, name))) for name, field in FIELDS.items()})


def _reader(rows: Any) -> Callable[..., Term]:
    def read(*indexes: int) -> Term:
        value = rows
        for index in indexes:
            if index < 0:
                raise IndexError(f"{index} is no index")
            value = value[index]
        found: Term = value
        return found

    return read


def compared(num_cells: int, seed: int) -> tuple[int, Counter[str], Counter[str]]:
    """Walk until so many cells have been compared in each scope."""
    total, fired, refused = 0, Counter[str](), Counter[str]()
    for scope in scopes():
        comparison = Comparison(scope, seed)
        while comparison.num_cells < num_cells:
            comparison.walk()
        total += comparison.num_cells
        fired.update(comparison.fired)
        refused.update(comparison.refused)
    return total, fired, refused


def test_the_translator_and_python_agree_in_a_hundred_thousand_cells_with_every_rule_fired() -> None:
    total, fired, refused = compared(60_000, seed=1)
    assert total >= 100_000
    assert set(fired) == RULES
    assert sum(refused.values()) > 200


@pytest.mark.long
def test_the_translator_and_python_agree_in_two_million_cells() -> None:
    total, fired, refused = compared(1_000_000, seed=2)
    assert total >= 2_000_000
    assert set(fired) == RULES
    assert min(fired.values()) >= 20
    assert sum(refused.values()) > 5_000


def test_claims_have_the_same_truth_by_the_translator_and_by_python() -> None:
    (scope, *_), random = scopes(), Random(3)
    sizes = sizes_of(scope)
    machine, translator, level = Machine(sizes), Translator(sizes), RuleSpace(scope)
    state, seen = machine.first_state(), Counter[bool]()
    for step in range(25):
        state = random.choice([after for _, after in level.successors(state)])
        spoilt = machine.copy(state)
        if step % 2:
            name = random.choice(["refcount", "status", "num_full", "num_written", "place", "pins"])
            getattr(spoilt, name)[0] += 1
        for claim in COLLECTED.invariants + COLLECTED.theorems:
            try:
                expected = machine.names[claim.name](spoilt)
            except IndexError:
                continue  # what is spoilt may lie out of range
            assert translator.holds(claim.name, concrete_state(spoilt)) is expected, claim.name
            seen[bool(expected)] += 1
    assert seen[True] > 300
    assert seen[False] > 20
