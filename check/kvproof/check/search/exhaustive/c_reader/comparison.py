"""The C reader held to the Python reader.

`compare_firings` fires rules in both readers from the same states of a random walk, with arguments that are allowed and
arguments that are not: the guard or obligation that stops a rule, and every cell of the state after it, must be equal.
`compare_searches` visits states in the order of a search, and `compare_states` takes states of a search that has ended:
the strings of what Python reaches from a state must be those that C reaches. All raise ReadersDiffer at the first
difference.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kvproof.check.search.exhaustive.breadth_first import RefutedAt
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, in_use
from kvproof.check.search.exhaustive.specification_calls import CallSpace
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.spec.compilation import CheckFailed, Guard
from kvproof.spec.text.state import State

NUM_TRIES = 8  # rules fired from each state of a walk
WALK_LENGTH = 400


class ReadersDiffer(Exception):
    """The two readers say different things about the specification: one of them is wrong."""


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


def compare_searches(spec: SpecificationInC, num_states: int) -> int:
    """Compare what the first states of a search lead to; the number of states compared. Raises ReadersDiffer."""
    with in_use:
        spec.prepare()
        space = _space(spec)
        first = spec.string(space.first(), space.continuations.before)
        frontier, known, num_compared = [first], {first}, 0
        while frontier and num_compared < num_states:
            following: list[bytes] = []
            for string in frontier[: num_states - num_compared]:
                num_compared += 1
                reached = _compare_successors(spec, string)
                if reached is None:
                    return num_compared
                following += [one for one in dict.fromkeys(reached) if one not in known]
                known.update(reached)
            frontier = following
    return num_compared


def compare_states(spec: SpecificationInC, strings: Iterable[bytes]) -> None:
    """Compare what these states lead to, in which a search in C has found nothing. Raises ReadersDiffer."""
    with in_use:
        for string in strings:
            if _compare_successors(spec, string) is None:
                raise ReadersDiffer(
                    f"both readers refute a state that a search in C went past: {spec.state(string)[0]}"
                )


def _compare_successors(spec: SpecificationInC, string: bytes) -> list[bytes] | None:
    """The strings that a state leads to, the same in both readers; None if both make a finding there."""
    reached, finding = spec.successors(string)
    expected = _reached_by_python(spec, string)
    if expected is None:
        if not finding:
            raise ReadersDiffer(f"Python refutes a state that C does not: {spec.state(string)[0]}")
        return None
    if set(reached) != expected or finding:
        raise ReadersDiffer(_difference(spec, string, set(reached), expected, finding))
    return reached


def _space(spec: SpecificationInC) -> RuleSpace | CallSpace:
    return (RuleSpace if spec.scope.level == "rules" else CallSpace)(spec.scope, spec.machine)


def _reached_by_python(spec: SpecificationInC, string: bytes) -> set[bytes] | None:
    """The strings of the successors in Python of one state; None if something is refuted there.

    As in C, a successor is refuted at once if its ghosts are wrong, or a number of it is out of range.
    """
    space = _space(spec)
    state, before = spec.state(string)
    space.continuations.resume(before)
    found = set[bytes]()
    try:
        for _, reached in space.successors(state):
            found.add(spec.string(reached, space.continuations.before))
            if b"" in found or not space.claims.ghosts_agree(reached):
                return None
    except RefutedAt:
        return None
    return found


def _difference(spec: SpecificationInC, string: bytes, reached: set[bytes], expected: set[bytes], finding: int) -> str:
    lines = [f"finding {finding} in C" if finding else f"C reaches {len(reached)} states, Python {len(expected)}, from"]
    lines += [str(vars(spec.state(string)[0]))]
    lines += [f"only C: {vars(spec.state(one)[0])}" for one in sorted(reached - expected)[:1]]
    lines += [f"only Python: {vars(spec.state(one)[0])}" for one in sorted(expected - reached)[:1]]
    return "\n".join(lines)
