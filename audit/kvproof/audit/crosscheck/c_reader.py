"""The C reader of the specification, compared with the Python reader firing by firing.

`compare_firings` fires rules in both readers from the same states of a random walk, with arguments that are allowed and
arguments that are not: the guard or obligation that stops a rule, and every cell of the state after it, must be equal.
It raises ReadersDiffer at the first difference.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kvproof.check.search.exhaustive.c_reader.comparison import ReadersDiffer
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, in_use
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec.compilation import CheckFailed, Guard
from kvproof.spec.text.state import State

NUM_TRIES = 8  # rules fired from each state of a walk
WALK_LENGTH = 400


@dataclass
class Compared:
    """What was compared: cells after firings, rules by how often they fired, firings that were refused."""

    num_cells: int = 0
    num_refused: int = 0
    fired: Counter[str] = field(default_factory=Counter)


def compare_firings(spec: SpecificationInC, num_fired: int, seed: int) -> Compared:
    """Fire rules in both readers until so many have fired. Raises ReadersDiffer."""
    source, compared = random.Random(seed), Compared()
    space = RuleSpace(spec.scope, spec.machine)
    with in_use:
        spec.prepare()
        while compared.fired.total() < num_fired:
            state = spec.machine.first_state()
            for _ in range(WALK_LENGTH):
                if compared.fired.total() < num_fired:
                    state = _compare_state(spec, space, state, source, compared)
    return compared


def _compare_state(
    spec: SpecificationInC, space: RuleSpace, state: State, source: random.Random, compared: Compared
) -> State:
    """Compare some firings from one state; the state that the last of those that fired leaves."""
    by_rule: dict[str, list[tuple[Any, ...]]] = {}
    for rule, *arguments in space.candidates(state):
        by_rule.setdefault(rule, []).append(tuple(arguments))
    _compare_claims(spec, state)
    for rule in source.choices(sorted(by_rule), k=NUM_TRIES):
        choices: list[Any] = by_rule[rule]
        arguments = source.choice(choices)
        cells, work = spec.raw_cells(state), spec.machine.copy(state)
        result, is_off = spec.fire(cells, rule, arguments)
        try:
            refused: Guard | CheckFailed | None = spec.machine.rules[rule](work, *arguments)
        except CheckFailed as failed:
            refused = failed
        _compare_answers(spec, f"{rule}{arguments}", result, refused)
        if is_off or cells[: spec.num_cells] != spec.raw_cells(work)[: spec.num_cells]:
            raise ReadersDiffer(f"{rule}{arguments} leaves other cells in C than in Python, or reads beyond a field")
        compared.num_cells += spec.num_cells
        if refused is None:
            compared.fired[rule] += 1
            state = work
        else:
            compared.num_refused += 1
    return state


def _compare_answers(spec: SpecificationInC, firing: str, result: int, refused: Guard | CheckFailed | None) -> None:
    if result > 0:
        same = refused == spec.translator.guards[result - 1]
    elif result < 0:
        rule, property, _ = spec.translator.checks[-result - 1]
        same = isinstance(refused, CheckFailed) and (refused.rule, refused.property) == (rule, property)
    else:
        same = refused is None
    if not same:
        raise ReadersDiffer(f"{firing} answers {result} in C, and {refused} in Python")


def _compare_claims(spec: SpecificationInC, state: State) -> None:
    number = spec.library.claim_of(spec.raw_cells(state))
    broken = [claim.name for claim in spec.claims if not spec.machine.names[claim.name](state)]
    if (number and not broken) or (broken and (not number or spec.claims[number - 1].name != broken[0])):
        raise ReadersDiffer(f"C says that claim {number} is broken, Python {broken}")
